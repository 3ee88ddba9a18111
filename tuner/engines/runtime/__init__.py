"""What the engines share: processes that build and measure, devices behind RPC trackers, and both ends of a request.

Runs inside engine environments only. It imports no TVM: what differs between its releases, an engine passes in as a
``compiling.Release``. The host imports none of it.
"""
