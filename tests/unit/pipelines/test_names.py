"""What the package names is there, and is what the name says."""

import inspect

from braidlog import pipelines


def test_every_name_is_loaded_when_it_is_used() -> None:
    found = {name: getattr(pipelines, name) for name in pipelines.__all__}
    for name, value in found.items():
        assert (inspect.isclass if name[0].isupper() else inspect.isfunction)(value)
        assert value.__name__ == name
    # A module of the same name would hide a function as soon as it is imported.
    for name in pipelines.__all__:
        assert getattr(pipelines, name) is found[name]
