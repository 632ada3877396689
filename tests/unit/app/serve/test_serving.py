"""A host that others call: answers, errors, roles, bounds, and the way to stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.app import (
    Abort,
    Application,
    CallExpiredError,
    Context,
    EncodingError,
    Host,
    ProcedureError,
    UnknownProcedureError,
    connect,
    connect_async,
)
from braidlog.app.caller.caller import AsyncCaller
from braidlog.app.execution.entries import CallId
from braidlog.app.serve.process import HostServer, ServeSettings
from braidlog.client.connection.sockets import socket_connector
from braidlog.client.settings import ClientSettings
from braidlog.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    QuotaExceededError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
)
from braidlog.serving.settings import SecuritySettings
from braidlog.wire.messages import GetMetadata
from braidlog.wire.quotas import Quotas
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry
from cluster.hosts import free_ports
from unit.app.banking import make_bank

OPTIONS = {"segment_bytes": 1 << 20, "wal_bytes_max": 16 << 20}
QUICK = ClientSettings(timeout_s=5, attempt_timeout_s=1, retry_max_s=0.05)


@pytest.fixture
def bank() -> Application:
    bank = make_bank(results_kept=50)

    @bank.procedure(key="account")
    def echo(ctx: Context, account: int, value: object) -> object:
        return value

    return bank


@pytest.fixture
def host(bank: Application, tmp_path: Path) -> Iterator[Host]:
    with bank.open(tmp_path, **OPTIONS) as host:
        yield host


@contextlib.asynccontextmanager
async def served(
    host: Host, **settings: object
) -> AsyncIterator[tuple[HostServer, str]]:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    serving = ServeSettings(listen=address, **settings)  # type: ignore[arg-type]
    async with HostServer(host, serving) as server:
        yield server, address


async def test_calls_and_their_errors(host: Host) -> None:
    async with served(host) as (_, address), connect_async(address) as bank:
        assert await bank.call("deposit", 1, 100) == 100
        assert await bank.call("deposit", amount=5, account=1) == 105
        assert await bank.call("transfer", 1, 2, 5) == [100, 5]
        assert await bank.call("balance", 1) == 100
        assert await bank.call("balance", 1, stale=60) == 100
        assert await bank.call("total", behind=3) == 105
        assert await bank.call("interest", 1) == 200
        with pytest.raises(Abort, match="no funds") as caught:
            await bank.call("transfer", 1, 2, 500)
        assert caught.value.procedure == "transfer"
        assert caught.value.position > 0
        with pytest.raises(ProcedureError, match="'explode' raised KeyError") as raised:
            await bank.call("explode", 1)
        assert (raised.value.kind, raised.value.procedure) == ("KeyError", "explode")
        with pytest.raises(
            UnknownProcedureError, match=r"there are: .balance., .deposit."
        ):
            await bank.call("nothing")
        with pytest.raises(InvalidArgumentError, match="missing a required argument"):
            await bank.call("deposit", 1)
        with pytest.raises(EncodingError):
            await bank.call("deposit", 1, {2})
        assert await bank.call("total") == 205


async def test_a_repeated_call_gives_the_first_result(host: Host) -> None:
    async with served(host) as (_, address), connect_async(address) as bank:
        call = await bank.new_call_id()
        assert await bank.call("deposit", 1, 5, call_id=call) == 5
        assert await bank.call("deposit", 1, 5, call_id=call) == 5
        with pytest.raises(InvalidArgumentError, match="not reached"):
            await bank.call("deposit", 1, 2, call_id=CallId(b"\xff" * 16))
        for _ in range(60):
            await bank.call("deposit", 1, 0)
        with pytest.raises(CallExpiredError):
            await bank.call("deposit", 1, 5, call_id=call)
        assert await bank.call("balance", 1) == 5


async def test_an_idle_caller_makes_ids_of_what_the_log_has_now(host: Host) -> None:
    async with served(host) as (_, address), connect_async(address) as bank:
        for _ in range(60):
            host.call("deposit", 1, 1)
        bank._heard = float("-inf")
        assert (await bank.new_call_id()).issued == host.position + 1
        assert await bank.call("deposit", 1, 1) == 61


async def test_many_calls_are_on_their_way_at_a_time(host: Host) -> None:
    small = {"window_bytes": 1 << 16, "frame_bytes_max": 1 << 16}
    async with served(host, **small) as (_, address), connect_async(address) as bank:
        calls = [bank.call("deposit", n % 7, 1) for n in range(40)]
        assert sorted(await asyncio.gather(*calls))[-1] == 6
        assert await bank.call("total") == 40
        # More than the window lets through wait their turn; more than the host bears
        # is refused, and comes again.
        more = [bank.call("echo", n, "x" * 2000) for n in range(100)]
        assert await asyncio.gather(*more) == ["x" * 2000] * 100


async def test_what_does_not_fit_a_frame_is_refused(host: Host) -> None:
    small = {"window_bytes": 1 << 16, "frame_bytes_max": 1 << 16}
    async with served(host, **small) as (_, address), connect_async(address) as bank:
        with pytest.raises(TooLargeError):
            await bank.call("echo", 1, "x" * 70_000)
        # An answer that does not fit is one too.
        assert await bank.call("echo", 1, "x" * 60_000) == "x" * 60_000


async def test_blocking_callers(host: Host) -> None:
    async with served(host) as (_, address):

        def use() -> None:
            with connect(address, application="bank") as bank:
                call = bank.new_call_id()
                assert bank.call("deposit", 1, 5, call_id=call) == 5
                calls = [bank.submit("deposit", 1, 1) for _ in range(10)]
                assert sorted(each.result() for each in calls) == list(range(6, 16))
                assert bank.status().applied == host.position
                assert bank.status(hashes=True).hashes == tuple(host.hashes()[1])
                (said,) = bank.statuses().values()
                assert said.application == "bank"  # type: ignore[union-attr]
            with pytest.raises(ClosedError):
                bank.call("balance", 1)

        await asyncio.to_thread(use)


async def test_a_caller_goes_on_with_another_host(host: Host) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    async with served(host) as (server, address):
        seeds = f"{nobody},{address}"
        async with connect_async(seeds, settings=QUICK) as bank:
            assert await bank.call("deposit", 1, 5) == 5
            statuses = await bank.statuses()
            assert isinstance(statuses[nobody], UnavailableError)
            await server.drain()
            with pytest.raises(DeadlineError, match="no host answered"):
                await bank.call("deposit", 1, 5, timeout=0.3)
            with pytest.raises(DeadlineError) as caught:
                await bank.call("deposit", 1, 5, timeout=0)
            assert str(caught.value.outcome) == "not_stored"
            assert not server.status().ready
    assert host.call("balance", 1) == 5
    with pytest.raises(ConnectionLostError, match=f"{nobody}: Connection refused"):
        async with connect_async(nobody, settings=ClientSettings(refused_s=0.01)):
            pass


async def test_a_stop_answers_what_is_on_its_way(host: Host) -> None:
    async with (
        served(host) as (server, address),
        # What is refused is tried again until its time is over: there is no other host.
        connect_async(address, settings=QUICK) as bank,
    ):
        calls = [asyncio.create_task(bank.call("deposit", 1, 1)) for _ in range(20)]
        await asyncio.sleep(0.01)
        stop = asyncio.Event()
        stop.set()
        await server.serve(stop)
        done = await asyncio.gather(*calls, return_exceptions=True)
    answered = [each for each in done if isinstance(each, int)]
    refused = [each for each in done if isinstance(each, Exception)]
    assert len(answered) == host.call("balance", 1)
    assert all(isinstance(each, (NotReadyError, DeadlineError)) for each in refused)


async def test_another_application_or_a_client_of_a_node_is_refused(
    host: Host,
) -> None:
    async with served(host) as (_, address):
        with pytest.raises(NotFoundError, match="belongs to cluster 'bank'"):
            async with connect_async(address, application="shop"):
                pass
        link = await socket_connector()(address)
        with pytest.raises(InvalidArgumentError, match="not a cluster node"):
            await link.request(GetMetadata())
        await link.close()


async def test_tokens_say_what_is_allowed(host: Host, tmp_path: Path) -> None:
    roles = (Role.READ, Role.APPEND, Role.ADMIN)
    made = {role: make_token(role.word, role, os.urandom(32)) for role in roles}
    tokens = {role: text for role, (text, _) in made.items()}
    file = tmp_path / "tokens.toml"
    file.write_text("".join(token_entry(entry) for _, entry in made.values()))
    security = SecuritySettings(tokens=str(file))
    async with served(host, security=security) as (_, address):

        def caller(role: Role) -> AsyncCaller:
            return connect_async(address, token=tokens[role])

        with pytest.raises(UnauthorizedError):
            async with connect_async(address, token="wrong"):
                pass
        async with caller(Role.READ) as bank:
            assert await bank.call("total") == 0
            with pytest.raises(UnauthorizedError, match="needs a token of role append"):
                await bank.call("deposit", 1, 1)
            with pytest.raises(UnauthorizedError, match="needs a token of role append"):
                await bank.call("interest", 1)
        async with caller(Role.APPEND) as bank:
            assert await bank.call("deposit", 1, 1) == 1
            for admin in (bank.promote(), bank.status(hashes=True)):
                with pytest.raises(UnauthorizedError, match="role admin"):
                    await admin
        async with caller(Role.ADMIN) as bank:
            assert (await bank.promote()).active
            assert len((await bank.status(hashes=True)).hashes) == 3


async def test_tokens_are_read_again(host: Host, tmp_path: Path) -> None:
    text, token = make_token("one", Role.APPEND, os.urandom(32))
    other, second = make_token("two", Role.READ, os.urandom(32))
    file = tmp_path / "tokens.toml"
    file.write_text(token_entry(token))
    security = SecuritySettings(tokens=str(file))
    async with served(host, security=security) as (server, address):
        async with connect_async(address, token=text) as bank:
            assert await bank.call("deposit", 1, 1) == 1
            file.write_text("broken")
            with pytest.raises(InvalidArgumentError, match="token file"):
                await server.reload()
            assert await bank.call("deposit", 1, 1) == 2
            file.write_text(token_entry(second))
            changed = ["[security] tokens: added two; removed one"]
            assert await server.reload() == changed
            with pytest.raises(UnauthorizedError, match="does not know this token"):
                await bank.call("deposit", 1, 1)
        async with connect_async(address, token=other) as bank:
            assert await bank.call("total") == 2


async def test_quotas_of_tokens_hold(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    text, token = make_token("one", Role.APPEND, bytes(32), quotas=Quotas(0, 5))
    file.write_text(token_entry(token))
    async with served(host, security=SecuritySettings(tokens=str(file))) as (
        server,
        address,
    ):
        assert server._sessions is not None
        server._sessions.now = lambda: 1000.0  # No bucket fills.
        async with connect_async(address, token=text) as bank:
            calls = (bank.call("deposit", 1, 1, timeout=0.5) for _ in range(10))
            given = await asyncio.gather(*calls, return_exceptions=True)
            refused = [each for each in given if isinstance(each, QuotaExceededError)]
            assert {each.quota for each in refused} == {"requests_per_s"}
            assert {each.outcome for each in refused} == {"not_stored"}
            file.write_text(token_entry(replace(token, quotas=Quotas())))
            assert await server.reload() == ["[security] tokens: changed one"]
            before = await bank.call("total")
            assert before == 10 - len(refused) <= 5
            assert await bank.call("deposit", 1, 1) == before + 1


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
async def test_tls(host: Host, tmp_path: Path) -> None:
    certificate, key = tmp_path / "host.crt", tmp_path / "host.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=host"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: ASYNC221, RUF100
    security = SecuritySettings(certificate=str(certificate), key=str(key))
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with served(host, security=security) as (_, address):
        async with connect_async(address, ssl=trusting) as bank:
            assert await bank.call("deposit", 1, 5) == 5
        with pytest.raises(UnauthorizedError, match="certificate"):
            async with connect_async(address, ssl=ssl.create_default_context()):
                pass


@pytest.mark.parametrize("setting", ["listen", "http"])
def test_strangers_need_tls_and_tokens(setting: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"--{setting} is reachable"):
        ServeSettings(**{setting: "0.0.0.0:7500"})  # type: ignore[arg-type]
    insecure = SecuritySettings(insecure=True)
    ServeSettings(security=insecure, **{setting: "0.0.0.0:7500"})  # type: ignore[arg-type]


async def test_status_and_metrics_over_http(host: Host) -> None:
    http = f"127.0.0.1:{free_ports(1)[0]}"
    async with (
        served(host, http=http) as (server, address),
        connect_async(address) as bank,
    ):
        await bank.call("deposit", 1, 1)

        def get(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://{http}{path}") as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        code, text = await asyncio.to_thread(get, "/status")
        said = json.loads(text)
        assert (code, said["application"], said["role"]) == (200, "bank", "active")
        assert (said["applied"], said["calls"]) == (host.position, 1)
        assert (said["snapshot"], said["snapshot_us"]) == (None, None)
        taken = await asyncio.to_thread(host.snapshot)
        _, text = await asyncio.to_thread(get, "/status")
        said = json.loads(text)
        assert (said["snapshot"], said["snapshot_us"]) == (taken.position, taken.time)
        _, text = await asyncio.to_thread(get, "/metrics")
        age = re.search(r"braidlog_app_snapshot_age_seconds\{[^}]*\} (\S+)", text)
        assert age is not None
        assert float(age[1]) > 0
        position = (
            f'braidlog_app_applied_position{{application="bank"}} {host.position}'
        )
        assert position in text
        for name in ("calls_total", "lag_records", "outcome_mismatches_total"):
            assert f"braidlog_app_{name}{{" in text
        assert [
            (await asyncio.to_thread(get, p))[0] for p in ("/health", "/ready")
        ] == [
            200,
            200,
        ]
        await server.drain()
        assert (await asyncio.to_thread(get, "/ready"))[0] == 503
        assert (await asyncio.to_thread(get, "/health"))[0] == 200
