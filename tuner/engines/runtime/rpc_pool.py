"""RPC session pool: runs calls in parallel on the devices of one key behind an RPC tracker.

A device is *lost* for the rest of the engine session if it leaves the tracker while it works for us, does not come
back, cannot run a small library built like the candidates (the probe), or returns a wrong result for it. Its call is
then repeated on another device. After a failed call a device is a *suspect* and must first pass the probe again.

A call that exceeds its time limit may mean a slow candidate or a dead device. Its verdict waits until the device
answers, or until another device with nothing else to do has the same problem. A call that lost two devices is not tried
on a third.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import processes
from tuner.engines.runtime.trackers import DeviceOffer, Ticket, Tracker, TrackerSilent
from tuner.engines.runtime.trials import Runner

OPEN_SECONDS = 20.0
"""Time limit, in seconds, for connecting to an assigned device and probing it."""
_OVERTIME_SECONDS = 15.0
"""Time, in seconds, that a session may take to report its end after its timeout."""


class Ended(StrEnum):
    """How a call in a session ended, as reported by the child process or inferred from its silence."""

    OK = "ok"
    RAISED = "raised"  # the device reported an error; the session continues
    EXPIRED = "expired"  # the device ended the session at its timeout
    LOST = "lost"  # the connection broke, or the device does not answer
    STALE = "stale"  # the device was assigned to another client, or is registering again
    WRONG_DEVICE = "wrong_device"  # it cannot run code built for this target
    WRONG_ANSWER = "wrong_answer"  # it computes a wrong result
    REFUSED = "refused"  # the request is invalid; the value is an EngineFailure's data
    OVERTIME = "overtime"  # still running; another end follows


_OTHER_RELEASE = "pending_request_bytes_"
"""Part of TVM's error for the first call to a server whose protocol is another release's."""


def explained(ended: Ended, message: str) -> tuple[Ended, str]:
    """Replace TVM's message for a failed opening by an explanation, where the cause is known."""
    if _OTHER_RELEASE in message:
        return Ended.WRONG_DEVICE, "its TVM release is incompatible with the engine's"
    return ended, message


class SlotState(StrEnum):
    IDLE = "idle"
    QUEUED = "queued"  # waiting in the tracker's queue
    OPENING = "opening"
    READY = "ready"  # holds a session
    RUNNING = "running"
    OVERDUE = "overdue"  # its call exceeded the time limit
    CLOSING = "closing"


@dataclass(kw_only=True)
class Call:
    """A function call to make on a device."""

    position: int
    function: str
    arguments: Sequence[Any]
    timeout: float
    """Seconds from the start of the call."""
    lost_on: list[str] = field(default_factory=list)
    """Devices that were lost while they ran it, or that could not be opened for it."""
    lost_as: Ended = field(default_factory=lambda: Ended.LOST)
    ran_on: list[str] = field(default_factory=list)
    """Those of these devices that ran it."""
    overdue_on: str | None = None


class Slot:
    """A child process that opens sessions on devices, one at a time, and makes calls in them.

    A slot makes no decisions: the pool controls it and polls it. Besides the functions that calls name, the child's
    module provides ``open_session(host, port, match_key, session_timeout, threads, probe)``, where ``probe`` is None or
    the path of a library that the device must load, run and compute correctly, and ``close_session()``. Both return
    ``(Ended, message)``; calls return ``(Ended, value or message)``.
    """

    def __init__(self, child: processes.Child) -> None:
        self._child = child
        self.state = SlotState.IDLE
        self.ticket: Ticket | None = None
        self.offer: DeviceOffer | None = None
        self.call: Call | None = None
        self.rests_until = 0.0
        self._ends_at = 0.0

    @property
    def device(self) -> str:
        return self.offer.device if self.offer else ""

    @property
    def is_busy(self) -> bool:
        return self.state in (SlotState.OPENING, SlotState.RUNNING, SlotState.OVERDUE, SlotState.CLOSING)

    @property
    def has_session(self) -> bool:
        return self.state in (SlotState.READY, SlotState.RUNNING, SlotState.OVERDUE)

    @property
    def session_seconds(self) -> float:
        """Seconds left before the session times out."""
        return max(0.0, self._ends_at - time.monotonic())

    @property
    def waits_for(self) -> Any:
        """Object to wait on until there is something to do, or None."""
        return self.ticket if self.state is SlotState.QUEUED else self._child.connection if self.is_busy else None

    @property
    def wait_seconds(self) -> float:
        """Seconds after which to poll in any case."""
        if self.is_busy:
            return self._child.remaining
        return float("inf") if self.state is SlotState.QUEUED else max(0.0, self.rests_until - time.monotonic())

    def start(self) -> None:
        self._child.start()

    def ask(self, function: str, arguments: Sequence[Any], timeout: float) -> tuple[Ended, Any]:
        """Call a function that needs no session, and wait for its result."""
        self._child.submit(function, arguments, timeout)
        return _meaning(self._child.fetch())

    def enqueue(self, ticket: Ticket) -> None:
        self.ticket, self.state = ticket, SlotState.QUEUED

    def leave_queue(self) -> None:
        if self.ticket:
            self.ticket.close()
        self.ticket, self.state = None, SlotState.IDLE

    def take(self) -> None:
        """Leave the queue but keep the offered device."""
        if self.ticket:
            self.ticket.leave()
        self.ticket, self.state = None, SlotState.IDLE

    def rest(self, seconds: float) -> None:
        self.rests_until = time.monotonic() + seconds

    def open(self, offer: DeviceOffer, session_timeout: float, threads: int, probe: str | None) -> None:
        self.take()
        self.offer, self.state = offer, SlotState.OPENING
        self._ends_at = time.monotonic() + session_timeout
        place = (offer.host, offer.port, offer.match_key)
        self._child.submit("open_session", (*place, session_timeout, threads, probe), OPEN_SECONDS)

    def run(self, call: Call) -> None:
        self.call, self.state = call, SlotState.RUNNING
        self._child.submit(call.function, call.arguments, call.timeout)

    def close(self) -> None:
        self.state = SlotState.CLOSING
        self._child.submit("close_session", (), OPEN_SECONDS)

    def look(self) -> tuple[Ended, Any] | None:
        """Return how the current operation ended; None if it is still running or its end does not matter."""
        if not self._child.has_answered():
            if not self._child.is_due():
                return None
            if self.state is SlotState.RUNNING:
                # The device ends the session itself. Closing the connection would not free it any sooner.
                self.state = SlotState.OVERDUE
                self._child.allow(self.session_seconds + _OVERTIME_SECONDS)
                return Ended.OVERTIME, f"not done within {self.call.timeout if self.call else 0:g} s"
        before, (ended, value) = self.state, _meaning(self._child.fetch())
        goes_on = ended is Ended.OK or (before is not SlotState.OPENING and ended in (Ended.RAISED, Ended.REFUSED))
        self.state = SlotState.READY if goes_on and before is not SlotState.CLOSING else SlotState.IDLE
        return None if before is SlotState.CLOSING else (ended, value)

    def kill(self) -> None:
        self.leave_queue()
        self._child.kill()
        self.call, self.state = None, SlotState.IDLE


def _meaning(outcome: processes.Outcome) -> tuple[Ended, Any]:
    if isinstance(outcome.error, processes.ChildRaised):
        return Ended.RAISED, str(outcome.error)
    if outcome.error is not None:
        return Ended.LOST, f"no response: {outcome.error}"
    ended, value = outcome.value
    return Ended(ended), value


_LOOK_SECONDS = 2.0
_LOOK_SOON_SECONDS = 0.25
_GRACE_SECONDS = 8.0
"""Seconds for which a tracker or its last device may be away; TVM's servers register again after 5 s."""
_REST_SECONDS = 1.0
_COMEBACK_SECONDS = 20.0
_AWAY_SECONDS = 600.0
"""Seconds after which a silent device that may be in another client's session counts as lost."""
_MOST_SLOTS = 32
"""Each slot is a process of 200 MB."""
_MOST_LOSSES = 2
_PROBE_SECONDS = 60.0
_MISFIT = (
    "Set the target of the devices (-mtriple, -mcpu), and start their RPC servers with the TVM release of the tuner: "
    "0.19 for autotvm and ansor, 0.27 for metaschedule."
)
_CODES = {"device_lost": "device_lost", "wrong_device": "no_device"}


@dataclass(frozen=True, kw_only=True)
class CallResult:
    call: Call
    device: str
    error: str | None = None
    """A ``domain.records.TrialError`` value or ``refused``, explained by ``value``."""
    value: Any = None


def _timed_out(call: Call, device: str) -> CallResult:
    return CallResult(call=call, device=device, error="run_timeout", value=f"not done within {call.timeout:g} s")


def _at_fault(call: Call, reason: str) -> CallResult:
    text = f"the session ended while it ran, on {' and on '.join(call.ran_on)}: {reason}"
    return CallResult(call=call, device=call.ran_on[-1], error="run_error", value=text)


@dataclass(kw_only=True)
class Suspect:
    """A device whose last call failed. Times are those of ``time.monotonic``."""

    offer: DeviceOffer
    reason: str
    since: float
    check_at: float
    """Time by which it should be back."""
    failed_opens: int = 0
    overdue: list[Call]
    """Calls that exceeded their time limit there and await a verdict."""


class SessionPool:
    """A pool of sessions on devices, each in a child process as described in ``Slot``.

    The constructor, ``look`` and ``advance`` raise EngineFailure ``tracker_unreachable``, ``no_device`` or
    ``device_lost``.
    """

    def __init__(
        self, runner: Runner, make_child: Callable[[], processes.Child], *, most_slots: int = _MOST_SLOTS
    ) -> None:
        self.runner = runner
        self._make_child = make_child
        self._most_slots = most_slots
        self._slots: list[Slot] = []
        self._pending: list[Call] = []
        self._lost: dict[str, str] = {}
        self.avoid: frozenset[str] = frozenset()
        """Quarantined devices, used only if there are no others."""
        self._misfits: set[str] = set()
        self._suspects: dict[str, Suspect] = {}
        self._proven: set[str] = set()
        self._servers: set[str] = set()
        self._seen_at: float | None = None
        self._next_look = 0.0
        self.on_device: Callable[[Json], None] = lambda _: None
        self.cooldown_seconds = 0.0
        """Pause of a device between calls, in seconds."""
        self._probe: str | None = None
        self._probes: dict[tuple[str, int], bytes] = {}
        self._threads = 1
        try:
            self._tracker = Tracker(runner.tracker)
        except TrackerSilent as error:
            raise _unreachable(runner, error) from error

    @property
    def size(self) -> int:
        """Number of working devices, free and busy, as far as known; at least one."""
        return max(1, min(self._most_slots, len(self._usable)))

    @property
    def _usable(self) -> set[str]:
        alive = self._servers - set(self._lost)
        return alive - self.avoid or alive

    def look(self) -> None:
        """Query the tracker for its devices now."""
        self._next_look = 0.0
        self._look()

    def start(self) -> None:
        """Start a process for each device, without waiting."""
        while len(self._slots) < self.size:
            self._slots.append(Slot(self._make_child()))
        for slot in self._slots:
            slot.start()

    def make_probe(self, target: str, threads: int, path: Path) -> None:
        """Build a probe for ``target`` at ``path``, which every new device must pass.

        Raises EngineFailure ``unknown_target``, ``cross_compiler_missing`` or ``compile_failed`` if it cannot be built.
        """
        self.start()
        made = self._probes.get((target, threads))
        if made is None:
            ended, value = self._slots[0].ask("build_probe", (target, threads, str(path)), _PROBE_SECONDS)
            if ended is Ended.REFUSED:
                raise EngineFailure(**value)
            if ended is not Ended.OK:
                raise EngineFailure("compile_failed", f"cannot build for {target!r}: {value}"[:2000])
            made = self._probes[target, threads] = path.read_bytes()
            self._proven.clear()
        path.write_bytes(made)
        self._probe, self._threads = str(path), threads

    def submit(self, call: Call) -> None:
        self._pending.append(call)

    @property
    def waits_for(self) -> list[Any]:
        """Objects to wait on; one becomes readable when ``advance`` has something to do."""
        return [each for slot in self._slots if (each := slot.waits_for) is not None]

    @property
    def wait_seconds(self) -> float:
        """Seconds after which to call ``advance`` in any case."""
        look = max(0.0, self._next_look - time.monotonic())
        return min([look, *(slot.wait_seconds for slot in self._slots if slot.is_busy or self._wants(slot))])

    @property
    def is_in_queue(self) -> bool:
        """Whether the pool is waiting for devices in use by other clients and holds none itself."""
        return any(slot.state is SlotState.QUEUED for slot in self._slots) and not any(
            slot.is_busy or slot.has_session for slot in self._slots
        )

    def advance(self) -> list[CallResult]:
        """Make progress without blocking; return the calls that have ended."""
        answers: list[CallResult] = []
        for slot in self._slots:
            before = slot.state
            if slot.is_busy and (ended := slot.look()) is not None:
                answers += self._after(slot, before, *ended)
        try:
            self._look()
        except EngineFailure:
            answers += [*self._convict(), *self._abandon()]
            if not answers:
                raise
            self._next_look = 0.0
        answers += self._convict()
        self.start()
        for slot in self._slots:
            self._go_on(slot)
        return answers

    def release(self) -> None:
        """Return all devices and drop unfinished calls; busy slots are killed."""
        self._pending.clear()
        for slot in self._slots:
            if slot.state is SlotState.QUEUED:
                slot.leave_queue()
            elif slot.state is SlotState.READY:
                slot.close()
            elif slot.is_busy and slot.state is not SlotState.CLOSING:
                slot.kill()
        while any(slot.state is SlotState.CLOSING for slot in self._slots):
            for slot in self._slots:
                if slot.state is SlotState.CLOSING and slot.look() is None:
                    time.sleep(0.005)
        for suspect in self._suspects.values():
            suspect.overdue.clear()

    def close(self) -> None:
        for slot in self._slots:
            slot.kill()
        self._slots.clear()

    # State transitions of slots

    def _go_on(self, slot: Slot) -> None:
        if slot.state is SlotState.QUEUED:
            self._poll(slot)
        elif slot.state is SlotState.READY and slot.wait_seconds == 0:
            call = self._next_call(slot)
            if call is not None and self._is_worn(slot, call):
                self._pending.insert(0, call)
                slot.close()
            elif call is not None:
                slot.run(call)
        elif self._wants(slot) and slot.wait_seconds == 0:
            self._enqueue(slot)

    def _wants(self, slot: Slot) -> bool:
        """Whether an idle slot should queue: there are more open calls than slots on their way to a device."""
        if slot.state is not SlotState.IDLE:
            return False
        coming = sum(each.state in (SlotState.QUEUED, SlotState.OPENING, SlotState.READY) for each in self._slots)
        return coming < self._open_calls

    @property
    def _open_calls(self) -> int:
        """Number of calls that wait for a device or for a verdict."""
        return len(self._pending) + sum(len(each.overdue) for each in self._suspects.values())

    def _enqueue(self, slot: Slot) -> None:
        try:
            slot.enqueue(self._tracker.queue(self.runner.key))
        except TrackerSilent:
            slot.rest(_REST_SECONDS)
            self._look_soon()

    def _poll(self, slot: Slot) -> None:
        try:
            offer = slot.ticket.poll() if slot.ticket else None
        except TrackerSilent:
            slot.leave_queue()
            slot.rest(_REST_SECONDS)
            self._look_soon()
            return
        if offer is None:
            if not self._open_calls:
                slot.leave_queue()
            return
        if offer.device in self._lost or (offer.device in self.avoid and offer.device not in self._usable):
            slot.take()
            offer.give_back()
            slot.rest(_REST_SECONDS)
            return
        unproven = offer.device in self._suspects or offer.device not in self._proven
        slot.open(offer, self.runner.session_timeout, self._threads, self._probe if unproven else None)

    def _next_call(self, slot: Slot) -> Call | None:
        if self._pending:
            return self._pending.pop(0)
        for suspect in self._suspects.values():
            for call in suspect.overdue:
                if call.overdue_on != slot.device:
                    # Nothing else to do: try the call on a second device.
                    suspect.overdue.remove(call)
                    return call
        return None

    def _is_worn(self, slot: Slot, call: Call) -> bool:
        """Return whether the session may end before the call does; a new session is as long as any can be."""
        used = self.runner.session_timeout - slot.session_seconds
        return used > 1.0 and slot.session_seconds < call.timeout

    # Handling of results

    def _after(self, slot: Slot, before: SlotState, ended: Ended, value: Any) -> list[CallResult]:
        call, device = slot.call, slot.device
        if call is None or before is SlotState.OPENING:
            return self._after_opening(slot, ended, str(value))
        if ended is Ended.OVERTIME:
            return self._overdue(slot, call, str(value))
        slot.call = None
        if slot.state is SlotState.READY:
            slot.rest(self.cooldown_seconds)
        if before is SlotState.OVERDUE:
            return self._after_overtime(slot, ended, str(value))
        if ended is Ended.OK:
            return [CallResult(call=call, device=device, value=value)]
        if ended is Ended.REFUSED:
            return [CallResult(call=call, device=device, error="refused", value=value)]
        if ended is Ended.RAISED:
            self._suspect(slot, "a call failed")
            slot.close()
            return [CallResult(call=call, device=device, error="run_error", value=value)]
        if ended is Ended.EXPIRED:
            return self._overdue(slot, call, str(value))
        return self._broken(slot, call, str(value))

    def _after_opening(self, slot: Slot, ended: Ended, message: str) -> list[CallResult]:
        device = slot.device
        if ended is Ended.OK:
            self._proven.add(device)
            suspect = self._suspects.pop(device, None)
            return [_timed_out(call, device) for call in (suspect.overdue if suspect else [])]
        slot.rest(_REST_SECONDS)
        if ended is Ended.STALE:
            return []
        ended, message = explained(ended, message)
        suspect = self._suspect(slot, message)
        suspect.failed_opens += 1
        self._look_soon()
        if ended in (Ended.WRONG_DEVICE, Ended.WRONG_ANSWER) or suspect.failed_opens > 1:
            if ended is Ended.WRONG_DEVICE:
                self._misfits.add(device)
            for call in self._pending[:1]:
                call.lost_on.append(device)
                call.lost_as = ended
            self._lose(device, message)
        return []

    def _overdue(self, slot: Slot, call: Call, message: str) -> list[CallResult]:
        """Handle an overdue call: the candidate is at fault if the device lives or a second one times out."""
        suspect = self._suspect(slot, message)
        if slot.state is not SlotState.OVERDUE:
            slot.call = None
        if call.overdue_on not in (None, slot.device):
            return [_timed_out(call, slot.device)]
        call.overdue_on = slot.device
        suspect.overdue.append(call)
        return []

    def _after_overtime(self, slot: Slot, ended: Ended, message: str) -> list[CallResult]:
        """Handle the late end of a call that was already reported or awaits a verdict."""
        if ended in (Ended.OK, Ended.RAISED, Ended.REFUSED):
            suspect = self._suspects.pop(slot.device, None)
            return [_timed_out(each, slot.device) for each in (suspect.overdue if suspect else [])]
        if ended is Ended.LOST:
            self._suspect(slot, message)
            self._look_soon()
        return []

    def _broken(self, slot: Slot, call: Call, message: str) -> list[CallResult]:
        self._suspect(slot, message)
        self._look_soon()
        call.lost_on.append(slot.device)
        call.ran_on.append(slot.device)
        if len(call.ran_on) >= _MOST_LOSSES:
            return [_at_fault(call, message)]
        self._pending.insert(0, call)
        return []

    def _convict(self) -> list[CallResult]:
        """Return the pending calls that were running when two devices were lost: they are at fault."""
        guilty = [call for call in self._pending if len(call.ran_on) >= _MOST_LOSSES]
        self._pending = [call for call in self._pending if len(call.ran_on) < _MOST_LOSSES]
        return [_at_fault(call, self._lost[call.ran_on[-1]]) for call in guilty]

    def _abandon(self) -> list[CallResult]:
        """Return the calls that were running when the last device was lost; none of them is at fault."""
        doomed = [call for call in self._pending if call.lost_on]
        self._pending = [call for call in self._pending if not call.lost_on]
        return [
            CallResult(
                call=call,
                device=call.lost_on[-1],
                error="wrong_device" if call.lost_as is Ended.WRONG_DEVICE else "device_lost",
                value=self._lost.get(call.lost_on[-1], "the device was lost"),
            )
            for call in doomed
        ]

    # Device tracking

    def _suspect(self, slot: Slot, reason: str) -> Suspect:
        assert slot.offer is not None  # noqa: S101 - a slot in a session has one
        now = time.monotonic()
        back = now + self.runner.session_timeout + _COMEBACK_SECONDS
        fresh = Suspect(offer=slot.offer, reason=reason, since=now, check_at=back, overdue=[])
        return self._suspects.setdefault(slot.device, fresh)

    def _lose(self, device: str, reason: str) -> None:
        suspect = self._suspects.pop(device, None)
        self._lost[device] = reason
        for slot in self._slots:
            if slot.device == device and slot.state is SlotState.OVERDUE:
                slot.kill()
        for call in suspect.overdue if suspect else []:
            call.overdue_on = None
            call.lost_on.append(device)
            call.ran_on.append(device)
            self._pending.insert(0, call)
        self.on_device({"device": device, "state": "lost", "message": reason})

    def _look_soon(self) -> None:
        self._next_look = min(self._next_look, time.monotonic() + _LOOK_SOON_SECONDS)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        try:
            devices = self._tracker.devices()
        except TrackerSilent as error:
            if self._seen_at is None or now - self._seen_at > _GRACE_SECONDS:
                raise _unreachable(self.runner, error) from error
            self._next_look = now + _LOOK_SOON_SECONDS
            return
        self._servers = devices.get(self.runner.key, set())
        self._next_look = now + (_LOOK_SOON_SECONDS if self._suspects else _LOOK_SECONDS)
        for device, suspect in list(self._suspects.items()):
            self._judge(device, suspect, now)
        alive = self._servers - set(self._lost)
        if alive or any(slot.has_session for slot in self._slots):
            self._seen_at = now
        elif self._seen_at is None or self._servers or now - self._seen_at > _GRACE_SECONDS:
            raise _no_device_left(self.runner, self._lost, self._misfits, devices)

    def _judge(self, device: str, suspect: Suspect, now: float) -> None:
        if device not in self._servers:
            self._lose(device, f"it is no longer at the tracker: {suspect.reason}")
        elif now > suspect.check_at:
            suspect.check_at = now + _COMEBACK_SECONDS
            if now - suspect.since > self.runner.session_timeout + _AWAY_SECONDS or not suspect.offer.is_reachable():
                self._lose(device, f"it did not come back: {suspect.reason}")


def _unreachable(runner: Runner, error: TrackerSilent) -> EngineFailure:
    return EngineFailure(
        "tracker_unreachable",
        f"the RPC tracker {runner.tracker} does not respond: {error}",
        hint="Start it (python -m tvm.exec.rpc_tracker), and set its address as HOST:PORT.",
    )


def _no_device_left(
    runner: Runner, lost: Mapping[str, str], misfits: Set[str], devices: Mapping[str, Set[str]]
) -> EngineFailure:
    """Return the failure of a pool without devices.

    ``lost`` maps devices to reasons; ``misfits`` are the lost devices that cannot run code for the target; ``devices``
    are those known to the tracker, by key.
    """
    if not lost:
        return EngineFailure(
            "no_device",
            f"the RPC tracker {runner.tracker} has no device of key {runner.key!r}; "
            f"its keys: {', '.join(sorted(devices)) or 'none'}",
            hint=f"Start a server on the device: python -m tvm.exec.rpc_server --tracker {runner.tracker} "
            f"--key {runner.key}",
            details={"keys": sorted(devices)},
        )
    reasons = "; ".join(f"{device}: {reason}" for device, reason in lost.items())
    details = {"devices": dict(lost)}
    if misfits >= set(lost):
        return EngineFailure(
            "no_device",
            f"no device of key {runner.key!r} can run code for the target: {reasons}"[:2000],
            hint=_MISFIT,
            details=details,
        )
    return EngineFailure(
        "device_lost",
        f"all devices of key {runner.key!r} were lost: {reasons}"[:2000],
        hint="Check the devices, restart their RPC servers, and retry the job; finished trials are kept.",
        details=details,
    )


class Remote:
    """Sessions that run one bundle at a time, in child processes as described in ``Slot``.

    The child's module provides ``run_remotely(bundle, inputs, outputs, repeat, number)``, which returns the result of
    ``run``.
    """

    def __init__(self, make_child: Callable[[], processes.Child]) -> None:
        self._make_child = make_child
        self._pools: dict[Runner, SessionPool] = {}

    def run(self, params: Json, runner: Runner) -> Json:
        """Answer a ``run`` or ``time`` request.

        Waits for a device for as long as it takes. Raises EngineFailure ``tracker_unreachable``, ``no_device``,
        ``device_lost``, ``run_failed``, and those of the bundle and its inputs.
        """
        pool = self._pool(runner)
        counts = (params.get("repeat"), params.get("number") or 1)
        arguments = (params["bundle"], params.get("inputs"), params.get("outputs"), *counts)
        call = Call(position=0, function="run_remotely", arguments=arguments, timeout=runner.session_timeout)
        with tempfile.TemporaryDirectory(prefix="tunesmith-rpc-") as folder:
            try:
                pool.look()
                pool.make_probe(params["target"], params["threads"], Path(folder) / "probe.so")
                pool.submit(call)
                return _result(_wait(pool), runner)
            finally:
                pool.release()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _pool(self, runner: Runner) -> SessionPool:
        if runner not in self._pools:
            self._pools[runner] = SessionPool(runner, self._make_child, most_slots=1)
        self._pools[runner].avoid = runner.avoid
        return self._pools[runner]


def _wait(pool: SessionPool) -> CallResult:
    while not (answers := pool.advance()):
        connection.wait(pool.waits_for, pool.wait_seconds)
    return answers[0]


def _result(answer: CallResult, runner: Runner) -> Json:
    if answer.error is None:
        return {**answer.value, "device": answer.device}
    if answer.error == "refused":
        raise EngineFailure(**answer.value)
    if answer.error == "run_timeout":
        raise EngineFailure(
            "device_lost",
            f"device {answer.device} did not finish within {runner.session_timeout:g} s",
            hint="Raise session_timeout; the network or the model may be slow.",
        )
    code = _CODES.get(answer.error, "run_failed")
    hint = _MISFIT if answer.error == "wrong_device" else None
    raise EngineFailure(code, f"device {answer.device} could not run it: {answer.value}"[:2000], hint=hint)
