from tests.support.api.fixtures import client, job, model, service

__all__ = ["client", "job", "model", "service"]
