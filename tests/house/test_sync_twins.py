"""The synchronous verbs are those that the script writes, and the two packages have the same."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from sbnotebook import client
from scripts.sync_twins import CLIENT, HOMES, MODULES, twin_module


@pytest.mark.parametrize("module", MODULES)
def test_no_synchronous_verb_was_changed_by_hand(module: str) -> None:
    assert Path(CLIENT, f"{module}.py").read_text() == twin_module(module), "edit async_*.py, and run make format"


@pytest.mark.parametrize("name", HOMES)
def test_both_twins_have_the_same_verbs_and_arguments(name: str) -> None:
    one, other = getattr(client, name), getattr(client, f"Async{name}")
    assert verbs(one).keys() <= verbs(other).keys()
    assert verbs(other).keys() - verbs(one).keys() <= {"connect", "read", "of", "is_of"}
    common = verbs(one).keys() & verbs(other).keys()
    assert {verb: verbs(one)[verb] for verb in common} == {verb: verbs(other)[verb] for verb in common}


def verbs(kind: Any) -> dict[str, list[tuple[str, Any]]]:
    """The verbs of a class, with the names and defaults of their arguments."""
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {
        name: [(each.name, each.default) for each in inspect.signature(value).parameters.values()]
        if inspect.isfunction(value)
        else []
        for name, value in found.items()
    }
