"""Wire protocol between the host and an engine; standard library only, so that any interpreter can import it.

Requests are sent to the engine as JSON lines on its standard input; events are returned as JSON lines on a private
descriptor, whose number is the engine's ``--event-fd`` argument. Standard output and standard error go to the engine
log, so output of TVM, LLVM or a plugin cannot be mistaken for an event.
"""
