"""The error tree is complete, documented and survives pickling."""

import inspect
import pickle

from braidlog import errors

TREE = [getattr(errors, name) for name in errors.__all__]


def test_all_lists_every_error_in_order() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.LogError)
    }
    assert errors.__all__ == sorted(defined)


def test_codes_are_unique() -> None:
    codes = [error.code for error in TREE]
    assert len(codes) == len(set(codes))


def test_the_tree_in_the_docstring_names_every_error() -> None:
    text = errors.__doc__ or ""
    assert [name for name in errors.__all__ if f" {name}" not in text] == []


def test_pickling_keeps_message_and_attributes() -> None:
    for error in TREE:
        original = error("something happened")
        for name in vars(original):
            if name not in {"message", "path"}:
                setattr(original, name, 7)
        copy = pickle.loads(pickle.dumps(original))
        assert (type(copy), vars(copy)) == (error, vars(original))
        assert str(copy) == str(original)


def test_the_message_ends_with_the_next_step() -> None:
    error = errors.LogFullError("wal is full", used=9, limit=9)
    assert str(error) == (
        "wal is full. Trim a log or open with a larger wal_bytes_max, then retry"
    )


def test_errors_are_also_the_builtin_ones_callers_expect() -> None:
    assert issubclass(errors.TrimmedError, IndexError)
    assert issubclass(errors.BeyondEndError, IndexError)
    assert issubclass(errors.DeadlineError, TimeoutError)
    assert issubclass(errors.InvalidArgumentError, ValueError)
