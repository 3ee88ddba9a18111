"""Networks as Relax functions, lowered to the tensor functions that schedules apply to.

A module is an idea: its pass over Relax functions, and the schedules of the functions that it makes.
"""
