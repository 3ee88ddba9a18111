"""Every error that a caller can see: its code, HTTP status and hint, as one tree.

::

    TunesmithError
    ├── InvalidRequest            what the caller sent is wrong; sending it again will not help
    │   ├── InvalidModel              not ONNX, truncated, refused by the checker
    │   ├── UnsupportedOperators      no engine can import the model
    │   ├── ShapeRequired             a dynamic dimension has no value
    │   ├── ShapeMismatch             a given shape does not fit the model
    │   ├── InvalidInputs             arrays that do not fit a bundle's inputs
    │   ├── InvalidBundle             not a bundle, or its digests do not match
    │   ├── UnknownTarget
    │   ├── UnsupportedTarget         a known one, which this tuner, engine or runner cannot serve
    │   ├── UnknownTuner
    │   ├── UnknownPrecision
    │   ├── UnknownRunner
    │   ├── InvalidOption             an option that does not fit the tuner, target or runner
    │   ├── InvalidOperator           the description of one operator to tune
    │   ├── InvalidBudget
    │   ├── InvalidPageToken
    │   ├── InvalidWebhook            an address that must not be called
    │   ├── BlobTooLarge              more bytes than this server accepts
    │   ├── IdempotencyMismatch       the same key came with a different request
    │   └── BodyTooLarge, RangeNotSatisfiable, MethodNotAllowed
    │                                 refused before any route saw it
    ├── Unauthorized              no token, or none that counts
    │   └── TokenExpired
    ├── Forbidden                 a good token, which may not do this
    │   └── MissingScope
    ├── TooMuch                   right in itself, but more than the caller may have at a time
    │   ├── RateLimited
    │   └── QuotaExceeded
    ├── NotFound
    │   ├── ModelNotFound
    │   ├── TokenNotFound
    │   ├── JobNotFound
    │   ├── GroupNotFound
    │   ├── ArtifactNotFound
    │   ├── Deleted                   it was there, and somebody deleted it
    │   │   ├── ModelDeleted
    │   │   └── ArtifactDeleted
    │   ├── BlobNotFound              the bytes of something known are gone
    │   └── RouteNotFound
    ├── BlobDamaged               stored bytes are not those that their digest names
    ├── Conflict                  right in itself, but not now
    │   ├── ModelInUse
    │   ├── JobNotFinished
    │   └── JobAlreadyFinished
    ├── EngineError               an engine failed the host
    │   ├── EngineNotInstalled
    │   ├── EngineInstallFailed
    │   ├── EngineStartFailed         it never said hello, or speaks another protocol
    │   ├── EngineCrashed             it ended, by itself or by a signal
    │   ├── EngineSilent              no heartbeat
    │   ├── EngineTimeout             alive, but past the request's time limit
    │   ├── EngineGarbled             what it wrote is no message, or too long a line
    │   └── EngineRequestFailed       it answered with an error of its own; ``code`` is the engine's
    ├── JobFailed                 the job's own outcome
    │   ├── VerificationFailed        no variant agrees with the reference
    │   ├── AccuracyNotMet            no build in the precision that was asked for passes the accuracy gate
    │   ├── NoValidTrial              every trial of a tuning task failed
    │   └── AttemptsExhausted         the job killed or lost its worker too often
    ├── Unavailable               a part of the service cannot be reached
    │   ├── NotReady                  what the service works with is not all there
    │   ├── BrokerUnavailable
    │   ├── DatabaseUnavailable
    │   ├── NoWorker                  none that lives can serve the job, which waits for one
    │   ├── BlobStoreUnavailable      where models and artifacts are kept does not answer
    │   │   ├── BlobStoreRefused          it answers, and wants other credentials, rights or another bucket
    │   │   └── BlobStoreFull             no space is left for their bytes, there or on this host
    │   ├── DiskFull                  no space is left where a worker works
    │   ├── DeviceBusy
    │   ├── PlannerBusy               as many plans are being made as this server makes at once
    │   ├── TrackerUnreachable        the RPC tracker does not answer
    │   ├── NoDevice                  it has no device of that key
    │   ├── DeviceLost                every device of a job stopped answering
    │   ├── CrossCompilerMissing      nothing on the worker links for the target
    │   └── CompilerMissing           nothing on the worker compiles CUDA code
    └── ConfigurationError
        ├── DatabaseDamaged           the file is no database, or not whole
        └── ForeignBlobStore          the bytes there are another database's

A class declares its code, its status where that is not its parent's, and its hint. ``code`` is stable: clients branch
on it. ``./run docs`` writes the table of docs/reference/errors.md from these classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class TunesmithError(Exception):
    """``details`` holds JSON-able facts for machines, such as the operators or the near matches."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    """The HTTP status. Errors of engines and jobs mostly appear in a job's failure, which has none."""
    default_hint: ClassVar[str | None] = None
    """What to do, where the error is raised without a hint that fits the case better."""
    retry_after: ClassVar[int | None] = None
    """Seconds after which asking again makes sense, where that can be guessed."""

    def __init__(self, message: str, *, hint: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.details = details or {}


class InvalidRequest(TunesmithError):
    code = "invalid_request"
    status = 400
    default_hint = "Correct what the message names; /docs shows what each request takes."


class InvalidModel(InvalidRequest):
    code = "invalid_model"
    status = 422
    default_hint = "Upload the bytes of one .onnx file that onnx.checker accepts."


class UnsupportedOperators(InvalidRequest):
    code = "unsupported_operators"
    status = 422
    default_hint = "See details.operators for names and counts; replace them or use another engine."


class ShapeRequired(InvalidRequest):
    code = "shape_required"
    default_hint = "Give every dynamic dimension a value, for example --input-shape x:1,3,224,224."


class ShapeMismatch(InvalidRequest):
    code = "shape_mismatch"
    default_hint = "Name an input of the model and give as many dimensions as it has, fixed ones unchanged."


class InvalidInputs(InvalidRequest):
    code = "invalid_inputs"
    default_hint = "Give an .npz file with one array per input: names, shapes and dtypes as in manifest.json."


class InvalidBundle(InvalidRequest):
    code = "invalid_bundle"
    default_hint = "Download the artifact again; its files must match the digests in manifest.json."


class UnknownTarget(InvalidRequest):
    code = "unknown_target"
    default_hint = "Use 'native' for the worker's own CPU, or a TVM target such as 'llvm -mcpu=skylake-avx512'."


class UnsupportedTarget(InvalidRequest):
    code = "unsupported_target"
    default_hint = "The metaschedule tuner compiles for llvm and cuda, autotvm and ansor for llvm."


class UnknownTuner(InvalidRequest):
    code = "unknown_tuner"
    default_hint = "Use one of details.known, or leave it out: the service then picks one."


class UnknownPrecision(InvalidRequest):
    code = "unknown_precision"
    default_hint = "Use one of details.known, or leave it out for f32."


class UnknownRunner(InvalidRequest):
    code = "unknown_runner"
    default_hint = "Use one of details.known, or leave it out to measure on the worker itself."


class InvalidOption(InvalidRequest):
    code = "invalid_option"
    default_hint = "Leave it out, or name the tuner and runner that it belongs to."


class InvalidOperator(InvalidRequest):
    code = "invalid_operator"
    default_hint = "Describe one operator with its shapes: 'conv2d x=1,64,56,56 w=64,64,3,3 padding=1'."


class InvalidBudget(InvalidRequest):
    code = "invalid_budget"
    default_hint = "Give a positive number of trials, a positive number of seconds, or both."


class InvalidPageToken(InvalidRequest):
    code = "invalid_page_token"
    default_hint = "Pass next_page_token of the previous page unchanged, or none for the first page."


class InvalidWebhook(InvalidRequest):
    code = "invalid_webhook"
    default_hint = "Name an https:// address that everyone can reach; an admin allows others: TUNESMITH_WEBHOOK_HOSTS."


class BlobTooLarge(InvalidRequest):
    code = "blob_too_large"
    status = 413
    default_hint = "Send at most details.limit_bytes; an admin can raise TUNESMITH_MAX_MODEL_BYTES for ONNX models."


class IdempotencyMismatch(InvalidRequest):
    code = "idempotency_mismatch"
    status = 422
    default_hint = "Use a new Idempotency-Key for a different request."


class BodyTooLarge(InvalidRequest):
    code = "body_too_large"
    status = 413
    default_hint = "Send a smaller document; models go to PUT /v1/models."


class RangeNotSatisfiable(InvalidRequest):
    code = "range_not_satisfiable"
    status = 416
    default_hint = "Ask for bytes that exist, or leave the Range header out."


class MethodNotAllowed(InvalidRequest):
    code = "method_not_allowed"
    status = 405
    default_hint = "See /docs for the methods of this path."


class Unauthorized(TunesmithError):
    code = "unauthorized"
    status = 401
    default_hint = "Send 'Authorization: Bearer TOKEN'; the service's own token is in server.json or TUNESMITH_TOKEN."


class TokenExpired(Unauthorized):
    code = "token_expired"
    default_hint = "Ask an admin for a new one: tunesmith token create."


class Forbidden(TunesmithError):
    code = "forbidden"
    status = 403
    default_hint = "Ask an admin, or whoever it belongs to."


class MissingScope(Forbidden):
    code = "missing_scope"
    default_hint = "Use a token that has the scope; an admin makes one: tunesmith token create --scope."


class TooMuch(TunesmithError):
    code = "too_much"
    status = 429
    default_hint = "Wait a while, and ask less often or for less at a time."


class RateLimited(TooMuch):
    code = "rate_limited"
    default_hint = "Wait as long as Retry-After says; follow a job by its events instead of asking again and again."


class QuotaExceeded(TooMuch):
    code = "quota_exceeded"
    default_hint = "Wait for jobs to end or cancel some; an admin can make a token with a larger quota."


class NotFound(TunesmithError):
    code = "not_found"
    status = 404
    default_hint = "Check the id: it may be mistyped, or name what belongs to somebody else."


class ModelNotFound(NotFound):
    code = "model_not_found"
    default_hint = "Upload it first: tunesmith upload FILE."


class TokenNotFound(NotFound):
    code = "token_not_found"
    default_hint = "List the tokens: tunesmith token list."


class JobNotFound(NotFound):
    code = "job_not_found"
    default_hint = "List the jobs: tunesmith jobs."


class GroupNotFound(NotFound):
    code = "group_not_found"
    default_hint = "List them: tunesmith groups, or GET /v1/groups; tunesmith tune --group puts a job into one."


class ArtifactNotFound(NotFound):
    code = "artifact_not_found"
    default_hint = "Tune the model for this target first: tunesmith tune MODEL.onnx."


class Deleted(NotFound):
    code = "deleted"
    status = 410
    default_hint = "It does not come back by itself: upload or tune it again."


class ModelDeleted(Deleted):
    code = "model_deleted"
    default_hint = "Upload it again: tunesmith upload FILE."


class ArtifactDeleted(Deleted):
    code = "artifact_deleted"
    default_hint = "Tune the model again: its records are kept, so that few trials are needed."


class BlobNotFound(NotFound):
    code = "blob_not_found"
    default_hint = "The stored bytes were removed: upload the model, or tune it, again."


class RouteNotFound(NotFound):
    code = "route_not_found"
    default_hint = "See /docs for every path of this API."


class BlobDamaged(TunesmithError):
    code = "blob_damaged"
    default_hint = "An admin restores the bytes from a backup, or deletes the model or artifact."


class Conflict(TunesmithError):
    code = "conflict"
    status = 409
    default_hint = "See what state it is in, and ask again once that has changed."


class ModelInUse(Conflict):
    code = "model_in_use"
    default_hint = "Wait for the jobs in details.jobs to end, or cancel them: tunesmith cancel JOB."


class JobNotFinished(Conflict):
    code = "job_not_finished"
    default_hint = "Wait for it: tunesmith status JOB --watch."


class JobAlreadyFinished(Conflict):
    code = "job_already_finished"
    default_hint = "There is nothing to stop; tunesmith retry JOB asks again for what failed or was canceled."


class EngineError(TunesmithError):
    code = "engine_error"


class EngineNotInstalled(EngineError):
    code = "engine_not_installed"
    status = 503
    default_hint = "Install it: tunesmith engines install NAME."


class EngineInstallFailed(EngineError):
    code = "engine_install_failed"


class EngineStartFailed(EngineError):
    code = "engine_start_failed"
    default_hint = "Check the environment: tunesmith engines doctor."


class EngineCrashed(EngineError):
    code = "engine_crashed"


class EngineSilent(EngineError):
    code = "engine_silent"


class EngineTimeout(EngineError):
    code = "engine_timeout"


class EngineGarbled(EngineError):
    code = "engine_garbled"


class EngineRequestFailed(EngineError):
    """The engine refused or failed the request; ``engine_code`` is its own stable code."""

    code = "engine_request_failed"

    def __init__(
        self, engine_code: str, message: str, *, hint: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, hint=hint, details=details)
        self.engine_code = engine_code


class JobFailed(TunesmithError):
    code = "job_failed"


class VerificationFailed(JobFailed):
    code = "verification_failed"
    default_hint = (
        "No compiled variant agrees with the reference; the failure's details list the errors. Nothing was published."
    )


class AccuracyNotMet(JobFailed):
    code = "accuracy_not_met"
    default_hint = "Use precision 'auto', which falls back to f32, or allow more: --max-error, --min-top1."


class NoValidTrial(JobFailed):
    code = "no_valid_trial"
    default_hint = "See the failure histogram; a longer trial timeout or fewer threads may help."


class AttemptsExhausted(JobFailed):
    code = "attempts_exhausted"
    default_hint = "The job lost its worker several times in a row; see the engine log before retrying."


class Unavailable(TunesmithError):
    code = "unavailable"
    status = 503
    default_hint = "Try again in a moment; if it stays so, an admin runs tunesmith doctor."


class NotReady(Unavailable):
    code = "not_ready"
    default_hint = "See details.checks for what is missing; the server's log has more."


class BrokerUnavailable(Unavailable):
    code = "broker_unavailable"
    default_hint = "Try again in a moment; if it stays away, an admin checks TUNESMITH_BROKER_URL: tunesmith doctor."


class DatabaseUnavailable(Unavailable):
    code = "database_unavailable"
    default_hint = "tunesmith doctor checks TUNESMITH_DATABASE_URL and tells what is wrong."
    retry_after = 5


class NoWorker(Unavailable):
    """A warning, not a refusal; ``details.missing`` names the need: worker, device, machine, cpu, engine, tracker."""

    code = "no_worker"
    default_hint = "The job is kept and taken when such a worker comes; GET /v1/workers shows what those here have."


class BlobStoreUnavailable(Unavailable):
    code = "blob_store_unavailable"
    default_hint = "Try again in a moment; if it stays away, an admin checks TUNESMITH_BLOB_URL: tunesmith doctor."
    retry_after = 10


class BlobStoreRefused(BlobStoreUnavailable):
    code = "blob_store_refused"
    default_hint = "An admin checks the bucket of TUNESMITH_BLOB_URL, its credentials and what they may do."
    retry_after = 60


class BlobStoreFull(BlobStoreUnavailable):
    code = "blob_store_full"
    default_hint = "An admin frees space: tunesmith gc; the home folder holds the cache of an S3 store too."
    retry_after = 60


class DiskFull(Unavailable):
    code = "disk_full"
    default_hint = "Free some space in the home folder of that worker; its jobs wait, and go on where they stood."


class DeviceBusy(Unavailable):
    code = "device_busy"
    default_hint = "Wait for it to end; two measurements at once would spoil both."


class PlannerBusy(Unavailable):
    code = "planner_busy"
    default_hint = "Ask again in a moment; a job for the same request can be queued meanwhile."
    retry_after = 10


class TrackerUnreachable(Unavailable):
    code = "tracker_unreachable"
    default_hint = "Check that the tracker runs and that workers reach it: python -m tvm.exec.query_rpc_tracker."


class NoDevice(Unavailable):
    code = "no_device"
    default_hint = "Start a TVM RPC server with this key on a device; GET /v1/devices shows which are quarantined."


class DeviceLost(Unavailable):
    code = "device_lost"
    default_hint = "See GET /v1/devices for what was quarantined and why; retry the job when devices are back."


class CrossCompilerMissing(Unavailable):
    code = "cross_compiler_missing"
    default_hint = "Install the target's compiler on the worker (Debian: gcc-aarch64-linux-gnu), or ask for 'object'."


class CompilerMissing(Unavailable):
    code = "compiler_missing"
    default_hint = "Install the CUDA toolkit on the worker, so that nvcc is on its PATH; no GPU is needed to build."


class ConfigurationError(TunesmithError):
    code = "configuration_error"


class DatabaseDamaged(ConfigurationError):
    code = "database_damaged"
    status = 503
    default_hint = (
        "Stop the service and put a backup in the database's place: tunesmith restore (docs/how-to/operations.md)."
    )
    # Longer than clients wait: somebody has to come first.
    retry_after = 300


class ForeignBlobStore(ConfigurationError):
    code = "blob_store_foreign"
    default_hint = "Give each service a folder, or bucket and prefix, of its own; tunesmith gc --adopt takes one over."


def every(kind: type[TunesmithError] = TunesmithError) -> Iterator[type[TunesmithError]]:
    """``kind`` and what is beneath it, in the order of the tree."""
    yield kind
    for child in kind.__subclasses__():
        yield from every(child)
