from tests.support.worker.fixtures import bench, spans, team
from tests.support.worker.real import real_engines, timed_once

__all__ = ["bench", "real_engines", "spans", "team", "timed_once"]
