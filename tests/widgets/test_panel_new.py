"""The panel that CONTRIBUTING shows: it is short, works, and is drawn by all four renderers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from sbnotebook.client import Namespace
from sbnotebook.model import Message
from sbnotebook.widgets.renderers.words import html_of, text_of
from tests.filled_queues import filled_client_queue
from tests.widgets.conftest import click, parts, until, write

PAGE: Final = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text()
SUBJECT: Final = "<b>late</b>"


def test_the_panel_of_contributing_is_drawn_four_times(namespace: Namespace) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.partition("## Write a panel")[2], re.MULTILINE | re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    made: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + code, made)  # noqa: S102
    filled_client_queue(namespace, "looked-into", [Message(subject=SUBJECT)] * 3)
    panel = made["Oldest"](namespace, "looked-into")
    assert panel.widget.children == (panel.view,), "in a browser"
    write(panel, "How many", 2)
    click(panel, "Look")
    until(lambda: "2 messages" in text_of(panel.blocks()))  # said when the rows are there
    assert SUBJECT in text_of(panel.blocks())
    assert "&lt;b&gt;late&lt;/b&gt;" in html_of(panel.blocks())
    until(lambda: SUBJECT in str(panel.view.whole()))
    panel.use_plain()
    assert any("&lt;b&gt;late" in str(getattr(part, "value", "")) for part in parts(panel.widget))
    panel.close()
