"""Engine that runs the libraries of compiled builds, in a process without TVM."""
