"""A part of the service cannot be reached, has no time or no room, or is set up wrongly."""

from __future__ import annotations

from domain.errors.base import TunesmithError


class Unavailable(TunesmithError):
    code = "unavailable"
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


class NoWorker(Unavailable):
    """A warning, not a refusal; ``details.missing`` names the need: worker, device, machine, cpu, engine, tracker."""

    code = "no_worker"
    default_hint = "The job is kept and taken when such a worker comes; GET /v1/workers shows what those here have."


class BlobStoreUnavailable(Unavailable):
    code = "blob_store_unavailable"
    default_hint = "Try again in a moment; if it stays away, an admin checks TUNESMITH_BLOB_URL: tunesmith doctor."


class BlobStoreRefused(BlobStoreUnavailable):
    code = "blob_store_refused"
    default_hint = "An admin checks the bucket of TUNESMITH_BLOB_URL, its credentials and what they may do."


class BlobStoreFull(BlobStoreUnavailable):
    code = "blob_store_full"
    default_hint = "An admin frees space: tunesmith gc; the home folder holds the cache of an S3 store too."


class DiskFull(Unavailable):
    code = "disk_full"
    default_hint = "Free some space in the home folder of that worker; its jobs wait, and go on where they stood."


class DeviceBusy(Unavailable):
    code = "device_busy"
    default_hint = "Wait for it to end; two measurements at once would spoil both."


class PlannerBusy(Unavailable):
    code = "planner_busy"
    default_hint = "Ask again in a moment; a job for the same request can be queued meanwhile."


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
    default_hint = "Stop the service and put a backup in the database's place: tunesmith restore (docs/operations.md)."


class ForeignBlobStore(ConfigurationError):
    code = "blob_store_foreign"
    default_hint = "Give each service a folder, or bucket and prefix, of its own; tunesmith gc --adopt takes one over."
