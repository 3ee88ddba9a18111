"""What holds for every unit test."""

from tests.support.storage.quick import statements_compiled_once, without_waiting_for_the_disk

__all__ = ["statements_compiled_once", "without_waiting_for_the_disk"]
