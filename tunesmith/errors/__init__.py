"""Every error that the client raises, as one tree.

::

    TunesmithError
    ├── ConfigurationError        a setting is wrong or missing
    │   ├── DatabaseDamaged           the file is no database, or not whole
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

from tunesmith.errors.base import (
    TunesmithError,
)
from tunesmith.errors.local import (
    ArtifactMissing,
    ArtifactSlower,
    InvalidInput,
    LockNotKept,
    NotLocked,
    unreadable,
)
from tunesmith.errors.network import (
    BlobDamaged,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
    BrokerUnavailable,
    CompilerMissing,
    CrossCompilerMissing,
    DatabaseUnavailable,
    DeviceBusy,
    DeviceLost,
    DiskFull,
    EngineCrashed,
    EngineError,
    EngineGarbled,
    EngineInstallFailed,
    EngineNotInstalled,
    EngineRequestFailed,
    EngineSilent,
    EngineStartFailed,
    EngineTimeout,
    InternalError,
    NetworkError,
    NoDevice,
    NotReady,
    NoWorker,
    PlannerBusy,
    ServerError,
    ServerUnreachable,
    TrackerUnreachable,
    Unavailable,
)
from tunesmith.errors.outcomes import (
    AccuracyNotMet,
    AttemptsExhausted,
    JobCanceled,
    JobFailed,
    JobNotSucceeded,
    NoValidTrial,
    VerificationFailed,
)
from tunesmith.errors.requests import (
    ArtifactDeleted,
    ArtifactNotFound,
    BlobNotFound,
    BlobTooLarge,
    BodyTooLarge,
    Conflict,
    Deleted,
    GroupNotFound,
    HeadersTooLarge,
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
    JobAlreadyFinished,
    JobNotFinished,
    JobNotFound,
    MethodNotAllowed,
    ModelDeleted,
    ModelInUse,
    ModelNotFound,
    NotFound,
    QuotaExceeded,
    RangeNotSatisfiable,
    RateLimited,
    RequestRejected,
    RequestTimeout,
    RouteNotFound,
    ShapeMismatch,
    ShapeRequired,
    TokenNotFound,
    TooMuch,
    UnknownPrecision,
    UnknownRunner,
    UnknownTarget,
    UnknownTuner,
    UnsupportedOperators,
    UnsupportedTarget,
)
from tunesmith.errors.settings import (
    ConfigurationError,
    DatabaseDamaged,
    Forbidden,
    ForeignBlobStore,
    MissingScope,
    TokenExpired,
    Unauthorized,
)

__all__ = [
    "AccuracyNotMet",
    "ArtifactDeleted",
    "ArtifactMissing",
    "ArtifactNotFound",
    "ArtifactSlower",
    "AttemptsExhausted",
    "BlobDamaged",
    "BlobNotFound",
    "BlobStoreFull",
    "BlobStoreRefused",
    "BlobStoreUnavailable",
    "BlobTooLarge",
    "BodyTooLarge",
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
    "HeadersTooLarge",
    "IdempotencyMismatch",
    "InternalError",
    "InvalidBudget",
    "InvalidBundle",
    "InvalidInput",
    "InvalidInputs",
    "InvalidModel",
    "InvalidOperator",
    "InvalidOption",
    "InvalidPageToken",
    "InvalidRequest",
    "InvalidWebhook",
    "JobAlreadyFinished",
    "JobCanceled",
    "JobFailed",
    "JobNotFinished",
    "JobNotFound",
    "JobNotSucceeded",
    "LockNotKept",
    "MethodNotAllowed",
    "MissingScope",
    "ModelDeleted",
    "ModelInUse",
    "ModelNotFound",
    "NetworkError",
    "NoDevice",
    "NoValidTrial",
    "NoWorker",
    "NotFound",
    "NotLocked",
    "NotReady",
    "PlannerBusy",
    "QuotaExceeded",
    "RangeNotSatisfiable",
    "RateLimited",
    "RequestRejected",
    "RequestTimeout",
    "RouteNotFound",
    "ServerError",
    "ServerUnreachable",
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
    "unreadable",
]
