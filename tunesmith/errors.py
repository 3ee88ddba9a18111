"""Every error that the client raises, as one tree.

::

    TunesmithError
    ├── ConfigurationError        a setting is wrong or missing
    │   ├── ForeignBlobStore          the bytes there are another database's
    │   ├── Unauthorized              the server does not accept the token
    │   │   └── TokenExpired
    │   └── Forbidden                 a good token, which may not do this
    │       └── MissingScope
    ├── NetworkError
    │   ├── ServerUnreachable         nothing answers there
    │   └── ServerError               it answered that it cannot, or nothing that can be understood
    │       ├── InternalError, BlobDamaged
    │       ├── EngineError               an engine failed the server
    │       │   ├── EngineNotInstalled, EngineInstallFailed, EngineStartFailed
    │       │   └── EngineCrashed, EngineSilent, EngineTimeout, EngineGarbled, EngineRequestFailed
    │       └── Unavailable               a part of the service cannot be reached, or has no time
    │           ├── NotReady, NoWorker, BrokerUnavailable, DatabaseUnavailable, DeviceBusy, PlannerBusy
    │           ├── BlobStoreUnavailable, BlobStoreRefused, BlobStoreFull, DiskFull
    │           └── TrackerUnreachable, NoDevice, DeviceLost, CrossCompilerMissing, CompilerMissing
    ├── RequestRejected           the server refused what was asked; ``code`` says why
    │   ├── InvalidRequest            sending it again will not help
    │   │   ├── InvalidModel, UnsupportedOperators, ShapeRequired, ShapeMismatch, InvalidInputs, InvalidBundle
    │   │   ├── UnknownTarget, UnsupportedTarget, UnknownTuner, UnknownPrecision, UnknownRunner
    │   │   ├── InvalidOption, InvalidOperator, InvalidBudget, InvalidPageToken, InvalidWebhook
    │   │   ├── BlobTooLarge, BodyTooLarge, HeadersTooLarge, RequestTimeout, RangeNotSatisfiable
    │   │   └── MethodNotAllowed, IdempotencyMismatch
    │   ├── NotFound
    │   │   ├── ModelNotFound, TokenNotFound, JobNotFound, GroupNotFound, ArtifactNotFound, BlobNotFound, RouteNotFound
    │   │   └── Deleted: ModelDeleted, ArtifactDeleted
    │   ├── Conflict                  right in itself, but not now
    │   │   └── ModelInUse, JobNotFinished, JobAlreadyFinished
    │   └── TooMuch                   more than the caller may have at a time
    │       └── RateLimited, QuotaExceeded
    ├── InvalidInput              refused before anything was sent, or by a local command
    ├── LockNotKept               what the lock file holds cannot be kept; ``details`` has both sides
    │   └── ArtifactSlower, ArtifactMissing, NotLocked
    └── JobNotSucceeded
        ├── JobFailed                 ``code``, ``hint`` and ``details`` are the failure's own
        │   └── VerificationFailed, AccuracyNotMet, NoValidTrial, AttemptsExhausted
        └── JobCanceled

``code`` is stable, and the server's own where it answered; docs/errors.md lists them. ``hint`` says what to do. A code
that this client does not know yet has the class of its HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TunesmithError(Exception):
    code = "client_error"
    default_hint: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint or self.default_hint
        self.details = dict(details or {})
        self.status, self.retry_after = status, retry_after
        """HTTP's, where a server answered; seconds after which asking again makes sense, where it says so."""


class ConfigurationError(TunesmithError):
    code = "configuration_error"


class ForeignBlobStore(ConfigurationError):
    code = "blob_store_foreign"


class Unauthorized(ConfigurationError):
    code = "unauthorized"
    default_hint = "Set TUNESMITH_TOKEN to a token of the server; its own is in server.json of its home folder."


class TokenExpired(Unauthorized):
    code = "token_expired"


class Forbidden(ConfigurationError):
    code = "forbidden"


class MissingScope(Forbidden):
    code = "missing_scope"


class NetworkError(TunesmithError):
    code = "network_error"


class ServerUnreachable(NetworkError):
    code = "server_unreachable"
    default_hint = "Start one with ./run serve, or set TUNESMITH_URL to one that runs elsewhere."


class ServerError(NetworkError):
    code = "server_error"


class InternalError(ServerError):
    code = "internal_error"


class BlobDamaged(ServerError):
    code = "blob_damaged"


class EngineError(ServerError):
    code = "engine_error"


class EngineNotInstalled(EngineError):
    code = "engine_not_installed"


class EngineInstallFailed(EngineError):
    code = "engine_install_failed"


class EngineStartFailed(EngineError):
    code = "engine_start_failed"


class EngineCrashed(EngineError):
    code = "engine_crashed"


class EngineSilent(EngineError):
    code = "engine_silent"


class EngineTimeout(EngineError):
    code = "engine_timeout"


class EngineGarbled(EngineError):
    code = "engine_garbled"


class EngineRequestFailed(EngineError):
    code = "engine_request_failed"


class Unavailable(ServerError):
    code = "unavailable"


class BrokerUnavailable(Unavailable):
    code = "broker_unavailable"


class DatabaseUnavailable(Unavailable):
    code = "database_unavailable"


class BlobStoreUnavailable(Unavailable):
    code = "blob_store_unavailable"


class BlobStoreRefused(BlobStoreUnavailable):
    code = "blob_store_refused"


class BlobStoreFull(BlobStoreUnavailable):
    code = "blob_store_full"


class DiskFull(Unavailable):
    code = "disk_full"


class NoWorker(Unavailable):
    code = "no_worker"


class NotReady(Unavailable):
    code = "not_ready"


class DeviceBusy(Unavailable):
    code = "device_busy"


class PlannerBusy(Unavailable):
    code = "planner_busy"


class TrackerUnreachable(Unavailable):
    code = "tracker_unreachable"


class NoDevice(Unavailable):
    code = "no_device"


class DeviceLost(Unavailable):
    code = "device_lost"


class CrossCompilerMissing(Unavailable):
    code = "cross_compiler_missing"


class CompilerMissing(Unavailable):
    code = "compiler_missing"


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


class InvalidInput(TunesmithError):
    code = "invalid_input"


class LockNotKept(TunesmithError):
    code = "lock_not_kept"


class ArtifactSlower(LockNotKept):
    code = "artifact_slower"


class ArtifactMissing(LockNotKept):
    code = "artifact_missing"


class NotLocked(LockNotKept):
    code = "not_locked"


class JobNotSucceeded(TunesmithError):
    code = "job_not_succeeded"


class JobFailed(JobNotSucceeded):
    code = "job_failed"


class VerificationFailed(JobFailed):
    code = "verification_failed"


class AccuracyNotMet(JobFailed):
    code = "accuracy_not_met"


class NoValidTrial(JobFailed):
    code = "no_valid_trial"


class AttemptsExhausted(JobFailed):
    code = "attempts_exhausted"


class JobCanceled(JobNotSucceeded):
    code = "job_canceled"


def unreadable(path: Path) -> InvalidInput:
    """For a file that was named and is none."""
    if path.is_dir():
        message, hint = f"{path} is a folder, not a file", "Name a file in it."
    else:
        message, hint = f"there is no file {path}", "Check the name; a relative one starts at the current folder."
    return InvalidInput(message, code="unreadable_file", hint=hint)
