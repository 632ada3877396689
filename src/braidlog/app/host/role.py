"""Whether a host is the active one, by the entries of its log."""

from __future__ import annotations

from braidlog.app.execution.catalog_state import CatalogState
from braidlog.app.execution.entries import Catalog, Host, pack
from braidlog.app.execution.epochs import Terms
from braidlog.app.log.source import CommandLog
from braidlog.app.procedure import Procedure
from braidlog.errors import FencedError, NotReadyError


class Role:
    """The role of one host. Not safe by itself where the log is being applied."""

    def __init__(self, host: bytes, shared: CatalogState, log: CommandLog) -> None:
        """Begin as a standby, whatever the host was before."""
        self.host = host
        self.shared = shared
        self._log = log
        self.claimed = 0
        """Epoch of the last entry by which this host claimed to be active."""
        self._refused = -1

    @property
    def epoch(self) -> int:
        """Epoch of the active host, as far as the log was applied."""
        return self.shared.epoch

    @property
    def active_host(self) -> bytes:
        """Identity of the active host, as far as the log was applied."""
        return self.shared.host

    @property
    def terms(self) -> Terms:
        """Who was active when, as far as the log was applied."""
        return self.shared.terms

    def holds(self, terms: Terms) -> bool:
        """Whether the last of some terms is that of this host."""
        last = terms.last
        return (last.epoch, last.host) == (self.claimed, self.host)

    @property
    def active(self) -> bool:
        """Whether this host is the active one, as far as it has read.

        Another one may have taken over in what it has not read: nothing that it writes
        until then counts, because its epoch is older.
        """
        return self.epoch == self.claimed and self.active_host == self.host

    @property
    def waiting(self) -> bool:
        """Whether it should be the active host, and the log has no room for the entry.

        Not any more when another host is active since.
        """
        return self._refused == self.epoch and not self.active

    def wait_for_room(self) -> None:
        """Note that the log had no room for the entry."""
        self._refused = self.epoch

    def wanted_catalog(self) -> Catalog | None:
        """Return the catalog to log, if the program has another than the log.

        Its schema was tried on every partition.

        Raises:
            ApplicationMismatchError: the schema does not begin as that of the log does.
            InvalidArgumentError: a step of the schema cannot be executed.
        """
        shared = self.shared
        catalog = shared.wanted_catalog()
        if catalog is not None:
            shared.try_schema(catalog)
        return catalog

    def log_catalog(self, catalog: Catalog | None) -> None:
        """Append a catalog, if there is one to append."""
        if catalog is not None:
            self._log.append(pack(catalog))

    def claim(self, above: int = 0) -> int:
        """Append that this host is active; of several at a time the first counts.

        The epoch is ``above`` another one that is known from further on in the log.
        """
        self.claimed = max(above, self.shared.epoch) + 1
        return self._log.append(pack(Host(self.host, self.claimed)))

    def check_active(self) -> None:
        """Make sure that the claim was the first of its epoch.

        Raises:
            FencedError: that of another host was.
        """
        if not self.active:
            msg = f"the host {self.active_host.hex()} became active first"
            raise FencedError(msg, given=self.claimed, current=self.epoch)

    def check_code(self, procedure: Procedure) -> None:
        """Refuse a call whose code is not in the catalog of the log.

        Raises:
            NotReadyError: it is not, until a host that has it is promoted.
        """
        # A host that lacks the code of a command stops: nobody may log one before the
        # log says that it is to be had.
        if not self.shared.has(procedure):
            raise NotReadyError(
                f"the log has a different version of {procedure.name!r} than this "
                "host: promote a host with this version, or call a host with the "
                "version of the log"
            )
