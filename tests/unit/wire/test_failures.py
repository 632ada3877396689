"""Errors cross the wire as what they are."""

import pickle
from types import ModuleType

import pytest

from braidlog import errors
from braidlog.errors import LogError
from braidlog.wire import error_codes
from braidlog.wire.codec import decode, encode
from braidlog.wire.connection import HANDSHAKE_BYTES_MAX, HEADER_BYTES
from braidlog.wire.error_codes import ERRORS, error_at, error_of
from braidlog.wire.failures import (
    TEXT_MAX,
    UnknownFailureError,
    decode_failure,
    encode_failure,
)
from braidlog.wire.messages import Failed

TREE = [kind for kind in map(error_of, ERRORS) if kind is not None]


def crossed(error: LogError) -> LogError:
    failed = encode_failure(error)
    received = decode(Failed.KIND, encode(failed), memoryview(b""))
    assert isinstance(received, Failed)
    return decode_failure(received)


@pytest.mark.parametrize("cls", TREE)
def test_every_error_comes_back_with_its_details(cls: type[LogError]) -> None:
    error = cls("something happened")
    for number, (name, value) in enumerate(vars(error).items(), 7):
        if name in {"message", "outcome"} or type(value) not in (int, str):
            continue  # Only numbers and texts cross.
        setattr(error, name, number if isinstance(value, int) else f"d{number}")
    back = crossed(error)
    assert type(back) is cls
    assert vars(back) == vars(error)
    assert (str(back), back.outcome) == (str(error), error.outcome)


@pytest.mark.parametrize("unknown", [False, True])
def test_the_outcome_of_the_instance_counts(unknown: bool) -> None:
    back = crossed(errors.SealedError("sealed", epoch=3, unknown=unknown))
    assert back.outcome == ("unknown" if unknown else "not_stored")
    plain = decode_failure(Failed(14, "not ready", {}, unknown))
    assert plain.outcome == ("unknown" if unknown else "not_stored")


def test_codes_of_a_newer_version_are_kept_and_passed_on() -> None:
    back = decode_failure(Failed(9999, "odd", {"first": 7}, True))
    assert isinstance(back, UnknownFailureError)
    assert (back.code, back.details, back.outcome) == (9999, {"first": 7}, "unknown")
    assert encode_failure(back) == Failed(9999, "odd", {"first": 7}, True)
    copy = pickle.loads(pickle.dumps(back))
    assert (copy.code, copy.details) == (9999, {"first": 7})


def test_details_set_only_what_the_class_has() -> None:
    hostile: dict[str, int | str] = {
        "first": "seven",
        "hint": 5,
        "message": "other",
        "outcome": "maybe",
        "__class__": 1,
        "args": "x",
    }
    back = decode_failure(Failed(errors.TrimmedError.code, "trimmed", hostile))
    assert isinstance(back, errors.TrimmedError)
    assert vars(back) == vars(errors.TrimmedError("trimmed"))
    assert back.args == ("trimmed",)


def test_an_error_brings_the_hint_that_is_its_own() -> None:
    told = errors.InvalidArgumentError("'..' cannot be a name").advising("Say another")
    back = decode_failure(encode_failure(told))
    assert str(back) == "'..' cannot be a name. Say another"
    assert errors.InvalidArgumentError.hint == ""


def test_a_failure_is_never_too_large_and_always_text() -> None:
    error = errors.UnavailableError("m" * 10_000, path="/a\udcff" + "p" * 10_000)
    failed = encode_failure(error)
    assert len(failed.message) == TEXT_MAX
    assert failed.details["path"] == "/a?" + "p" * (TEXT_MAX - 3)
    wide = "\U0001f4dc" * 5000
    details: dict[str, int | str] = {f"{n}{wide}": wide for n in range(100)}
    passed_on = UnknownFailureError(wide, details=details)
    size = HEADER_BYTES + len(encode(encode_failure(passed_on)))
    assert size <= HANDSHAKE_BYTES_MAX
    assert "used" not in encode_failure(errors.LogFullError("", used=2**64)).details


def test_the_registry_gives_each_class_its_own_code() -> None:
    assert {code: error_of(code) for code in ERRORS} == {
        kind.code: kind for kind in TREE
    }
    assert len(ERRORS) == len(set(ERRORS.values())) > 70
    named = [error_at(kind.__module__, kind.__qualname__) for kind in TREE]
    assert named == TREE


def test_what_is_not_registered_is_no_class() -> None:
    assert error_of(9999) is None
    assert error_at("os", "system") is None
    assert error_at("braidlog.errors", "NewError") is None


def test_a_class_whose_extra_is_not_installed_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = "cbor2"

    def fail(module: str) -> ModuleType:
        raise ModuleNotFoundError(module, name=missing)

    monkeypatch.setattr(error_codes, "import_module", fail)
    back = decode_failure(Failed(112, "busy", {"queued": 7}))
    assert isinstance(back, UnknownFailureError)
    assert (back.code, back.details) == (112, {"queued": 7})
    missing = "braidlog.app"  # A module of the package itself: that is a bug.
    with pytest.raises(ModuleNotFoundError):
        decode_failure(Failed(112, "busy", {}))
