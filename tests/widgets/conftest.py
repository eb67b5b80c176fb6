"""Panels without a browser: buttons are clicked and values set, which is what a browser's messages do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.widgets.blocks import CHOICES, Block, Button, Column, Field, Grid, Menu, Row, nodes_of
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.renderers.words import text_of
from tests.namespaces import opened

TIMEOUT = 60.0


@pytest.fixture(scope="module")
def shared_emulator() -> Iterator[RunningEmulator]:
    with running(topics={"events": ["audit", "billing"]}) as server:
        yield server


@pytest.fixture
def namespace(shared_emulator: RunningEmulator, tmp_path: Path) -> Iterator[Namespace]:
    with opened(shared_emulator.connection_string, tmp_path) as namespace:
        yield namespace


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something is so that a panel does in the background."""
    deadline = monotonic() + TIMEOUT
    while not condition():
        assert monotonic() < deadline, f"It did not come: {what or condition}"
        sleep(0.01)


def parts(widget: Any) -> Iterator[Any]:
    """A widget of ipywidgets and all in it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def blocks(panel: Panel) -> list[Block]:
    """All blocks of a panel, without the rows of its tables of messages."""
    return [block for block, _ in nodes_of(panel.shown_blocks).values()]


def plain_blocks(panel: Panel) -> list[Block]:
    """All blocks of a panel where no script of ours is loaded."""
    return [block for block, _ in nodes_of(panel.shown_blocks, is_plain=True).values()]


def find(panel: Panel, name: str, among: Callable[[Panel], list[Block]] = blocks) -> Any:
    """The one button or field of a panel with this name, as soon as it is there."""

    def found() -> list[Block]:
        return [each for each in among(panel) if isinstance(each, (Button, Field)) and each.name == name]

    until(found, name)
    (one,) = found()
    return one


def click(panel: Panel, name: str, among: Callable[[Panel], list[Block]] = blocks) -> None:
    """Click the button of this name."""
    button = find(panel, name, among)
    assert button.is_enabled, name
    panel.act(button)


def write(panel: Panel, name: str, value: Any, among: Callable[[Panel], list[Block]] = blocks) -> None:
    """Write into the field of this name, or choose one of its options."""
    field = find(panel, name, among)
    panel.act(field, field.options.index(value) if field.type in CHOICES else value)


def buttons(panel: Panel) -> list[str]:
    """The names of the buttons that can be clicked."""
    return [each.name for each in blocks(panel) if isinstance(each, Button) and each.is_enabled]


def names(panel: Panel) -> list[str]:
    """The names of all buttons and fields."""
    return [each.name for each in blocks(panel) if isinstance(each, (Button, Field))]


def said(panel: Panel) -> str:
    """What the panel says, without the rows of its tables of messages."""
    return text_of([each for each in blocks(panel) if not isinstance(each, (Grid, Row, Column, Menu))])
