"""Commands and the options that they share.

A command works on a data directory, on a cluster, or on either. What was said on the
command line goes before what the environment says, so that `--data` reaches a
directory also where `BRAIDLOG_CLUSTER` is set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import click
from click.core import ParameterSource

from braidlog.cli.command.parameters import DIRECTORY, FILE
from braidlog.cli.command.session import Session
from braidlog.cli.command.target import Target, token_of

_DATA = Path("data")
_TOO_MANY = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)


def _data_option() -> click.Option:
    return click.Option(
        ["--data", "-d"],
        type=DIRECTORY,
        default=_DATA,
        envvar="BRAIDLOG_DATA",
        metavar="DIR",
        help="Data directory [env: BRAIDLOG_DATA; default: ./data].",
    )


def _cluster_option(*, hidden: bool = False) -> click.Option:
    return click.Option(
        ["--cluster"],
        envvar="BRAIDLOG_CLUSTER",
        metavar="HOST:PORT,...",
        hidden=hidden,
        help="Addresses of nodes; one is enough [env: BRAIDLOG_CLUSTER].",
    )


def _hosts_option() -> click.Option:
    return click.Option(
        ["--hosts", "cluster"],
        envvar="BRAIDLOG_HOSTS",
        metavar="HOST:PORT,...",
        help="Addresses of hosts; one is enough [env: BRAIDLOG_HOSTS].",
    )


def _access_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--token"],
            envvar="BRAIDLOG_TOKEN",
            help=(
                "Token for the cluster. Other users of the machine can see a command"
                " line: prefer the environment or a file [env: BRAIDLOG_TOKEN]."
            ),
        ),
        click.Option(
            ["--token-file"],
            type=FILE,
            envvar="BRAIDLOG_TOKEN_FILE",
            help="File with the token [env: BRAIDLOG_TOKEN_FILE].",
        ),
        click.Option(
            ["--tls-ca"],
            type=FILE,
            envvar="BRAIDLOG_TLS_CA",
            help="Connect with TLS; PEM certificates that nodes are checked against"
            " [env: BRAIDLOG_TLS_CA].",
        ),
    ]


def _json_option() -> click.Option:
    return click.Option(
        ["--json", "as_json"],
        is_flag=True,
        help="Print only JSON, one value per line.",
    )


class PlainCommand(click.Command):
    """A command that gets a `Session` first; it shares only how it prints.

    It says which arguments it takes when it gets too many.
    """

    def __init__(self, *, callback: Callable[..., Any], **settings: Any) -> None:
        """Add the shared options behind the command's own."""
        super().__init__(callback=click.pass_obj(callback), **settings)
        self.params += self.shared()

    def shared(self) -> list[click.Parameter]:
        """Return the options that every command of the kind has."""
        return [_json_option()]

    def invoke(self, ctx: click.Context) -> Any:
        """Turn the shared options into the session that the command is passed."""
        try:
            ctx.obj = self.session(ctx)
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # So that the hint names the command.
            raise

    def session(self, ctx: click.Context) -> Session:
        """Take the shared options out of the parameters."""
        return Session(_DATA, ctx.params.pop("as_json"))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            click.UsageError: it is not one of the command.
        """
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # Some of click's do not say it.
            found = _TOO_MANY.fullmatch(error.message)
            if found is None:
                raise
            arguments = (p for p in self.params if isinstance(p, click.Argument))
            wanted = " ".join(each.make_metavar(ctx) for each in arguments)
            takes = f"it takes {wanted}" if wanted else "it takes none"
            msg = f"too many arguments for `{ctx.command_path}`: {found[1]} ({takes})"
            raise click.UsageError(msg, ctx) from None


class Command(PlainCommand):
    """A command on a data directory."""

    uses_data: ClassVar[bool] = True

    def shared(self) -> list[click.Parameter]:
        """Return the options, that of a cluster only to refuse it."""
        return [_data_option(), _cluster_option(hidden=True), _json_option()]

    def session(self, ctx: click.Context) -> Session:
        """Take the shared options out of the parameters."""
        data = ctx.params.pop("data")
        named = _said(ctx, "data") or _set(ctx, "data") or not self.uses_data
        if ctx.params.pop("cluster") and (_said(ctx, "cluster") or not named):
            raise click.UsageError(
                f"`{ctx.command_path}` works on a data directory, not on a cluster:"
                " pass --data DIR"
            )
        return Session(data, ctx.params.pop("as_json"))


class LocalCommand(Command):
    """A command on this machine that does not look into an existing directory."""

    uses_data = False


class NodeCommand(LocalCommand):
    """A command that runs a node, whose settings name its directory as well.

    The command gets `data` if it was said, or None: there is no default to go by.
    """

    def shared(self) -> list[click.Parameter]:
        """Return the options, that of the directory among them."""
        data = click.Option(
            ["--data", "-d"],
            type=DIRECTORY,
            metavar="DIR",
            help="Data directory, in place of data in [node]"
            " [env: BRAIDLOG_NODE_DATA, or BRAIDLOG_DATA].",
        )
        return [data, *super().shared()[1:]]

    def session(self, ctx: click.Context) -> Session:
        """Leave the directory to the command."""
        said = ctx.params["data"]
        ctx.params["data"] = said or _DATA
        session = super().session(ctx)
        ctx.params["data"] = said
        return session


class EitherCommand(Command):
    """A command on a data directory or on a cluster."""

    def shared(self) -> list[click.Parameter]:
        """Return the options for either."""
        return [
            _data_option(),
            _cluster_option(),
            *_access_options(),
            _json_option(),
        ]

    def session(self, ctx: click.Context) -> Session:
        """Decide where the command works."""
        data, cluster = ctx.params.pop("data"), _target(ctx)
        if cluster is not None and _said(ctx, "data"):
            if _said(ctx, "cluster"):
                raise click.UsageError("--data and --cluster cannot be combined")
            cluster = None
        elif cluster is not None and _set(ctx, "data") and not _said(ctx, "cluster"):
            raise click.UsageError(
                "BRAIDLOG_DATA and BRAIDLOG_CLUSTER are both set: pass --data or"
                " --cluster"
            )
        return Session(data, ctx.params.pop("as_json"), cluster)


class ClusterCommand(Command):
    """A command on a cluster."""

    def shared(self) -> list[click.Parameter]:
        """Return the options for a cluster."""
        return [_cluster_option(), *_access_options(), _json_option()]

    def session(self, ctx: click.Context) -> Session:
        """Keep the cluster; whether one was named is asked when it is needed."""
        cluster = _target(ctx)
        return Session(_DATA, ctx.params.pop("as_json"), cluster)


class HostsCommand(ClusterCommand):
    """A command on the hosts of an application, which are the session's cluster."""

    way: ClassVar[str] = "--hosts"

    def shared(self) -> list[click.Parameter]:
        """Return the options for hosts."""
        return [_hosts_option(), *_access_options(), _json_option()]

    def session(self, ctx: click.Context) -> Session:
        """Keep the hosts; one that is named alone is all of them."""
        if not ctx.params["cluster"]:
            ctx.params["cluster"] = ctx.params.get("address")
        return super().session(ctx)


def _target(ctx: click.Context) -> Target | None:
    seeds, token, file, authority = (
        ctx.params.pop(name) for name in ("cluster", "token", "token_file", "tls_ca")
    )
    if _said(ctx, "token") and _said(ctx, "token_file"):
        raise click.UsageError("--token and --token-file cannot be combined")
    way = getattr(ctx.command, "way", "--cluster")
    if not seeds and _said(ctx, "cluster"):
        # A variable that is not set; the work would be done in ./data, and nobody told.
        raise click.UsageError(f"{way} is empty")
    for name, option in (("token", "--token"), ("tls_ca", "--tls-ca")):
        if not seeds and _said(ctx, name):
            raise click.UsageError(f"{option} needs {way}")
    if not seeds:
        return None
    # The one that is nearer to the command counts.
    found = token_of(token, None if _said(ctx, "token") else file)
    return Target(seeds, found, authority)


def _said(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _set(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT


def group_of(kind: type[click.Command]) -> type[click.Group]:
    """Return a kind of group whose commands are of a kind."""
    return type("Group", (click.Group,), {"command_class": kind})


def command(
    name: str | None = None, kind: type[Command] = Command
) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command that gets a `Session` first."""
    return click.command(name, cls=kind)
