"""How well engines, which work on models of strangers, are kept from everything else on this host."""

from __future__ import annotations

from tuner.cage import probing
from worker.doctor import findings
from worker.doctor.findings import Finding

CHECK = "cage"
_HINT = "docs/threat-model.md says what takes the place of each, and what a container must allow."


def check() -> list[Finding]:
    strength = probing.probe()
    if strength.missing:
        return [findings.warn(CHECK, "cage_weak", strength.told(), _HINT)]
    return [findings.ok(CHECK, strength.told())]
