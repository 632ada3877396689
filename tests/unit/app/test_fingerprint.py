"""The environment is compared before commands run, and every difference is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog.app import Application, Context, EnvironmentMismatchError
from braidlog.app.determinism.codec import decode, encode
from braidlog.app.execution.answers import answer
from braidlog.app.execution.entries import Catalog
from braidlog.app.execution.executor import Executor
from braidlog.app.fingerprint import (
    EnvironmentRule,
    check,
    compare,
    environment,
)
from braidlog.app.state.sqlite import SqliteState
from unit.app.records import Records


def make() -> Application:
    app = Application("facts", partitions=1)

    @app.procedure
    def p(ctx: Context) -> int:
        return 1

    return app


def test_the_facts_are_values_of_the_log() -> None:
    facts = environment()
    assert decode(encode(facts)) == {**facts}
    assert {"apsw", "cbor2"} == set(facts["packages"])
    assert set(environment(("pytest",))["packages"]) == {"apsw", "cbor2", "pytest"}
    assert any(option.startswith("THREADSAFE") for option in facts["sqlite options"])
    assert facts["libm"] != facts["sum"]


def test_differences_are_exact() -> None:
    logged = {**environment(), "python": "3.9", "cpu": [], "only": 1}
    logged["sqlite options"] = [*logged["sqlite options"], "EXTRA"]
    logged["packages"] = {**logged["packages"], "apsw": "0"}
    found = compare(logged, environment())
    assert {each.fact for each in found if each.matters} == {
        "packages.apsw",
        "python",
        "sqlite options",
    }
    texts = [str(each) for each in found]
    assert "sqlite options: ['EXTRA'] in the log, [] here" in texts
    assert check(logged, environment(), "off") == []
    assert len(check(logged, environment(), "report")) == 3
    with pytest.raises(
        EnvironmentMismatchError, match=r"python: .3\.9. in the log"
    ) as e:
        check(logged, environment(), "refuse")
    assert [d.fact for d in e.value.differences] == sorted(
        d.fact for d in e.value.differences
    )


def test_what_is_only_shown_does_not_refuse() -> None:
    facts = {"cpu": ["fma"], "release": "3.11.1", "build": "x", "machine": "y"}
    assert check(facts, environment(), "refuse") == []
    assert len(compare(facts, environment())) == 4


@contextmanager
def executor(path: Path, app: Application, rule: EnvironmentRule) -> Iterator[Executor]:
    state = SqliteState(path, 1)
    yield Executor(app, state, environment=rule)
    state.close()


def foreign(app: Application) -> Catalog:
    facts: dict[str, Any] = {**app.environment, "libm": "another"}
    return app.catalog(1)._replace(fingerprint=facts)


def test_commands_of_another_environment_are_refused(tmp_path: Path) -> None:
    app = make()
    records = Records(app)
    records.add(foreign(app))
    records.command("p")
    with executor(tmp_path / "a", app, "refuse") as refusing:
        with pytest.raises(EnvironmentMismatchError, match="libm: 'another' in the"):
            refusing.feed(records.after(refusing))
        refusing.rollback()
    with executor(tmp_path / "b", app, "report") as reporting:
        (outcome,) = reporting.feed(records.after(reporting))
        assert answer(outcome) == 1
        assert [each.fact for each in reporting.shared.foreign] == ["libm"]
        reporting.commit(everywhere=True)
    # What was executed is not executed again, and a host that goes on says so.
    with executor(tmp_path / "b", app, "refuse") as going_on:
        catalog = going_on.shared.wanted_catalog()
        assert catalog is not None
        records.add(catalog)
        records.command("p")
        assert [answer(o) for o in going_on.feed(records.after(going_on))] == [1]
        assert going_on.shared.wanted_catalog() is None
        going_on.rollback()
