"""What the service remembers: SQL tables and their queries, and content-addressed blobs.

Every query is a module function whose first argument is a SQLAlchemy Session. None commits: who opened the
transaction decides what belongs together. Writes that change a job's state are compare-and-set and return whether
they won.
"""
