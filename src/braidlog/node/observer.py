"""Makes the status of a node and what its metrics are made of; changes nothing."""

from __future__ import annotations

from dataclasses import asdict

from braidlog.node.config import NodeConfig
from braidlog.node.metrics.status import NodeStatus, Observed
from braidlog.node.peers.links import Peers
from braidlog.node.readiness import Readiness
from braidlog.node.reload import ReloadCounters
from braidlog.node.replication.replicas import Replicas
from braidlog.node.replication.scrub import Scrub
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.requests.requests import Requests
from braidlog.node.shards.shards import Shards
from braidlog.node.tables.tables import Tables
from braidlog.serving.sessions import Sessions
from braidlog.store.node_store import NodeStore


class Observer:
    """Looks at the parts of a node; of the cluster only the leader knows all."""

    def __init__(
        self,
        config: NodeConfig,
        store: NodeStore,
        incarnation: int,
        *,
        readiness: Readiness,
        route: RepositoryRoute,
        peers: Peers,
        replicas: Replicas,
        shards: Shards,
        requests: Requests,
        scrub: Scrub,
        sessions: Sessions,
        tables: Tables | None,
        reloads: ReloadCounters,
    ) -> None:
        """Look at a node that starts now, as no leader is known."""
        self._config = config
        self._store = store
        self._incarnation = incarnation
        self._readiness = readiness
        self._route = route
        self._peers = peers
        self._replicas = replicas
        self._shards = shards
        self._requests = requests
        self._scrub = scrub
        self._sessions = sessions
        self._tables = tables
        self._reloads = reloads
        self._started = self._leader_since = store.clock()
        self._leader_seen = 0

    def ticked(self) -> None:
        """Note who leads, and since when."""
        leader = self._route.leader
        if leader != self._leader_seen:
            self._leader_seen, self._leader_since = leader, self._store.clock()

    def status(self, now: float) -> NodeStatus:
        """Return what the node says of itself at ``now``, by the clock of its loop."""
        unhealthy = self._readiness.unhealthy(now)
        why = unhealthy or self._readiness.unready()
        member, sessions = self._route.member, self._sessions
        return NodeStatus(
            node=self._config.node.id,
            cluster=self._config.cluster.name,
            address=self._config.advertise,
            incarnation=self._incarnation,
            healthy=not unhealthy,
            ready=not why,
            why=why,
            leader=self._route.leader,
            leader_since=self._leader_since,
            started=self._started,
            connections=len(sessions),
            sockets="core" if sessions.outbox.poll is not None else "loop",
            waiting={
                "appends": self._replicas.unanswered(),
                "reads": len(self._replicas.readers),
                "requests": self._requests.waiting,
                "answer_bytes": sessions.unread_bytes,
            }
            | ({"table_reads": self._tables.waiting} if self._tables else {}),
            peers=tuple(self._peers.links()),
            replicas=(*self._replicas.status(), *self._shards.status()),
            tables=self._tables.status() if self._tables is not None else (),
            group=member.status() if member is not None else None,
            counters={
                **asdict(self._replicas.counters),
                **asdict(self._replicas.readers.counters),
                **asdict(self._scrub.counters),
                **asdict(sessions.admission.counters),
                **(asdict(self._tables.counters) if self._tables is not None else {}),
                **asdict(self._reloads),
                "messages_dropped": self._peers.dropped,
            },
            storage=self._store.stats(),
            quotas=sessions.meters.uses(),
        )

    def observed(self, now: float) -> Observed:
        """Return what metrics are made of, at ``now`` by the clock of the loop."""
        member, latencies = self._route.member, self._replicas.latencies
        measured = {"append": latencies.append, "read": latencies.read}
        measured["sync"] = latencies.sync
        if member is not None:
            measured["cut"] = member.cut_latency
        leading = member if member is not None and member.leads else None
        return Observed(
            status=self.status(now),
            metadata=leading.metadata(judged=True) if leading is not None else None,
            copying=leading.copying() if leading is not None else {},
            answer_times=leading.answer_times() if leading is not None else {},
            cuts_in_flight=member.cuts_in_flight if member is not None else 0,
            latencies={name: each.copy() for name, each in measured.items()},
            now=self._store.clock(),
            directory=self._config.node.data,
        )
