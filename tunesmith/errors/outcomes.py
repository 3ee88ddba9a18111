"""How a job ends that does not succeed."""

from __future__ import annotations

from tunesmith.errors.base import TunesmithError


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
