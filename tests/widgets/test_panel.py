from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ipywidgets.widgets.widget import _instances  # pyright: ignore[reportPrivateUsage]

from sbnotebook.widgets.blocks import Block
from sbnotebook.widgets.entity_browser import Browser
from sbnotebook.widgets.lock_board import LockBoard
from sbnotebook.widgets.monitor import Monitor
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.triage import Triage
from tests.filled_queues import filled_client_queue

if TYPE_CHECKING:
    import pytest

    from sbnotebook.client import Namespace


class Long(Panel):
    def blocks(self) -> list[Block]:
        return []

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


def test_a_closed_panel_frees_its_parts(namespace: Namespace) -> None:
    dead = filled_client_queue(namespace, "freed", 3)
    makers = (
        lambda: Triage(namespace, "freed"),
        lambda: Browser(namespace),
        lambda: Monitor(namespace, ["freed"]),
        lambda: LockBoard(namespace, dead.lock(1)),
    )
    for make in makers:
        before = len(_instances)
        panel: Any = make()
        panel._repr_mimebundle_()
        panel.close()
        # ipywidgets itself makes a layout and a style for some fields that get others.
        assert len(_instances) <= before + 4, type(panel)


def test_a_notebook_waits_for_nothing() -> None:
    assert import_module("ipykernel") is sys.modules["ipykernel"]
    assert plain_text() == "short"
