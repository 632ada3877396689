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

*Invariants.* One change of a stream is under way at a time. What a replica does to a
stream again and again while its process lives is spaced out, more each time, so that
nothing flaps for ever. The first time after each start of a node is not: a restart that
somebody planned costs no pause, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.collector import Collector
from braidlog.metarepo.events import Event, EventName, Value
from braidlog.metarepo.placement import Loads
from braidlog.metarepo.recovery.faults import holds
from braidlog.metarepo.state import REPLICAS_MAX, State, StreamState
from braidlog.metarepo.streams import fewest_replicas
from braidlog.wire.commands import (
    AddLearner,
    Command,
    DropLearner,
    Reconfigure,
)

__all__ = ["Controller", "ControllerSettings"]


_BROKEN: Final = frozenset({ReplicaState.INVALID, ReplicaState.FAILED})


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


@dataclass(frozen=True, slots=True)
class _View:
    """A stream with what is known of its replicas."""

    stream: StreamState
    good: tuple[int, ...]
    entered: tuple[int, ...]
    back: tuple[int, ...]
    """Restarted replicas on live nodes, which need a new epoch."""
    slow: tuple[int, ...]
    """Replicas on live nodes that did not enter the epoch in time."""
    unknown: tuple[int, ...]

    @property
    def bad(self) -> bool:
        """Tell whether a replica has to go."""
        return len(self.good) + len(self.unknown) < len(self.stream.replicas)


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
    ) -> list[Command]:
        """Return commands for streams that have none under way."""
        for gone in self._watches.keys() - state.streams.keys():
            del self._watches[gone]
        self._now = now
        for gone in self._reasons.keys() - state.streams.keys():
            del self._reasons[gone]
        look = _Look(self._settings, state, collector, dead, now)
        commands: list[Command] = []
        self.calm = not pending
        for number, stream in state.streams.items():
            watch = self._watch(stream, now)
            if number in pending or len(commands) >= self._settings.changes_max:
                continue
            view = look.view(stream, watch.since)
            complete = look.complete(view)
            self.calm &= complete
            why = "" if complete else look.why(view)
            command = look.urgent(view)
            told = None if complete else watch.told
            if not complete and look.is_short(view):
                told = "stream_degraded"
                if command is None and view.bad and look.is_decided(view):
                    told = "stream_unavailable"
            self._note(stream, state, watch, why, complete=complete, told=told)
            command = command or self._unhurried(look, view, watch, now)
            if command is not None:
                commands.append(command)
                self._reasons[number] = look.reason(view, command)
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
        self, look: _Look, view: _View, watch: _Watch, now: float
    ) -> Command | None:
        """Return a change that can wait, if it need not or has waited long enough."""
        command = look.patient(view)
        if command is None:
            return None
        node = _concerned(command)
        start = look.start(node)
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


class _Look:
    """One look at all streams."""

    def __init__(
        self,
        settings: ControllerSettings,
        state: State,
        collector: Collector,
        dead: Callable[[int], bool],
        now: float,
    ) -> None:
        self._settings = settings
        self._state = state
        self._collector = collector
        self._dead = {node for node in state.nodes if dead(node)}
        self._now = now
        self._loads = Loads(state)

    def start(self, node: int) -> int:
        """Return the incarnation that a node reports, 0 if it has said nothing."""
        known = self._collector.reports.get(node)
        return known.incarnation if known is not None else 0

    def view(self, stream: StreamState, since: float) -> _View:
        """Sort the replicas of a stream."""
        entered = self._collector.entered(stream)
        late = self._now - since >= self._settings.enter_timeout
        good: list[int] = []
        back: list[int] = []
        slow: list[int] = []
        unknown: list[int] = []
        for node in stream.replicas:
            report = self._collector.report(node, stream.stream)
            if node in self._dead:
                continue  # Bad: it is in none of these.
            if report is None:
                # A new leader has heard of nobody yet. Who lives reports at once.
                (slow if late else unknown).append(node)
            elif report.state == ReplicaState.STARTING and report.epoch >= stream.epoch:
                # It forgot what it did behind the last sync, and serves in no epoch
                # that it was in before.
                back.append(node)
            elif report.state not in _BROKEN:
                # It is on its way into the epoch, for which it has a time.
                (good if node in entered or not late else slow).append(node)
        return _View(
            stream, tuple(good), entered, tuple(back), tuple(slow), tuple(unknown)
        )

    def complete(self, view: _View) -> bool:
        """Tell whether a stream has all it should have."""
        stream = view.stream
        wanted = self._state.logs[stream.log].replication
        return (
            len(view.entered) == len(view.good) == len(stream.replicas) == wanted
            and not stream.learners
            and len(self._staying(stream)) == wanted
        )

    # --- what the operator is told

    def is_short(self, view: _View) -> bool:
        """Tell whether a stream lacks replicas; what is not heard yet is not lacking.

        One that has all and moves one of them elsewhere lacks nothing.
        """
        wanted = self._state.logs[view.stream.log].replication
        whole = [n for n in view.good if not self._damaged(view.stream, n)]
        return len(whole) + len(view.unknown) < wanted

    def is_decided(self, view: _View) -> bool:
        """Tell whether nothing more has to be heard before something is done."""
        return not view.unknown and not self._unlisted(view.stream)

    def why(self, view: _View) -> str:
        """Return what a stream lacks, in words; empty if it is only on its way."""
        stream = view.stream
        found = [self._trouble(view, node) for node in stream.replicas]
        wanted = self._state.logs[stream.log].replication
        if (count := len(stream.replicas)) < wanted:
            found.append(f"it has {count} of {wanted} replicas")
        if stream.move is not None:
            found.append(
                f"it is being moved from node {stream.move[0]} to node {stream.move[1]}"
            )
        for node in stream.learners:
            lost = node in self._dead
            found.append(
                f"node {node}{' is lost, it was to copy' if lost else ' copies'} it"
            )
        if all(self._damaged(stream, node) for node in stream.replicas):
            found.append(
                "every replica is damaged: add a node that copies the intact "
                "records from all of them"
            )
        return ", ".join(filter(None, found))

    def _trouble(self, view: _View, node: int) -> str:
        stream = view.stream
        report = self._collector.report(node, stream.stream)
        known = self._state.nodes.get(node)
        if node in self._dead:
            return f"node {node} is down"
        if node in view.back:
            return f"node {node} was restarted"
        if node in view.slow:
            return f"node {node} has not entered epoch {stream.epoch} yet"
        if report is not None and report.state in _BROKEN:
            return f"the replica on node {node} failed"
        if self._damaged(stream, node):
            return f"the replica on node {node} is damaged"
        if known is None or known.draining:
            return f"node {node} is being drained"
        return ""

    def reason(self, view: _View, command: Command) -> str:
        """Return why a command is decided, in words."""
        stream = view.stream
        troubles = [self._trouble(view, node) for node in stream.replicas]
        if isinstance(command, DropLearner):
            if command.node in self._dead:
                return f"node {command.node} is down"
            known = self._state.nodes.get(command.node)
            drained = known is None or known.draining
            return (
                f"node {command.node} is being drained"
                if drained
                else "the copy is not needed any more"
            )
        if isinstance(command, Reconfigure) and command.learned:
            learned = ", ".join(map(str, command.learned))
            return f"node {learned} has copied the records that it lacked"
        return ", ".join(filter(None, troubles)) or self.why(view)

    # --- replicas that failed

    def urgent(self, view: _View) -> Command | None:
        """Return what keeps a stream going, or None if it goes or cannot."""
        stream = view.stream
        if not view.bad or view.unknown:
            # What is not known yet may be good: an epoch without it would cost a copy.
            return None
        if self._unlisted(stream):
            # The fault logs come first, or a rescue might take the dead one for whole.
            return None
        fewest = fewest_replicas(self._state, stream)
        # Those that go on need nothing; those that are back have to be synced with.
        for members in (view.good, (*view.good, *view.back)):
            if len(members) >= fewest and self._hold_all(view, members):
                return self._epoch(view, members)
        return self._made_up(view, fewest)

    def _made_up(self, view: _View, fewest: int) -> Command | None:
        """Let learners make up the number, or see that they have whom to learn from.

        They must have everything: the others may be damaged too, and who is back later
        and is no replica any more forgets what he has.
        """
        stream = view.stream
        learned = tuple(
            node
            for node in stream.learners
            if node not in self._dead and self._learned(stream, node, lacking=0)
        )
        enough = len(view.good) + len(learned) >= fewest
        if enough and self._hold_all(view, view.good):
            # What they have acknowledged since is on the good ones as well.
            return self._epoch(view, (*view.good, *learned), learned)
        if view.back and self._hold_all(view, (*view.good, *view.back)):
            # In an epoch they hear what was committed. Those that are away are waited
            # for as before.
            return self._epoch(view, stream.replicas)
        return None

    def _hold_all(self, view: _View, members: Collection[int]) -> bool:
        """Tell whether somebody of these has everything, for an epoch to begin with."""
        held = {*view.stream.holders, *view.entered} & set(members)
        return bool(held) and holds(self._state, view.stream, held)

    def _unlisted(self, stream: StreamState) -> bool:
        """Tell whether a dead replica is not yet listed as failed."""
        faults = self._state.faults
        gone = self._dead & set(stream.replicas)
        return faults is not None and not gone <= set(faults.failed)

    def _epoch(
        self, view: _View, members: Collection[int], learned: tuple[int, ...] = ()
    ) -> Reconfigure:
        stream = view.stream
        first = self._primary(view, members)
        kept = [node for node in (*stream.replicas, *learned) if node in members]
        waiting = {*stream.learners, *view.back, *view.slow} - set(members)
        waiting -= {node for node in self._dead if not self._awaited(stream, node)}
        return Reconfigure(
            stream=stream.stream,
            expected=stream.epoch,
            replicas=(first, *(node for node in kept if node != first)),
            learners=tuple(sorted(waiting)),
            status=stream.status,
            entered=view.entered,
            learned=learned,
        )

    def _primary(self, view: _View, members: Collection[int]) -> int:
        """Keep the primary, unless it leaves or leads much more than another could."""
        stream, loads = view.stream, self._loads
        sure = {*stream.holders, *view.entered} & set(members)
        able = [node for node in sure if not self._leaving(stream, node)] or list(sure)
        best = loads.primary(able)
        now = stream.replicas[0]
        if now in able and loads.primaries[now] <= loads.primaries[best] + 1:
            best = now
        loads.primaries[now] -= 1
        loads.primaries[best] += 1
        return best

    # --- learners, drains, moves

    def patient(self, view: _View) -> Command | None:
        """Return what brings a stream to its number of replicas, or None."""
        stream = view.stream
        if view.unknown:
            # Only what does not depend on the replicas.
            return self._dead_learner(stream)
        if view.bad:
            # Nothing could keep it going, or `urgent` would have: it needs others.
            return self._dead_learner(stream) or self._recruit(view)
        # In this order: what is promoted makes the next ones unnecessary, and a replica
        # too many goes before another is copied.
        return (
            self._dead_learner(stream)
            or self._promote(view)
            or self._shrink(view)
            or self._grow(stream)
            or self._mend(view)
        )

    def _recruit(self, view: _View) -> Command | None:
        """Let another node learn, so that a stream with too few replicas goes on.

        Those that failed may never be back, or be back without what they had.
        """
        stream = view.stream
        there = len(view.good) + len(self._live_learners(stream))
        enough = there >= fewest_replicas(self._state, stream)
        if enough or not self._hold_all(view, view.good):
            # Nobody is left who has everything: a copy would lack acknowledged records.
            return None
        return self._learn(stream)

    def _leaving(self, stream: StreamState, node: int) -> bool:
        known = self._state.nodes.get(node)
        moved = stream.move is not None and stream.move[0] == node
        drained = moved or known is None or known.draining
        # Nobody can learn from the only one what it has lost.
        return drained or (len(stream.replicas) > 1 and self._damaged(stream, node))

    def _damaged(self, stream: StreamState, node: int) -> bool:
        report = self._collector.report(node, stream.stream)
        return report is not None and report.damaged

    def _staying(self, stream: StreamState) -> list[int]:
        return [node for node in stream.replicas if not self._leaving(stream, node)]

    def _dead_learner(self, stream: StreamState) -> Command | None:
        for node in stream.learners:
            known = self._state.nodes.get(node)
            report = self._collector.report(node, stream.stream)
            broken = report is not None and report.state in _BROKEN
            dead = node in self._dead and not self._awaited(stream, node)
            if known is None or known.draining or dead or broken:
                return DropLearner(stream.stream, node)
        return None

    def _awaited(self, stream: StreamState, node: int) -> bool:
        """Tell whether a node that is down is waited for, as the target of a move.

        It may be away for a restart. Whoever moved it there may take that back.
        """
        known = self._state.nodes.get(node)
        gone = known is None or known.draining or known.readmitting
        return not gone and stream.move is not None and stream.move[1] == node

    def _live_learners(self, stream: StreamState) -> list[int]:
        return [node for node in stream.learners if node not in self._dead]

    def _promote(self, view: _View) -> Command | None:
        stream = view.stream
        wanted = self._state.logs[stream.log].replication
        if len(view.entered) < len(stream.replicas):
            # The last change is not over: another could leave too few that are sure.
            return None
        # What it lacks then, only damaged ones may have.
        whole = [n for n in stream.replicas if not self._damaged(stream, n)]
        lacking = self._settings.lag_max if whole else 0
        for node in stream.learners:
            if not self._learned(stream, node, lacking=lacking):
                continue
            if len(self._staying(stream)) >= wanted:
                # Somebody else was faster, or fewer replicas are wanted by now.
                return DropLearner(stream.stream, node)
            return self._epoch(view, self._without_leaving(stream, node), (node,))
        return None

    def _learned(self, stream: StreamState, node: int, *, lacking: int) -> bool:
        report = self._collector.report(node, stream.stream)
        return (
            report is not None
            and report.state == ReplicaState.LEARNING
            and report.committed + lacking >= stream.committed
        )

    def _without_leaving(self, stream: StreamState, learned: int) -> list[int]:
        """Return the replicas and one that learned, without those that leave.

        So many have to stay as must hold everything that is acknowledged: the one that
        learned may lack some, and who has left forgets. The rest leaves an epoch later.
        """
        wanted = self._state.logs[stream.log].replication
        fewest = fewest_replicas(self._state, stream)
        members = [*stream.replicas, learned]
        for node in stream.replicas:
            left = [each for each in members if each != node]
            held = len(left) - 1 >= fewest or len(members) > REPLICAS_MAX
            if len(left) >= wanted and held and self._leaving(stream, node):
                members = left
        return members

    def _shrink(self, view: _View) -> Command | None:
        stream = view.stream
        wanted = self._state.logs[stream.log].replication
        surplus = len(stream.replicas) - wanted
        if surplus <= 0 or len(view.entered) < len(stream.replicas):
            return None
        # Those that leave anyway go first, then the last ones.
        latest_first = list(reversed(stream.replicas))
        order = sorted(latest_first, key=lambda node: not self._leaving(stream, node))
        members = [node for node in stream.replicas if node not in order[:surplus]]
        return self._epoch(view, members)

    def _grow(self, stream: StreamState) -> Command | None:
        wanted = self._state.logs[stream.log].replication
        if len(self._staying(stream)) + len(stream.learners) >= wanted:
            # Learners count as if they were done: one copy is made, not one each look.
            return None
        return self._learn(stream)

    def _mend(self, view: _View) -> Command | None:
        """Let one damaged replica begin anew, if enough whole ones are there."""
        stream = view.stream
        whole = [n for n in view.entered if not self._damaged(stream, n)]
        damaged = [n for n in stream.replicas if self._damaged(stream, n)]
        if not damaged or len(view.entered) < len(stream.replicas):
            return None
        if self._live_learners(stream):
            # Whoever learns replaces it, and nothing here has to begin anew.
            return None
        enough = len(whole) >= fewest_replicas(self._state, stream)
        if not enough or not self._hold_all(view, whole):
            return None
        return self._epoch(view, [n for n in stream.replicas if n != damaged[0]])

    def _learn(self, stream: StreamState) -> Command | None:
        """Return what makes the node a learner that has the least to do, if any can."""
        free = [node for node in self._state.nodes if self._can_take(stream, node)]
        if not free:
            return None
        # Whoever has the stream from earlier needs only the rest of it.
        old = [node for node in free if self._known_there(stream, node)]
        node = self._loads.lightest(old or free)[0]
        self._loads.replicas[node] += 1
        return AddLearner(stream.stream, node)

    def _can_take(self, stream: StreamState, node: int) -> bool:
        if node in self._dead or self._state.nodes[node].draining:
            return False
        if node in stream.replicas or node in stream.learners:
            return False
        known = self._collector.reports.get(node)
        if known is None or not known.full:
            # What it has of earlier is not known: it may be broken.
            return False
        report = known.streams.get(stream.stream)
        # What is broken there has to be gone first.
        return report is None or report.state not in _BROKEN

    def _known_there(self, stream: StreamState, node: int) -> bool:
        return self._collector.report(node, stream.stream) is not None


def _concerned(command: Command) -> int:
    """Return the node for whose sake a stream changes, 0 if for none alone."""
    match command:
        case AddLearner(node=node) | DropLearner(node=node):
            return node
        case Reconfigure(learned=(node,)):
            return node
    return 0
