"""A dumb metadata repository of one stream: cuts by the minimum, epochs on demand."""

from __future__ import annotations

from braidlog.logstream import ReplicaState
from braidlog.wire.messages import (
    LogCut,
    StreamConfig,
    StreamReport,
    StreamRun,
    StreamStatus,
)

LOG = bytes(16)
STREAM = 7
OTHER = 8
"""A stream of the same log that nobody looks at."""


class Repository:
    """What is decided, and the last report of each node."""

    def __init__(self, replicas: tuple[int, ...], learners: tuple[int, ...]) -> None:
        self.committed = 1
        self.other = 1
        self.high_watermark = 0
        self.cuts: list[LogCut] = []
        self.reports: dict[int, StreamReport] = {}
        self.history: list[tuple[int, int]] = []
        self.forgotten = 0
        """Cuts up to this version are not kept."""
        self.trim = 1
        self.config = self._config(1, replicas, learners, StreamStatus.RUNNING)

    def _config(
        self,
        epoch: int,
        replicas: tuple[int, ...],
        learners: tuple[int, ...],
        status: StreamStatus,
    ) -> StreamConfig:
        return StreamConfig(
            STREAM,
            LOG,
            "log",
            epoch,
            status,
            replicas,
            learners,
            self.committed,
            tuple(self.history),
            len(self.cuts),
            self.high_watermark,
            self.trim,
            b"",
        )

    def configure(
        self,
        replicas: tuple[int, ...],
        learners: tuple[int, ...] = (),
        status: StreamStatus = StreamStatus.RUNNING,
    ) -> StreamConfig:
        self.history.append((self.config.epoch, self.config.start))
        self.config = self._config(self.config.epoch + 1, replicas, learners, status)
        return self.config

    def trim_to(self, glsn: int) -> StreamConfig:
        self.trim = max(self.trim, min(glsn, self.high_watermark + 1))
        fields = {
            name: getattr(self.config, name) for name in StreamConfig.__struct_fields__
        }
        self.config = StreamConfig(**{**fields, "trim": self.trim})
        return self.config

    @property
    def open(self) -> bool:
        """Whether every replica reported in the epoch."""
        return all(self._in_epoch(node) for node in self.config.replicas)

    def _in_epoch(self, node: int) -> bool:
        report = self.reports.get(node)
        serving = (ReplicaState.RUNNING, ReplicaState.SEALED)
        return (
            report is not None
            and report.epoch == self.config.epoch
            and report.state in serving
        )

    def cut(self, other: int = 0) -> LogCut | None:
        """Cut by the minimum of the reports; the other stream gets so many records."""
        end = self.committed
        if self.config.status is StreamStatus.RUNNING and self.open:
            end = min(self.reports[node].end for node in self.config.replicas)
        runs = []
        if other:
            runs.append(StreamRun(OTHER, self.other, self._take(other), other, 1))
            self.other += other
        if end > self.committed:
            length = end - self.committed
            epoch = self.config.epoch
            glsn = self._take(length)
            runs.append(StreamRun(STREAM, self.committed, glsn, length, epoch))
            self.committed = end
        if not runs:
            return None
        cut = LogCut(LOG, len(self.cuts) + 1, self.high_watermark, tuple(runs))
        self.cuts.append(cut)
        return cut

    def _take(self, length: int) -> int:
        self.high_watermark += length
        return self.high_watermark - length + 1

    def missed(self, node: int) -> list[LogCut]:
        """Return the kept cuts behind the version that the node reported."""
        report = self.reports.get(node)
        begin = max(report.version if report else 0, self.forgotten)
        return self.cuts[begin:]
