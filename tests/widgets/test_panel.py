from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ipywidgets import Label
from ipywidgets.widgets.widget import _instances  # pyright: ignore[reportPrivateUsage]

from sbnotebook.widgets.panel import Panel

if TYPE_CHECKING:
    import pytest


VIEW: Final = "application/vnd.jupyter.widget-view+json"


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


def test_a_front_end_without_our_views_shows_the_parts() -> None:
    assert import_module("ipykernel") is sys.modules["ipykernel"]
    panel: Any = Long([Label("a part")])
    shown: Any = _instances[panel._repr_mimebundle_()[VIEW]["model_id"]]
    (view,) = shown.children
    assert view.children == (panel,)
    shown.use_plain(True)
    assert shown.children == (panel,)
    assert panel._repr_mimebundle_()[VIEW]["model_id"] == shown.model_id
    models = {shown.model_id, view.model_id, panel.model_id}
    panel.close()
    assert not models & _instances.keys()


def test_a_notebook_waits_for_nothing() -> None:
    assert import_module("ipykernel") is sys.modules["ipykernel"]
    assert plain_text() == "short"
