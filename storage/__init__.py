"""SQL tables, queries, and content-addressed blobs.

Every query is a function whose first argument is a SQLAlchemy Session. Queries do not commit: the caller that opened
the transaction determines its scope. Writes that change the state of a job are compare-and-set and return whether they
succeeded.
"""
