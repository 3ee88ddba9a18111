"""Every error that a caller can see, as one tree.

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
    │   └── IdempotencyMismatch       the same key came with a different request
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
    │   └── BlobNotFound              the bytes of something known are gone
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

``code`` is stable: clients branch on it. ``hint`` says what to do. HTTP statuses are known only to the API.
"""

from __future__ import annotations

from domain.errors.base import (
    TunesmithError,
)
from domain.errors.callers import (
    Forbidden,
    MissingScope,
    QuotaExceeded,
    RateLimited,
    TokenExpired,
    TooMuch,
    Unauthorized,
)
from domain.errors.engines import (
    EngineCrashed,
    EngineError,
    EngineGarbled,
    EngineInstallFailed,
    EngineNotInstalled,
    EngineRequestFailed,
    EngineSilent,
    EngineStartFailed,
    EngineTimeout,
)
from domain.errors.outages import (
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
    BrokerUnavailable,
    CompilerMissing,
    ConfigurationError,
    CrossCompilerMissing,
    DatabaseDamaged,
    DatabaseUnavailable,
    DeviceBusy,
    DeviceLost,
    DiskFull,
    ForeignBlobStore,
    NoDevice,
    NotReady,
    NoWorker,
    PlannerBusy,
    TrackerUnreachable,
    Unavailable,
)
from domain.errors.outcomes import (
    AccuracyNotMet,
    AttemptsExhausted,
    JobFailed,
    NoValidTrial,
    VerificationFailed,
)
from domain.errors.requests import (
    BlobTooLarge,
    IdempotencyMismatch,
    InvalidBudget,
    InvalidBundle,
    InvalidInputs,
    InvalidModel,
    InvalidOperator,
    InvalidOption,
    InvalidPageToken,
    InvalidRequest,
    InvalidWebhook,
    ShapeMismatch,
    ShapeRequired,
    UnknownPrecision,
    UnknownRunner,
    UnknownTarget,
    UnknownTuner,
    UnsupportedOperators,
    UnsupportedTarget,
)
from domain.errors.stored import (
    ArtifactDeleted,
    ArtifactNotFound,
    BlobDamaged,
    BlobNotFound,
    Conflict,
    Deleted,
    GroupNotFound,
    JobAlreadyFinished,
    JobNotFinished,
    JobNotFound,
    ModelDeleted,
    ModelInUse,
    ModelNotFound,
    NotFound,
    TokenNotFound,
)

__all__ = [
    "AccuracyNotMet",
    "ArtifactDeleted",
    "ArtifactNotFound",
    "AttemptsExhausted",
    "BlobDamaged",
    "BlobNotFound",
    "BlobStoreFull",
    "BlobStoreRefused",
    "BlobStoreUnavailable",
    "BlobTooLarge",
    "BrokerUnavailable",
    "CompilerMissing",
    "ConfigurationError",
    "Conflict",
    "CrossCompilerMissing",
    "DatabaseDamaged",
    "DatabaseUnavailable",
    "Deleted",
    "DeviceBusy",
    "DeviceLost",
    "DiskFull",
    "EngineCrashed",
    "EngineError",
    "EngineGarbled",
    "EngineInstallFailed",
    "EngineNotInstalled",
    "EngineRequestFailed",
    "EngineSilent",
    "EngineStartFailed",
    "EngineTimeout",
    "Forbidden",
    "ForeignBlobStore",
    "GroupNotFound",
    "IdempotencyMismatch",
    "InvalidBudget",
    "InvalidBundle",
    "InvalidInputs",
    "InvalidModel",
    "InvalidOperator",
    "InvalidOption",
    "InvalidPageToken",
    "InvalidRequest",
    "InvalidWebhook",
    "JobAlreadyFinished",
    "JobFailed",
    "JobNotFinished",
    "JobNotFound",
    "MissingScope",
    "ModelDeleted",
    "ModelInUse",
    "ModelNotFound",
    "NoDevice",
    "NoValidTrial",
    "NoWorker",
    "NotFound",
    "NotReady",
    "PlannerBusy",
    "QuotaExceeded",
    "RateLimited",
    "ShapeMismatch",
    "ShapeRequired",
    "TokenExpired",
    "TokenNotFound",
    "TooMuch",
    "TrackerUnreachable",
    "TunesmithError",
    "Unauthorized",
    "Unavailable",
    "UnknownPrecision",
    "UnknownRunner",
    "UnknownTarget",
    "UnknownTuner",
    "UnsupportedOperators",
    "UnsupportedTarget",
    "VerificationFailed",
]
