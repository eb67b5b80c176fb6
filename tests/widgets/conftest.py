"""Panels without a browser: buttons are clicked and values set, which is what a browser's messages do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import ipywidgets as widgets
import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.settlement import Connection, Journal
from sbnotebook.widgets.blocks import Block, Button, Field, nodes_of
from sbnotebook.widgets.panel import Panel

TIMEOUT = 60.0


@pytest.fixture(scope="module")
def shared_emulator() -> Iterator[RunningEmulator]:
    with running(topics={"events": ["audit", "billing"]}) as server:
        yield server


@pytest.fixture
def namespace(shared_emulator: RunningEmulator, tmp_path: Path) -> Iterator[Namespace]:
    target = Target(Connection(shared_emulator.connection_string), "a test")
    with Namespace(target, journal=Journal(tmp_path / "journal.sqlite")) as namespace:
        yield namespace


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something is so that a panel does in the background."""
    deadline = monotonic() + TIMEOUT
    while not condition():
        assert monotonic() < deadline, f"It did not come: {what or condition}"
        sleep(0.01)


def shown(widget: Any) -> Iterator[Any]:
    """A widget and all in it that can be seen."""
    if widget.layout.display != "none":
        yield widget
        for child in getattr(widget, "children", ()):
            yield from shown(child)


def parts(widget: Any) -> Iterator[Any]:
    """A widget and all in it, hidden or not."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def named(widget: Any, name: str) -> Any:
    """The first part of this name."""
    return next(each for each in parts(widget) if getattr(each, "description", None) == name)


def buttons(panel: widgets.Widget) -> list[str]:
    """Return the labels of enabled buttons."""
    return [each.description for each in shown(panel) if isinstance(each, widgets.Button) and not each.disabled]


def click(panel: widgets.Widget, name: str) -> None:
    """Click the button of this name."""
    (found,) = [each for each in shown(panel) if isinstance(each, widgets.Button) and each.description == name]
    found.click()


def write(panel: widgets.Widget, name: str, value: Any) -> None:
    """Write into the field of this name."""
    (field,) = [each for each in shown(panel) if getattr(each, "description", None) == name]
    field.value = value


def said(panel: widgets.Widget) -> str:
    """Return the visible text, line by line."""
    return "\n".join(each.value for each in shown(panel) if isinstance(each, widgets.Label))


# ------------------------------------------------------------ panels of blocks


def blocks(panel: Panel) -> list[Block]:
    """All blocks of a panel."""
    return [block for block, _ in nodes_of(panel.shown_blocks, is_plain=True).values()]


def find(panel: Panel, name: str, kind: type[Block] = Block) -> Any:
    """The one block of a panel with this name."""
    (found,) = [each for each in blocks(panel) if isinstance(each, kind) and getattr(each, "name", None) == name]
    return found


def press(panel: Panel, name: str) -> None:
    """Click the button of this name."""
    button = find(panel, name, Button)
    assert button.is_enabled, name
    panel.act(button)


def fill(panel: Panel, name: str, value: Any) -> None:
    """Write into the field of this name, or choose one of its options."""
    field = find(panel, name, Field)
    panel.act(field, field.options.index(value) if field.type in ("choice", "list", "toggles") else value)


def enabled(panel: Panel) -> list[str]:
    """The names of the buttons that can be clicked."""
    return [each.name for each in blocks(panel) if isinstance(each, Button) and each.is_enabled]
