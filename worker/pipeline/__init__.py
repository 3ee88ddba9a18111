"""The pipeline of one claimed job: a module a stage, and the search in a folder of its own."""
