"""Every error that a caller can see: its code, HTTP status and hint, as one tree.

::

    TunesmithError
    ├── InvalidRequest            the request is wrong; repeating it does not help
    │   ├── InvalidModel              not ONNX, truncated, refused by the checker
    │   ├── UnsupportedOperators      no engine can import the model
    │   ├── ShapeRequired             a dynamic dimension has no value
    │   ├── ShapeMismatch             a given shape does not fit the model
    │   ├── InvalidSizes              several values of a dimension: repeated, or too many
    │   ├── SizesNotSupported         several sizes with a target, runner or format that has one
    │   │   └── SizesNotPlanned
    │   ├── InvalidFrequencies        observed shapes that no size serves, or without effect
    │   ├── InvalidPadding            a value that an input cannot hold, or an input without one
    │   ├── InvalidInputs             arrays that do not fit a bundle's inputs
    │   ├── InvalidDataSet            not an .npz file of rows, or not finite
    │   ├── DataMismatch              a data set that does not fit the model
    │   ├── InvalidBundle             not a bundle, or its digests do not match
    │   ├── UnknownTarget
    │   ├── UnsupportedTarget         a known one, which this tuner, engine or runner cannot serve
    │   ├── UnknownTuner
    │   ├── UnknownPrecision
    │   ├── UnknownRunner
    │   ├── InvalidOption             an option that this tuner, target or runner does not support
    │   ├── InvalidOperator           the description of one operator to tune
    │   ├── InvalidBudget
    │   ├── InvalidPageToken
    │   ├── InvalidWebhook            a URL that webhooks must not call
    │   ├── BlobTooLarge              more bytes than this server accepts
    │   ├── IdempotencyMismatch       the same key came with a different request
    │   └── BodyTooLarge, RangeNotSatisfiable, MethodNotAllowed
    │                                 rejected before routing
    ├── Unauthorized              no valid token
    │   └── TokenExpired
    ├── Forbidden                 a valid token without this permission
    │   └── MissingScope
    ├── TooMuch                   a valid request beyond the caller's limits
    │   ├── RateLimited
    │   └── QuotaExceeded
    ├── NotFound
    │   ├── ModelNotFound
    │   ├── TokenNotFound
    │   ├── JobNotFound
    │   ├── GroupNotFound
    │   ├── ArtifactNotFound
    │   ├── DataSetNotFound
    │   ├── Deleted                   it existed and was deleted
    │   │   ├── ModelDeleted
    │   │   ├── ArtifactDeleted
    │   │   └── DataSetDeleted
    │   ├── BlobNotFound              the stored file of a known object is missing
    │   └── RouteNotFound
    ├── BlobDamaged               a stored file does not match its digest
    ├── Conflict                  a valid request that conflicts with the current state
    │   ├── ModelInUse
    │   ├── DataSetInUse
    │   ├── DataSetNameTaken          the owner has another data set of that name
    │   ├── JobNotFinished
    │   ├── JobAlreadyFinished
    │   └── JobIsPart                 canceled and retried with the job of all sizes
    ├── EngineError               an engine failed the host
    │   ├── EngineNotInstalled
    │   ├── EngineInstallFailed
    │   ├── EngineStartFailed         it sent no hello, or speaks another protocol
    │   ├── EngineCrashed             it exited or was killed
    │   ├── EngineSilent              no heartbeat
    │   ├── EngineTimeout             alive, but past the request's time limit
    │   ├── EngineOutOfMemory         it needed more memory than the stage may use
    │   ├── PlanTimeLimit             no engine made a plan within the server's time limit
    │   ├── EngineGarbled             invalid output: not a message, or too long a line
    │   └── EngineRequestFailed       it answered with an error of its own; ``code`` is the engine's
    ├── JobFailed                 the job's own outcome
    │   ├── VerificationFailed        no variant agrees with the reference
    │   ├── AccuracyNotMet            no build in the precision that was asked for passes the accuracy gate
    │   ├── SizeFailed                one of several sizes could not be tuned
    │   ├── PaddingChangesResults     an input that was declared to be padded cannot be
    │   ├── NoValidTrial              every trial of a tuning task failed
    │   ├── TimeLimit                 the job's total limit was reached before a build was verified
    │   └── AttemptsExhausted         the job's worker crashed or was lost too often
    ├── Unavailable               a part of the service cannot be reached
    │   ├── NotReady                  a part of the service is not ready
    │   ├── BrokerUnavailable
    │   ├── DatabaseUnavailable
    │   ├── NoWorker                  no live worker can run the job, which stays queued
    │   ├── BlobStoreUnavailable      the store of models and artifacts does not answer
    │   │   ├── BlobStoreRefused          it rejects the credentials, permissions or bucket
    │   │   └── BlobStoreFull             no space left in the store or on this host
    │   ├── DiskFull                  no space left on a worker's disk
    │   ├── DeviceBusy
    │   ├── PlannerBusy               the server already makes as many plans as it allows
    │   ├── TrackerUnreachable        the RPC tracker does not answer
    │   ├── NoDevice                  the tracker has no device with that key
    │   ├── DeviceLost                every device of a job stopped answering
    │   ├── CrossCompilerMissing      the worker has no linker for the target
    │   └── CompilerMissing           the worker has no CUDA compiler
    └── ConfigurationError
        ├── DatabaseDamaged           not a database, or corrupt
        └── ForeignBlobStore          the blob store belongs to another database

A class declares its code, its status where that is not its parent's, and its hint. ``code`` is stable: clients branch
on it. ``./run docs`` writes the table of docs/reference/errors.md from these classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class TunesmithError(Exception):
    """Base of all errors; ``details`` contains JSON data for programs, such as operators or near matches."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    """The HTTP status. Errors of engines and jobs mostly appear in a job's failure, which has none."""
    default_hint: ClassVar[str | None] = None
    """Hint of errors that are raised without a more specific one."""
    retry_after: ClassVar[int | None] = None
    """Seconds after which a retry is sensible, if known."""

    def __init__(self, message: str, *, hint: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.details = details or {}


class InvalidRequest(TunesmithError):
    code = "invalid_request"
    status = 400
    default_hint = "Correct the part of the request that the message names; /docs describes every request."


class InvalidModel(InvalidRequest):
    code = "invalid_model"
    status = 422
    default_hint = "Upload one .onnx file that onnx.checker accepts."


class UnsupportedOperators(InvalidRequest):
    code = "unsupported_operators"
    status = 422
    default_hint = (
        "Replace the operators listed in details.operators, use another engine, or add them with a plugin: "
        "docs/how-to/custom-operators.md."
    )


class ShapeRequired(InvalidRequest):
    code = "shape_required"
    default_hint = "Give every dynamic dimension a value, for example --input-shape x:1,3,224,224."


class ShapeMismatch(InvalidRequest):
    code = "shape_mismatch"
    default_hint = "Name an input of the model, and give all its dimensions; fixed ones keep their size."


class InvalidSizes(InvalidRequest):
    code = "invalid_sizes"
    default_hint = "Give each dimension one value or several different ones: --input-shape x:1/4/8,3,224,224."


class SizesNotSupported(InvalidRequest):
    code = "sizes_not_supported"
    default_hint = "Create one job for each size."


class SizesNotPlanned(SizesNotSupported):
    code = "sizes_not_planned"
    default_hint = "Plan one size: give every dimension one value."


class InvalidFrequencies(InvalidRequest):
    code = "invalid_frequencies"
    default_hint = 'Give observed shapes with counts: [{"input_shapes": {"ids": [1, 20]}, "count": 12}].'


class InvalidPadding(InvalidRequest):
    code = "invalid_padding"
    default_hint = "Name inputs of the model with the value that fills them up to the next size: --pad ids=0."


class InvalidInputs(InvalidRequest):
    code = "invalid_inputs"
    default_hint = "Pass an .npz file with one array per input, with the names, shapes and dtypes of manifest.json."


class InvalidDataSet(InvalidRequest):
    code = "invalid_data_set"
    status = 422
    default_hint = "Upload an .npz file with one array per input, the first axis of each being the rows."


class DataMismatch(InvalidRequest):
    code = "data_mismatch"
    default_hint = "The arrays of a data set have the names, dtypes and shapes of the model's inputs."


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
    default_hint = "Use one of details.known, or omit it to let the service choose."


class UnknownPrecision(InvalidRequest):
    code = "unknown_precision"
    default_hint = "Use one of details.known, or omit it for f32."


class UnknownRunner(InvalidRequest):
    code = "unknown_runner"
    default_hint = "Use one of details.known, or omit it to measure on the worker."


class InvalidOption(InvalidRequest):
    code = "invalid_option"
    default_hint = "Remove the option, or choose a tuner and runner that support it."


class InvalidOperator(InvalidRequest):
    code = "invalid_operator"
    default_hint = "Describe one operator with its shapes: 'conv2d x=1,64,56,56 w=64,64,3,3 padding=1'."


class InvalidBudget(InvalidRequest):
    code = "invalid_budget"
    default_hint = "Give a positive number of trials, a positive number of seconds, or both."


class InvalidPageToken(InvalidRequest):
    code = "invalid_page_token"
    default_hint = "Pass next_page_token of the previous page unchanged; omit it for the first page."


class InvalidWebhook(InvalidRequest):
    code = "invalid_webhook"
    default_hint = "Use a public https:// URL; an admin can allow other hosts in TUNESMITH_WEBHOOK_HOSTS."


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
    default_hint = "Send a smaller body; upload models with PUT /v1/models."


class RangeNotSatisfiable(InvalidRequest):
    code = "range_not_satisfiable"
    status = 416
    default_hint = "Request a range within the content, or omit the Range header."


class MethodNotAllowed(InvalidRequest):
    code = "method_not_allowed"
    status = 405
    default_hint = "See /docs for the methods that this path supports."


class Unauthorized(TunesmithError):
    code = "unauthorized"
    status = 401
    default_hint = "Send 'Authorization: Bearer TOKEN'. The server's own token is in server.json or TUNESMITH_TOKEN."


class TokenExpired(Unauthorized):
    code = "token_expired"
    default_hint = "Ask an admin for a new token: tunesmith token create."


class Forbidden(TunesmithError):
    code = "forbidden"
    status = 403
    default_hint = "Ask its owner or an admin."


class MissingScope(Forbidden):
    code = "missing_scope"
    default_hint = "Use a token with this scope. An admin creates one with tunesmith token create --scope."


class TooMuch(TunesmithError):
    code = "too_much"
    status = 429
    default_hint = "Wait, then send fewer or smaller requests."


class RateLimited(TooMuch):
    code = "rate_limited"
    default_hint = "Wait for the time in Retry-After. Follow a job through its event stream instead of polling."


class QuotaExceeded(TooMuch):
    code = "quota_exceeded"
    default_hint = "Wait for jobs to end, or cancel some. An admin can create a token with a larger quota."


class NotFound(TunesmithError):
    code = "not_found"
    status = 404
    default_hint = "Check the id for typing errors. Objects of other owners are reported as not found."


class ModelNotFound(NotFound):
    code = "model_not_found"
    default_hint = "Upload the model first: tunesmith upload FILE."


class TokenNotFound(NotFound):
    code = "token_not_found"
    default_hint = "List the tokens: tunesmith token list."


class JobNotFound(NotFound):
    code = "job_not_found"
    default_hint = "List the jobs: tunesmith jobs."


class GroupNotFound(NotFound):
    code = "group_not_found"
    default_hint = "List the groups: tunesmith groups. tunesmith tune --group creates a job in a group."


class ArtifactNotFound(NotFound):
    code = "artifact_not_found"
    default_hint = "Tune the model for this target first: tunesmith tune MODEL.onnx."


class DataSetNotFound(NotFound):
    code = "data_set_not_found"
    default_hint = "List your data sets: tunesmith data list. To add one: tunesmith data add FILE.npz."


class Deleted(NotFound):
    code = "deleted"
    status = 410
    default_hint = "Upload or tune it again."


class ModelDeleted(Deleted):
    code = "model_deleted"
    default_hint = "Upload the model again: tunesmith upload FILE."


class ArtifactDeleted(Deleted):
    code = "artifact_deleted"
    default_hint = "Tune the model again. Its records are kept, so few trials are needed."


class DataSetDeleted(Deleted):
    code = "data_set_deleted"
    default_hint = "Add the data set again: tunesmith data add FILE.npz."


class BlobNotFound(NotFound):
    code = "blob_not_found"
    default_hint = "The stored file was removed. Upload the model, or tune it, again."


class RouteNotFound(NotFound):
    code = "route_not_found"
    default_hint = "See /docs for every path of this API."


class BlobDamaged(TunesmithError):
    code = "blob_damaged"
    default_hint = "An admin must restore the file from a backup, or delete the model or artifact."


class Conflict(TunesmithError):
    code = "conflict"
    status = 409
    default_hint = "Check its state, and repeat the request once that has changed."


class ModelInUse(Conflict):
    code = "model_in_use"
    default_hint = "Wait for the jobs in details.jobs to end, or cancel them: tunesmith cancel JOB."


class DataSetInUse(Conflict):
    code = "data_set_in_use"
    default_hint = "Wait for the jobs in details.jobs to end, or cancel them: tunesmith cancel JOB."


class DataSetNameTaken(Conflict):
    code = "data_set_name_taken"
    default_hint = "Choose another name, or delete the other data set first: tunesmith data rm NAME."


class JobNotFinished(Conflict):
    code = "job_not_finished"
    default_hint = "Wait for it: tunesmith status JOB --watch."


class JobAlreadyFinished(Conflict):
    code = "job_already_finished"
    default_hint = "There is nothing to cancel. To run a failed or canceled job again: tunesmith retry JOB."


class JobIsPart(Conflict):
    code = "job_is_part"
    default_hint = "Cancel or retry the job of all sizes, which details.job names."


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


class EngineOutOfMemory(EngineError):
    code = "engine_out_of_memory"
    default_hint = (
        "Use smaller inputs or a smaller batch. An admin can raise TUNESMITH_ENGINE_MEMORY_FACTOR and "
        "TUNESMITH_ENGINE_MEMORY_MB."
    )


class PlanTimeLimit(EngineError):
    code = "plan_time_limit"
    status = 422
    default_hint = (
        "Create the job without a plan; budget.total_seconds limits it. An admin can raise TUNESMITH_PLAN_SECONDS."
    )


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


class SizeFailed(JobFailed):
    """One of a job's several sizes could not be tuned."""

    code = "size_failed"
    default_hint = "See the failure of the size's own job, or leave the size out."


class PaddingChangesResults(JobFailed):
    code = "padding_changes_results"
    default_hint = "Leave out --pad: then only the exact sizes are served. Or pad with a value that the model ignores."


class NoValidTrial(JobFailed):
    code = "no_valid_trial"
    default_hint = "Check the job's failure counts; a longer trial timeout or fewer threads may help."


class TimeLimit(JobFailed):
    """A stage reached the job's total limit; the job fails with it if no verified build exists by then."""

    code = "time_limit"
    default_hint = "Allow more time: --max-minutes (budget.total_seconds). The events show where the time went."


class AttemptsExhausted(JobFailed):
    code = "attempts_exhausted"
    default_hint = "The job's worker was lost several times in a row. Check the engine log before you retry."


class Unavailable(TunesmithError):
    code = "unavailable"
    status = 503
    default_hint = "Try again soon. If the error persists, an admin should run tunesmith doctor."


class NotReady(Unavailable):
    code = "not_ready"
    default_hint = "details.checks shows which part is missing; the server's log has the cause."


class BrokerUnavailable(Unavailable):
    code = "broker_unavailable"
    default_hint = "Try again soon. If the error persists, an admin should run tunesmith doctor (TUNESMITH_BROKER_URL)."


class DatabaseUnavailable(Unavailable):
    code = "database_unavailable"
    default_hint = "Run tunesmith doctor: it checks TUNESMITH_DATABASE_URL and reports the cause."
    retry_after = 5


class NoWorker(Unavailable):
    """A warning, not a refusal; ``details.missing`` names the need: worker, device, machine, cpu, engine, tracker."""

    code = "no_worker"
    default_hint = "The job stays queued until a matching worker registers. GET /v1/workers lists the workers."


class BlobStoreUnavailable(Unavailable):
    code = "blob_store_unavailable"
    default_hint = "Try again soon. If the error persists, an admin should run tunesmith doctor (TUNESMITH_BLOB_URL)."
    retry_after = 10


class BlobStoreRefused(BlobStoreUnavailable):
    code = "blob_store_refused"
    default_hint = "An admin must check the bucket in TUNESMITH_BLOB_URL, the credentials and their permissions."
    retry_after = 60


class BlobStoreFull(BlobStoreUnavailable):
    code = "blob_store_full"
    default_hint = "An admin must free space: tunesmith gc. The home folder also holds the cache of an S3 store."
    retry_after = 60


class DiskFull(Unavailable):
    code = "disk_full"
    default_hint = "Free space in that worker's home folder. Its jobs wait and then resume."


class DeviceBusy(Unavailable):
    code = "device_busy"
    default_hint = "Wait for it to end; concurrent measurements would distort each other."


class PlannerBusy(Unavailable):
    code = "planner_busy"
    default_hint = "Try again soon, or create the job without planning it first."
    retry_after = 10


class TrackerUnreachable(Unavailable):
    code = "tracker_unreachable"
    default_hint = "Check that the tracker runs and that workers reach it: python -m tvm.exec.query_rpc_tracker."


class NoDevice(Unavailable):
    code = "no_device"
    default_hint = "Start a TVM RPC server with this key on a device. GET /v1/devices shows quarantined devices."


class DeviceLost(Unavailable):
    code = "device_lost"
    default_hint = "GET /v1/devices shows which devices were quarantined and why. Retry the job when they are back."


class CrossCompilerMissing(Unavailable):
    code = "cross_compiler_missing"
    default_hint = (
        "Install the target's compiler on the worker (Debian: gcc-aarch64-linux-gnu), or use format 'object'."
    )


class CompilerMissing(Unavailable):
    code = "compiler_missing"
    default_hint = "Install the CUDA toolkit on the worker, with nvcc on its PATH. Building needs no GPU."


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
    default_hint = "Give each service its own folder or bucket prefix. To take over this one: tunesmith gc --adopt."


def every(kind: type[TunesmithError] = TunesmithError) -> Iterator[type[TunesmithError]]:
    """``kind`` and what is beneath it, in the order of the tree."""
    yield kind
    for child in kind.__subclasses__():
        yield from every(child)
