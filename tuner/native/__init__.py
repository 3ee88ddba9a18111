"""Records in the formats of AutoTVM, Ansor and MetaSchedule, read and written without TVM.

What an engine makes of a line, these modules make of it too: the same workload key, and the same digest of the
schedule, so that a trial that was imported and one that was measured here are the same candidate.
"""
