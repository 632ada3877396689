"""What to repair, stream by stream.

*Theory of operation.* A replica is good, bad or unknown. With a bad one the stream goes
on at once on the good ones in a new epoch, if enough of them remain; those that are
back from a restart become learners of it. If too few remain, the ones that restarted
make up the number: they hold everything they ever acknowledged. If these are too few as
well, learners are made of other nodes, and make it up when they have everything. While
a replica is unknown nothing is decided: it is soon heard of, or dead. Everything else
is learners: a stream with too few replicas gets one on the node that has the least, a
learner that has nearly everything becomes a replica, and a draining or moved replica
leaves in the same step if enough others have everything, else in the next one. The
state machine checks all of it again.

A replica that is damaged serves what it can read, and is replaced as a drained one is:
it goes when another one has everything. It begins anew where it is only if there is no
other node for it, and enough whole ones go on.

A replica on a slow node (`braidlog.metarepo.leader.slowness`) leaves at once if enough
others remain, and goes on as a learner; otherwise it is replaced as a drained one is.
It becomes a replica again when its node is fast.

*Invariants.* One change of a stream is under way at a time. What a replica does to a
stream again and again while its process lives is spaced out, more each time, so that
nothing flaps for ever. The first time after each start of a node is not: a restart that
somebody planned costs no pause, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from braidlog.metarepo.events import Event, EventName, Value
from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.leader.repair import Repair
from braidlog.metarepo.leader.stream_trouble import StreamTrouble
from braidlog.metarepo.leader.survey import Survey
from braidlog.metarepo.machine.state import State, StreamState
from braidlog.wire.commands import (
    AddLearner,
    Command,
    DropLearner,
    Reconfigure,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """How eager repair is."""

    enter_timeout: float = 3.0
    """A replica that has not entered an epoch for so long is bad."""
    lag_max: int = 4096
    """Records that a learner may lack when it becomes a replica."""
    pause: float = 0.1
    """Seconds before a stream changes again for the same reason; doubles each time."""
    pause_max: float = 10.0
    calm: float = 30.0
    """After so long without a change the pause is short again."""
    changes_max: int = 256
    """Commands of one look."""


@dataclass(slots=True)
class _Watch:
    """Soft memory of one stream."""

    epoch: int
    since: float
    changed: float
    changes: int = 0
    lacking: float | None = None
    """Since when the stream has not had all it should have."""
    told: EventName | None = None
    """The event that the operator was told last, None if the stream was whole."""
    why: str = ""
    """What it lacks, in words."""
    done: dict[int, tuple[int, set[type]]] = field(default_factory=dict)
    """By node, the start of it that counts, and the changes made for it since."""

    def is_first(self, node: int, start: int, change: type) -> bool:
        """Tell whether nothing of the kind was done since the node started."""
        known, changes = self.done.get(node, (0, set()))
        return known != start or change not in changes

    def note(self, node: int, start: int, change: type) -> None:
        """Remember a change."""
        known, changes = self.done.get(node, (0, set()))
        self.done[node] = start, ({*changes, change} if known == start else {change})


class Controller:
    """Decides; never executes."""

    def __init__(self, settings: ControllerSettings) -> None:
        """Begin without memory."""
        self._settings = settings
        self._now = 0.0
        self._watches: dict[int, _Watch] = {}
        self.calm = False
        """Whether time alone will bring nothing to do: every stream is complete."""
        self._reasons: dict[int, str] = {}
        self._events: list[Event] = []

    def decide(
        self,
        state: State,
        collector: Collector,
        dead: Callable[[int], bool],
        now: float,
        pending: Collection[int] = (),
        *,
        slow: Collection[int] = (),
        unfit: Collection[int] = (),
    ) -> list[Command]:
        """Return commands for streams that have none under way.

        Streams go on without nodes that are ``slow``; the ``unfit`` join none.
        """
        for gone in self._watches.keys() - state.streams.keys():
            del self._watches[gone]
        self._now = now
        for gone in self._reasons.keys() - state.streams.keys():
            del self._reasons[gone]
        settings = self._settings
        survey = Survey(
            state,
            collector,
            dead,
            now,
            settings.enter_timeout,
            slow=slow,
            unfit=unfit,
        )
        trouble, repair = StreamTrouble(survey), Repair(survey, settings.lag_max)
        commands: list[Command] = []
        self.calm = not pending
        for number, stream in state.streams.items():
            watch = self._watch(stream, now)
            if number in pending or len(commands) >= settings.changes_max:
                continue
            view = survey.view(stream, watch.since)
            complete = trouble.complete(view)
            self.calm &= complete
            why = "" if complete else trouble.why(view)
            command = repair.urgent(view)
            told = None if complete else watch.told
            if not complete and trouble.is_short(view):
                told = "stream_degraded"
                if command is None and view.bad and trouble.is_decided(view):
                    told = "stream_unavailable"
            self._note(stream, state, watch, why, complete=complete, told=told)
            command = command or self._unhurried(
                survey, repair.patient(view), watch, now
            )
            if command is not None:
                commands.append(command)
                self._reasons[number] = trouble.reason(view, command)
        return commands

    def lacking(self, stream: int, now: float) -> tuple[float, str]:
        """Return for how many seconds a stream has lacked something, and what."""
        watch = self._watches.get(stream)
        if watch is None or watch.lacking is None:
            return 0.0, ""
        return max(0.0, now - watch.lacking), watch.why

    def reason(self, stream: int) -> str:
        """Return why the last command for a stream was decided."""
        return self._reasons.get(stream, "")

    def take_events(self) -> list[Event]:
        """Return which streams have become whole, degraded or unavailable."""
        events, self._events = self._events, []
        return events

    def _note(
        self,
        stream: StreamState,
        state: State,
        watch: _Watch,
        why: str,
        *,
        complete: bool,
        told: EventName | None,
    ) -> None:
        """Remember how a stream stands, and tell if that is another way than before."""
        if complete:
            before, watch.lacking = watch.lacking, None
        else:
            watch.lacking = before = (
                self._now if watch.lacking is None else watch.lacking
            )
        watch.why = why
        if told == watch.told:
            return
        watch.told = told
        name = state.logs[stream.log].name
        fields: dict[str, Value] = {
            "stream": stream.stream,
            "log": name,
            "epoch": stream.epoch,
            "reason": why,
        }
        lasted = self._now - (self._now if before is None else before)
        text = f"stream {stream.stream} of {name} "
        if told is None:
            text += f"has all its replicas again, after {lasted:.2f} s"
        elif told == "stream_unavailable":
            text += f"takes no appends, because {why}"
        else:
            text += f"is degraded, because {why}"
        event = Event(told or "stream_whole", text, fields, told is not None)
        self._events.append(event)

    def _unhurried(
        self, survey: Survey, command: Command | None, watch: _Watch, now: float
    ) -> Command | None:
        """Return a change that can wait, if it need not or has waited long enough."""
        if command is None:
            return None
        node = _concerned(command)
        start = survey.start(node)
        if start and watch.is_first(node, start, type(command)):
            watch.note(node, start, type(command))
            return command
        if now < watch.changed + self._pause(watch):
            return None
        watch.changed = now
        watch.changes += 1
        return command

    def _watch(self, stream: StreamState, now: float) -> _Watch:
        watch = self._watches.get(stream.stream)
        if watch is None:
            watch = _Watch(stream.epoch, now, now - self._settings.calm)
            self._watches[stream.stream] = watch
        if watch.epoch != stream.epoch:
            watch.epoch, watch.since = stream.epoch, now
        if now - watch.changed > self._settings.calm:
            watch.changes = 0
        return watch

    def _pause(self, watch: _Watch) -> float:
        if watch.changes == 0:
            return 0.0
        # The exponent is bounded, or the number would not be after long flapping.
        pause = self._settings.pause * 2.0 ** min(watch.changes - 1, 16)
        return min(pause, self._settings.pause_max)


def _concerned(command: Command) -> int:
    """Return the node for whose sake a stream changes, 0 if for none alone."""
    match command:
        case AddLearner(node=node) | DropLearner(node=node):
            return node
        case Reconfigure(learned=(node,)):
            return node
    return 0
