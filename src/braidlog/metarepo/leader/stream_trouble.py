"""What a stream lacks, in words for the operator."""

from __future__ import annotations

from braidlog.metarepo.leader.survey import BROKEN, StreamView, Survey
from braidlog.wire.commands import Command, DropLearner, Reconfigure


class StreamTrouble:
    """Says of streams what is wrong with them; decides nothing."""

    def __init__(self, survey: Survey) -> None:
        """Speak of what one look has seen."""
        self._survey = survey

    def complete(self, view: StreamView) -> bool:
        """Tell whether a stream has all it should have."""
        stream = view.stream
        wanted = self._survey.state.logs[stream.log].replication
        return (
            len(view.entered) == len(view.good) == len(stream.replicas) == wanted
            and not stream.learners
            and len(self._survey.staying(stream)) == wanted
        )

    def is_short(self, view: StreamView) -> bool:
        """Tell whether a stream lacks replicas; what is not heard yet is not lacking.

        One that has all and moves one of them elsewhere lacks nothing.
        """
        wanted = self._survey.state.logs[view.stream.log].replication
        whole = [n for n in view.good if not self._survey.is_damaged(view.stream, n)]
        return len(whole) + len(view.unknown) < wanted

    def is_decided(self, view: StreamView) -> bool:
        """Tell whether nothing more has to be heard before something is done."""
        return not view.unknown and not self._survey.lacks_listing(view.stream)

    def why(self, view: StreamView) -> str:
        """Return what a stream lacks, in words; empty if it is only on its way."""
        stream = view.stream
        found = [self._trouble(view, node) for node in stream.replicas]
        wanted = self._survey.state.logs[stream.log].replication
        if (count := len(stream.replicas)) < wanted:
            found.append(f"it has {count} of {wanted} replicas")
        if stream.move is not None:
            found.append(
                f"it is being moved from node {stream.move[0]} to node {stream.move[1]}"
            )
        found += [self._learner(node) for node in stream.learners]
        if all(self._survey.is_damaged(stream, node) for node in stream.replicas):
            found.append(
                "every replica is damaged: add a node that copies the intact "
                "records from all of them"
            )
        return ", ".join(filter(None, found))

    def _learner(self, node: int) -> str:
        if node in self._survey.dead:
            return f"node {node} is lost, it was to copy it"
        slow = " and is slow" if node in self._survey.slow else ""
        return f"node {node} copies it{slow}"

    def _trouble(self, view: StreamView, node: int) -> str:
        stream = view.stream
        report = self._survey.report(node, stream)
        known = self._survey.state.nodes.get(node)
        if node in self._survey.dead:
            return f"node {node} is down"
        if node in view.back:
            return f"node {node} was restarted"
        if node in view.late:
            return f"node {node} has not entered epoch {stream.epoch} yet"
        if report is not None and report.state in BROKEN:
            return f"the replica on node {node} failed"
        if self._survey.is_damaged(stream, node):
            return f"the replica on node {node} is damaged"
        if known is None or known.draining:
            return f"node {node} is being drained"
        return f"node {node} is slow" if node in self._survey.slow else ""

    def reason(self, view: StreamView, command: Command) -> str:
        """Return why a command is decided, in words."""
        stream = view.stream
        troubles = [self._trouble(view, node) for node in stream.replicas]
        if isinstance(command, DropLearner):
            if command.node in self._survey.dead:
                return f"node {command.node} is down"
            if command.node in self._survey.slow:
                return f"node {command.node} is slow, and others have everything"
            known = self._survey.state.nodes.get(command.node)
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
