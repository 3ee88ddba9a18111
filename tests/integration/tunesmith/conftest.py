from tests.support.tunesmith.fixtures import client, lasting_server, lasting_url, onnx, service, url, worker

__all__ = ["client", "lasting_server", "lasting_url", "onnx", "service", "url", "worker"]
