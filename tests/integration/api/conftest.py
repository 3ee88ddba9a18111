from tests.support.api.fixtures import client, job, lasting, lasting_model, model, service

__all__ = ["client", "job", "lasting", "lasting_model", "model", "service"]
