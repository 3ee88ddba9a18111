from tests.support.api.fixtures import client, job, lasting, lasting_model, log, model, service

__all__ = ["client", "job", "lasting", "lasting_model", "log", "model", "service"]
