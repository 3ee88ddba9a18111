from tests.support.tuner.fixtures import engine, no_child_left, passed_on, start

__all__ = ["engine", "no_child_left", "passed_on", "start"]
