from tests.support.tunesmith.fixtures import client, onnx, service, url, worker

__all__ = ["client", "onnx", "service", "url", "worker"]
