"""No server answers, or it answers that it cannot."""

from __future__ import annotations

from tunesmith.errors.base import TunesmithError


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
