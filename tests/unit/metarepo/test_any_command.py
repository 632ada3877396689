"""Commands with any values: what is logged once is applied on all nodes, for ever.

A command that broke the state machine would stop every member of the group, and again
at each start. So whatever a client sends is executed or refused, and nothing else.
"""

import enum
import types
from random import Random
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.views import Standing
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.messages import LogCut, StreamRun
from braidlog.wire.results import Refused, decode_result, encode_result
from unit.metarepo.bench import LOG, Bench, one_cut

EDGES = (-(1 << 63), -1, 0, 100, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = ("", "log", "a", "host:1", "host:4", "x" * 256, "\0", "é")
BYTES = (b"", LOG, LOG, LOG, b"m" * 16, b"x" * 5000)


def any_value(random: Random, hint: Any) -> Any:
    """Return a value of a type: mostly one that names something, else an edge."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any_value(random, random.choice(inner))
    if origin is tuple and inner[-1] is Ellipsis:
        return tuple(any_value(random, inner[0]) for _ in range(random.randrange(4)))
    if origin is tuple:
        return tuple(any_value(random, each) for each in inner)
    if issubclass(hint, enum.Enum):
        return random.choice(list(hint))
    if issubclass(hint, msgspec.Struct):
        return any_struct(random, hint)
    if hint is int:
        return random.choice(EDGES) if random.random() < 0.15 else random.randrange(6)
    choices = {str: TEXTS, bytes: BYTES, bool: (False, True), type(None): (None,)}
    return random.choice(choices[hint])


def any_struct(random: Random, kind: type[Any]) -> Any:
    hints = get_type_hints(kind)
    fields = [any_value(random, hints[name]) for name in kind.__struct_fields__]
    return kind(*fields)


def next_cut(random: Random, repository: Repository) -> Command:
    """Return a cut that fits the log, so that there is something to break."""
    state = repository.state
    log = state.logs[LOG]
    glsn, runs = log.high_watermark + 1, []
    for number in log.streams:
        stream, length = state.streams[number], random.randrange(1, 4)
        runs.append(StreamRun(number, stream.committed, glsn, length, stream.epoch))
        glsn += length
    forget = ((LOG, random.randrange(log.version + 2)),)
    return commands.Cut((LogCut(LOG, log.version + 1, glsn - 1, tuple(runs)),), forget)


def any_command(random: Random, repository: Repository) -> Command:
    kind = random.choice(get_args(Command))
    if kind is commands.Cut and LOG in repository.state.logs:
        return next_cut(random, repository)
    made: Command = any_struct(random, kind)
    if isinstance(made, commands.Reconfigure):
        stream = repository.state.streams.get(made.stream)
        expected = stream.epoch if stream else made.expected
        made = msgspec.structs.replace(made, expected=expected)
    return made


@pytest.mark.parametrize("seed", range(8))
def test_it_is_executed_or_refused(seed: int) -> None:
    random = Random(seed)
    bench = Bench(4)
    if seed % 2:
        bench.do(commands.ChangeFaults(0, 0, joined=(1, 2, 3, 4)))
    bench.create((1, 2), (2, 3))
    bench.do(one_cut(1, (1, 1, 1, 5), (2, 1, 6, 4)))
    repository = bench.repository
    for _ in range(150):
        before, index = repository.snapshot(), repository.index
        command = any_command(random, repository)
        result = bench.do(command)
        assert decode_result(encode_result(result)) == result
        after = repository.snapshot()
        assert Repository(after).snapshot() == after
        if isinstance(result, Refused):
            repository.state.index = index
            assert repository.snapshot() == before, command
            repository.state.index = index + 1
        repository.logs(lambda _: Standing())
        repository.nodes(lambda _: True, frozenset(), lambda _: 0)
        for stream in repository.state.streams:
            repository.config(stream)
