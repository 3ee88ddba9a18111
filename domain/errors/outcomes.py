"""How a job fails."""

from __future__ import annotations

from domain.errors.base import TunesmithError


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
