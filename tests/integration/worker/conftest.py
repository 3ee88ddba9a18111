from tests.support.worker.fixtures import bench, spans, team

__all__ = ["bench", "spans", "team"]
