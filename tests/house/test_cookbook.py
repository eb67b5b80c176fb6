"""Every expression of the cookbook for ``where`` can be copied."""

from __future__ import annotations

import re

import pytest

from sbnotebook.analysis.query import where
from sbnotebook.client import connect
from sbnotebook.model import ReceivedMessage
from tests.house.test_docs import ROOT
from tests.pages import HOST, namespace

PAGE = (ROOT / "docs/how-to/query.md").read_text().partition("## Copy an expression\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (?!messages|---)(.+?) \| `(.+)` \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def messages() -> list[ReceivedMessage]:
    with namespace(), connect(HOST) as ns:
        return [
            each
            for entity in ("orders", "orders/$dlq", "carts")
            for each in ns.entity(entity).peek(show_progress=False)
        ]


def test_every_row_is_read() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize(("what", "expression"), ROWS, ids=[what for what, _ in ROWS])
def test_expression_divides_messages(messages: list[ReceivedMessage], what: str, expression: str) -> None:
    rest = where(messages, f"not coalesce({expression}, false)")
    assert len(where(messages, expression)) + len(rest) == len(messages), what
