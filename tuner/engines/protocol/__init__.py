"""The wire between the host and an engine: standard library only, importable by any interpreter.

Requests travel to the engine as JSON lines on its standard input; events travel back as JSON lines on a private
descriptor whose number is the engine's ``--event-fd`` argument. Standard output and standard error belong to the
engine log, so nothing that TVM, LLVM or a plug-in prints can be taken for an event.
"""
