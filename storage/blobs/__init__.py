"""Content-addressed blobs: a folder of this host, or an S3 bucket with a cache on this host."""
