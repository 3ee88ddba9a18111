"""Native record formats of AutoTVM, Ansor and MetaSchedule, read and written without TVM.

These modules compute the same workload key and schedule digest as the engines do, so an imported trial and one measured
here are the same candidate.
"""
