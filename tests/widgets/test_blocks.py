"""Each type of block is shown by each renderer, and hostile texts are texts in all of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import ipywidgets
import pytest

from sbnotebook.widgets import blocks
from sbnotebook.widgets.blocks import (
    Block,
    Button,
    Chart,
    Code,
    Column,
    Field,
    Grid,
    Menu,
    Progress,
    Row,
    Table,
    Text,
    Title,
    Tree,
    answer,
    nodes_of,
)
from sbnotebook.widgets.renderers.browser import BrowserView, difference
from sbnotebook.widgets.renderers.plain import PlainView, close_all
from sbnotebook.widgets.renderers.words import html_of, text_of
from tests.widgets.conftest import parts

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
SHOWN = "<img src=x onerror=alert(1)>⟨U+202E⟩⟨ESC⟩[31m"
ESCAPED = "&lt;img src=x onerror=alert(1)&gt;⟨U+202E⟩⟨ESC⟩[31m"
TYPES = ("text", "area", "suggest", "choice", "list", "toggles")


def nothing(*_: object) -> None:
    """Do nothing."""


def samples() -> list[Block]:
    button = Button(HOSTILE, nothing, HOSTILE, "danger", "stop")
    return [
        Title(HOSTILE),
        Text(HOSTILE, "error"),
        Code(HOSTILE),
        Table([HOSTILE], [[HOSTILE], [7]], HOSTILE),
        Chart(HOSTILE, [1_000, 2_000], {HOSTILE: [1.0, None]}),
        Progress(0.5),
        button,
        *(Field(HOSTILE, HOSTILE, nothing, kind, [HOSTILE], HOSTILE, HOSTILE, key=kind) for kind in TYPES),
        Row([Text(HOSTILE)]),
        Column([Text(HOSTILE)], HOSTILE, "form"),
        Menu(HOSTILE, [button]),
        Grid(ipywidgets.Label(), lambda: [Text(HOSTILE)]),
        Tree([Text(HOSTILE)], [], HOSTILE, [], nothing, lambda: [Text(HOSTILE)], HOSTILE),
    ]


def test_each_type_of_block_has_a_sample() -> None:
    kinds = {each for each in vars(blocks).values() if isinstance(each, type) and issubclass(each, Block)}
    assert kinds - {Block} == {type(each) for each in samples()}
    assert all(fields(kind) for kind in kinds)


@pytest.mark.parametrize("block", samples(), ids=lambda block: f"{type(block).__name__}-{getattr(block, 'key', '')}")
def test_hostile_texts_are_texts_in_all_renderers(block: Block) -> None:
    clickable = (Button, Menu, Progress, Row)
    nodes = {place: node for place, (_, node) in nodes_of([block]).items()}
    # In the browser all is text, and made visible; what the user wrote stays as it is.
    said = str([{name: value for name, value in node.items() if name != "value"} for node in nodes.values()])
    assert "\u202e" not in said
    assert SHOWN in said or isinstance(block, (Progress, Grid, Code))

    page, terminal = html_of([block]).replace("<wbr>", ""), text_of([block])
    assert "<img" not in page
    assert ESCAPED in page or isinstance(block, (*clickable[:3], Code, Table)), page
    assert "\x1b" not in terminal or isinstance(block, Code)
    assert terminal or isinstance(block, clickable)

    view = PlainView(nothing)
    view.draw([block])
    drawn = [part for part in parts(view) if isinstance(part, ipywidgets.HTML)]
    assert all("<img" not in part.value for part in drawn)
    assert [part for part in parts(view) if part is not view], "something is drawn"
    close_all(view)


def test_a_renderer_answers_with_the_block_and_the_chosen_option() -> None:
    heard: list[object] = []
    tree = [
        Button("Go", lambda: heard.append("went")),
        Field("Which", "b", heard.append, "choice", ["a", "b"]),
        Field("How many", 3, heard.append, "number", limits=(1, 9)),
        Button("Not now", lambda: heard.append("never"), is_enabled=False),
    ]
    plain = PlainView(answer)
    plain.draw(tree)
    _, go, which, count, never = plain.children
    go.click()
    which.index = 0
    count.value = 5
    never.click()
    assert heard == ["went", "a", 5]

    heard.clear()
    view: Any = BrowserView(tree, answer)
    for place, value in (
        ("/button-Go", None),
        ("/field-choice-Which", 1),
        ("/button-Gone", None),
        ("/button-Not now", None),
    ):
        view._handle_custom_msg({"kind": "act", "place": place, "value": value}, [])  # noqa: SLF001 (as ipywidgets does)
    assert heard == ["went", "b"]


def test_a_page_is_sent_only_what_differs() -> None:
    def nodes(times: list[int], *texts: str) -> Any:
        tree = [Chart("Counts", times, {"active": [*map(float, times)]}), *(Text(text, key=text[0]) for text in texts)]
        return {place: node for place, (_, node) in nodes_of(tree).items()}

    before, now = nodes([*range(100)], "a1", "b1"), nodes([*range(1, 101)], "a1", "b2", "c1")
    changes = difference(before, now)
    assert changes["gone"] == []
    assert changes["nodes"]["/chart"] == {
        "times": {"dropped": 1, "added": [100]},
        "line0": {"dropped": 1, "added": [100.0]},
    }
    assert changes["nodes"]["/text-b"] == {"text": "b2"}
    assert changes["nodes"]["/text-c"]["kind"] == "text"
    assert "/text-a" not in changes["nodes"]
    assert difference(now, before)["gone"] == ["/text-c"]
