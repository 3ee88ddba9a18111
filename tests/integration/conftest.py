"""What holds for every integration test."""

from tests.support.storage.fixtures import without_waiting_for_the_disk

__all__ = ["without_waiting_for_the_disk"]
