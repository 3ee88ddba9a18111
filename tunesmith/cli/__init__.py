"""The ``tunesmith`` command. Results go to standard output, everything else to standard error.

``tunesmith --help`` must be quick: the HTTP client, rich and the server's packages are imported by the functions
that need them.
"""
