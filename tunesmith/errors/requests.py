"""The server refused what was asked."""

from __future__ import annotations

from tunesmith.errors.base import TunesmithError


class RequestRejected(TunesmithError):
    code = "request_rejected"


class InvalidRequest(RequestRejected):
    code = "invalid_request"


class InvalidModel(InvalidRequest):
    code = "invalid_model"


class UnsupportedOperators(InvalidRequest):
    code = "unsupported_operators"


class ShapeRequired(InvalidRequest):
    code = "shape_required"


class ShapeMismatch(InvalidRequest):
    code = "shape_mismatch"


class InvalidInputs(InvalidRequest):
    code = "invalid_inputs"


class InvalidBundle(InvalidRequest):
    code = "invalid_bundle"


class UnknownTarget(InvalidRequest):
    code = "unknown_target"


class UnsupportedTarget(InvalidRequest):
    code = "unsupported_target"


class UnknownTuner(InvalidRequest):
    code = "unknown_tuner"


class UnknownPrecision(InvalidRequest):
    code = "unknown_precision"


class UnknownRunner(InvalidRequest):
    code = "unknown_runner"


class InvalidOption(InvalidRequest):
    code = "invalid_option"


class InvalidOperator(InvalidRequest):
    code = "invalid_operator"


class InvalidBudget(InvalidRequest):
    code = "invalid_budget"


class InvalidPageToken(InvalidRequest):
    code = "invalid_page_token"


class InvalidWebhook(InvalidRequest):
    code = "invalid_webhook"


class BlobTooLarge(InvalidRequest):
    code = "blob_too_large"


class BodyTooLarge(InvalidRequest):
    code = "body_too_large"


class HeadersTooLarge(InvalidRequest):
    code = "headers_too_large"


class RequestTimeout(InvalidRequest):
    code = "request_timeout"


class RangeNotSatisfiable(InvalidRequest):
    code = "range_not_satisfiable"


class MethodNotAllowed(InvalidRequest):
    code = "method_not_allowed"


class IdempotencyMismatch(InvalidRequest):
    code = "idempotency_mismatch"


class NotFound(RequestRejected):
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class TokenNotFound(NotFound):
    code = "token_not_found"


class JobNotFound(NotFound):
    code = "job_not_found"


class GroupNotFound(NotFound):
    code = "group_not_found"


class ArtifactNotFound(NotFound):
    code = "artifact_not_found"


class BlobNotFound(NotFound):
    code = "blob_not_found"


class Deleted(NotFound):
    code = "deleted"


class ModelDeleted(Deleted):
    code = "model_deleted"


class ArtifactDeleted(Deleted):
    code = "artifact_deleted"


class RouteNotFound(NotFound):
    code = "route_not_found"


class Conflict(RequestRejected):
    code = "conflict"


class ModelInUse(Conflict):
    code = "model_in_use"


class JobNotFinished(Conflict):
    code = "job_not_finished"


class JobAlreadyFinished(Conflict):
    code = "job_already_finished"


class TooMuch(RequestRejected):
    code = "too_much"


class RateLimited(TooMuch):
    code = "rate_limited"


class QuotaExceeded(TooMuch):
    code = "quota_exceeded"
