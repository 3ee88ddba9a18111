from tests.support.worker.fixtures import bench, kill, migrated, spans, team

__all__ = ["bench", "kill", "migrated", "spans", "team"]
