from tests.support.worker.fixtures import bench

__all__ = ["bench"]
