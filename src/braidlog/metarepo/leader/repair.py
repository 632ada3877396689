"""What to do for one stream: the next change that repairs it, if there is one.

The theory is at the head of `braidlog.metarepo.leader.controller`.
"""

from __future__ import annotations

from collections.abc import Collection

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.leader.survey import BROKEN, StreamView, Survey
from braidlog.metarepo.machine.faults import holds
from braidlog.metarepo.machine.placement import Loads
from braidlog.metarepo.machine.state import REPLICAS_MAX, StreamState
from braidlog.metarepo.machine.streams import fewest_replicas
from braidlog.wire.commands import AddLearner, Command, DropLearner, Reconfigure


class Repair:
    """Decides the next change of each stream, from what one look has seen."""

    def __init__(self, survey: Survey, lag_max: int) -> None:
        """Begin; a learner that lacks at most ``lag_max`` records may be promoted."""
        self._survey = survey
        self._lag_max = lag_max
        self._loads = Loads(survey.state)

    # --- replicas that failed

    def urgent(self, view: StreamView) -> Command | None:
        """Return what keeps a stream going, or None if it goes or cannot."""
        stream = view.stream
        if not view.bad:
            return self._without_slow(view)
        if view.unknown:
            # What is not known yet may be good: an epoch without it would cost a copy.
            return None
        if self._survey.lacks_listing(stream):
            # The fault logs come first, or a rescue might take the dead one for whole.
            return None
        fewest = fewest_replicas(self._survey.state, stream)
        # Those that go on need nothing; those that are back have to be synced with.
        for members in (view.good, (*view.good, *view.back)):
            if len(members) >= fewest and self._hold_all(view, members):
                return self._epoch(view, members)
        return self._made_up(view, fewest)

    def _without_slow(self, view: StreamView) -> Command | None:
        """Let a stream go on without its slow replicas, if the others suffice.

        They go on as learners: what they have is not copied anew when they are fast
        again.
        """
        slow = self._survey.slow & set(view.good)
        if not slow or view.unknown:
            return None
        fast = [node for node in view.entered if node not in slow]
        whole = [n for n in fast if not self._survey.is_damaged(view.stream, n)]
        # Whoever has not entered yet may not have what the slow ones have.
        enough = len(whole) >= fewest_replicas(self._survey.state, view.stream)
        if not enough or not self._hold_all(view, whole):
            return None
        return self._epoch(view, [n for n in view.good if n not in slow])

    def _made_up(self, view: StreamView, fewest: int) -> Command | None:
        """Let learners make up the number, or see that they have whom to learn from.

        They must have everything: the others may be damaged too, and who is back later
        and is no replica any more forgets what he has.
        """
        stream = view.stream
        learned = tuple(
            node
            for node in stream.learners
            if node not in self._survey.dead and self._learned(stream, node, lacking=0)
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

    def _hold_all(self, view: StreamView, members: Collection[int]) -> bool:
        """Tell whether somebody of these has everything, for an epoch to begin with.

        Who is left out may be told to forget it: if it is whole, and those that would
        go on have only what can still be read, it is waited for.
        """
        known = {*view.stream.holders, *view.entered}
        held = known & set(members)
        if not held or not holds(self._survey.state, view.stream, held):
            return False
        whole = {n for n in known if not self._survey.is_damaged(view.stream, n)}
        return bool(whole & held) or not whole

    def _epoch(
        self, view: StreamView, members: Collection[int], learned: tuple[int, ...] = ()
    ) -> Reconfigure:
        stream = view.stream
        first = self._primary(view, members)
        kept = [node for node in (*stream.replicas, *learned) if node in members]
        slow = self._survey.slow & set(view.good)
        waiting = {*stream.learners, *view.back, *view.late, *slow} - set(members)
        waiting -= {
            node for node in self._survey.dead if not self._awaited(stream, node)
        }
        return Reconfigure(
            stream=stream.stream,
            expected=stream.epoch,
            replicas=(first, *(node for node in kept if node != first)),
            learners=tuple(sorted(waiting)),
            status=stream.status,
            entered=view.entered,
            learned=learned,
        )

    def _primary(self, view: StreamView, members: Collection[int]) -> int:
        """Keep the primary, unless it leaves or leads much more than another could."""
        stream, loads = view.stream, self._loads
        sure = {*stream.holders, *view.entered} & set(members)
        able = [
            node for node in sure if not self._survey.is_leaving(stream, node)
        ] or list(sure)
        best = loads.primary(able)
        now = stream.replicas[0]
        if now in able and loads.primaries[now] <= loads.primaries[best] + 1:
            best = now
        loads.primaries[now] -= 1
        loads.primaries[best] += 1
        return best

    # --- learners, drains, moves

    def patient(self, view: StreamView) -> Command | None:
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

    def _recruit(self, view: StreamView) -> Command | None:
        """Let another node learn, so that a stream with too few replicas goes on.

        Those that failed may never be back, or be back without what they had.
        """
        stream = view.stream
        there = len(view.good) + len(self._live_learners(stream))
        enough = there >= fewest_replicas(self._survey.state, stream)
        if enough or not self._hold_all(view, view.good):
            # Nobody is left who has everything: a copy would lack acknowledged records.
            return None
        return self._learn(stream)

    def _dead_learner(self, stream: StreamState) -> Command | None:
        for node in stream.learners:
            known = self._survey.state.nodes.get(node)
            report = self._survey.report(node, stream)
            broken = report is not None and report.state in BROKEN
            dead = node in self._survey.dead and not self._awaited(stream, node)
            if known is None or known.draining or dead or broken:
                return DropLearner(stream.stream, node)
        return None

    def _awaited(self, stream: StreamState, node: int) -> bool:
        """Tell whether a node that is down is waited for, as the target of a move.

        It may be away for a restart. Whoever moved it there may take that back.
        """
        known = self._survey.state.nodes.get(node)
        gone = known is None or known.draining or known.readmitting
        return not gone and stream.move is not None and stream.move[1] == node

    def _live_learners(self, stream: StreamState) -> list[int]:
        return [node for node in stream.learners if node not in self._survey.dead]

    def _promote(self, view: StreamView) -> Command | None:
        stream = view.stream
        wanted = self._survey.state.logs[stream.log].replication
        if len(view.entered) < len(stream.replicas):
            # The last change is not over: another could leave too few that are sure.
            return None
        # What it lacks then, only damaged ones may have.
        whole = [n for n in stream.replicas if not self._survey.is_damaged(stream, n)]
        lacking = self._lag_max if whole else 0
        for node in stream.learners:
            done = self._learned(stream, node, lacking=lacking)
            if not done and node not in self._survey.slow:
                continue
            if len(self._survey.staying(stream)) >= wanted:
                # Somebody else was faster, or fewer replicas are wanted by now.
                return DropLearner(stream.stream, node)
            if not done or node in self._survey.unfit:
                continue
            return self._epoch(view, self._without_leaving(stream, node), (node,))
        return None

    def _learned(self, stream: StreamState, node: int, *, lacking: int) -> bool:
        report = self._survey.report(node, stream)
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
        wanted = self._survey.state.logs[stream.log].replication
        fewest = fewest_replicas(self._survey.state, stream)
        members = [*stream.replicas, learned]
        for node in stream.replicas:
            left = [each for each in members if each != node]
            held = self._whole(stream, left, learned) >= fewest
            held = held or len(members) > REPLICAS_MAX
            if len(left) >= wanted and held and self._survey.is_leaving(stream, node):
                members = left
        return members

    def _whole(self, stream: StreamState, members: list[int], learned: int) -> int:
        """Return how many have everything, and can read it.

        Whoever learned lacks nothing if it had to learn from damaged ones alone.
        """
        damaged = {n for n in members if self._survey.is_damaged(stream, n)}
        lacks = any(not self._survey.is_damaged(stream, n) for n in stream.replicas)
        return len(set(members) - damaged - ({learned} if lacks else set()))

    def _shrink(self, view: StreamView) -> Command | None:
        stream = view.stream
        wanted = self._survey.state.logs[stream.log].replication
        surplus = len(stream.replicas) - wanted
        if surplus <= 0 or len(view.entered) < len(stream.replicas):
            return None
        # Those that leave anyway go first, then the last ones.
        latest_first = list(reversed(stream.replicas))
        order = sorted(
            latest_first, key=lambda node: not self._survey.is_leaving(stream, node)
        )
        members = [node for node in stream.replicas if node not in order[:surplus]]
        return self._epoch(view, members)

    def _grow(self, stream: StreamState) -> Command | None:
        wanted = self._survey.state.logs[stream.log].replication
        learners = [each for each in stream.learners if each not in self._survey.slow]
        if len(self._survey.staying(stream)) + len(learners) >= wanted:
            # Learners count as if they were done: one copy is made, not one each look.
            return None
        return self._learn(stream)

    def _mend(self, view: StreamView) -> Command | None:
        """Let one damaged replica begin anew, if enough whole ones are there."""
        stream = view.stream
        whole = [n for n in view.entered if not self._survey.is_damaged(stream, n)]
        damaged = [n for n in stream.replicas if self._survey.is_damaged(stream, n)]
        if not damaged or len(view.entered) < len(stream.replicas):
            return None
        if self._live_learners(stream):
            # Whoever learns replaces it, and nothing here has to begin anew.
            return None
        enough = len(whole) >= fewest_replicas(self._survey.state, stream)
        if not enough or not self._hold_all(view, whole):
            return None
        return self._epoch(view, [n for n in stream.replicas if n != damaged[0]])

    def _learn(self, stream: StreamState) -> Command | None:
        """Return what makes the node a learner that has the least to do, if any can."""
        free = [
            node for node in self._survey.state.nodes if self._can_take(stream, node)
        ]
        if not free:
            return None
        # Whoever has the stream from earlier needs only the rest of it.
        old = [node for node in free if self._known_there(stream, node)]
        node = self._loads.lightest(old or free)[0]
        self._loads.replicas[node] += 1
        return AddLearner(stream.stream, node)

    def _can_take(self, stream: StreamState, node: int) -> bool:
        if node in self._survey.dead or self._survey.state.nodes[node].draining:
            return False
        if node in self._survey.unfit:
            return False
        if node in stream.replicas or node in stream.learners:
            return False
        known = self._survey.collector.node(node)
        if known is None or not known.full:
            # What it has of earlier is not known: it may be broken.
            return False
        report = self._survey.report(node, stream)
        # What is broken there has to be gone first.
        return report is None or report.state not in BROKEN

    def _known_there(self, stream: StreamState, node: int) -> bool:
        return self._survey.report(node, stream) is not None
