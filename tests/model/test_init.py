from __future__ import annotations

import dataclasses
import pkgutil
from importlib import import_module

import pytest

import sbnotebook.model

MODULES = [
    import_module(found.name)
    for found in pkgutil.walk_packages(sbnotebook.model.__path__, "sbnotebook.model.")
    if not found.ispkg
]
VALUES = {
    value.__name__: value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
}


@pytest.mark.parametrize("name", sorted(VALUES))
def test_values_are_frozen_and_small(name: str) -> None:
    value = VALUES[name]
    assert getattr(value, "__dataclass_params__").frozen == (name != "Tally")  # noqa: B009
    assert "__dict__" not in dir(value)


@pytest.mark.parametrize("name", ["Message", "LockedMessage", "PeekedMessage", "ReceivedMessage"])
def test_messages_take_their_fields_by_name(name: str) -> None:
    with pytest.raises(TypeError, match="positional"):
        getattr(sbnotebook.model, name)(sbnotebook.model.EntityAddress("orders"), 7)
