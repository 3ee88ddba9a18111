"""What was asked for is not there, is damaged, or is not in a state for it."""

from __future__ import annotations

from domain.errors.base import TunesmithError


class NotFound(TunesmithError):
    code = "not_found"
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


class BlobNotFound(NotFound):
    code = "blob_not_found"
    default_hint = "The stored bytes were removed: upload the model, or tune it, again."


class Deleted(NotFound):
    code = "deleted"
    default_hint = "It does not come back by itself: upload or tune it again."


class ModelDeleted(Deleted):
    code = "model_deleted"
    default_hint = "Upload it again: tunesmith upload FILE."


class ArtifactDeleted(Deleted):
    code = "artifact_deleted"
    default_hint = "Tune the model again: its records are kept, so that few trials are needed."


class BlobDamaged(TunesmithError):
    code = "blob_damaged"
    default_hint = "An admin restores the bytes from a backup, or deletes the model or artifact."


class Conflict(TunesmithError):
    code = "conflict"
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
