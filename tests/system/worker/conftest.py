from tests.support.worker.fixtures import bench, kill, spans, team

__all__ = ["bench", "kill", "spans", "team"]
