from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sbnotebook.widgets.panel import Panel

if TYPE_CHECKING:
    import pytest


class Long(Panel):
    def __repr__(self) -> str:
        return "short"

    def to_text(self) -> str:
        return "long " * 100


def plain_text() -> str:
    panel: Any = Long()
    return panel._repr_mimebundle_()["text/plain"]


def test_a_terminal_has_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert plain_text() == "long " * 100


def test_a_notebook_waits_for_nothing() -> None:
    assert import_module("ipykernel") is sys.modules["ipykernel"]
    assert plain_text() == "short"
