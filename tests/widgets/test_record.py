"""The record as HTML, without a notebook; `tests/browser/test_record.py` looks at saved notebooks."""

from __future__ import annotations

import re

from sbnotebook.widgets.record import Record
from sbnotebook.widgets.text_view import heading, paragraph, rows_block

SECRET = "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
IMAGE = "<img src=x onerror=alert(1)>"


def test_texts_of_messages_are_escaped_and_secrets_hidden() -> None:
    record = Record()
    record.show([heading(IMAGE), paragraph(SECRET), rows_block([IMAGE], [[IMAGE, 7], [SECRET, 8]], IMAGE)])
    html = record.as_html()
    assert "<img" not in html
    assert "c2VjcmV0" not in html
    assert html.count("&lt;img") == 4
    assert html.count("SharedAccessKey=***") == 2


def test_a_record_needs_nothing_from_elsewhere() -> None:
    record = Record()
    record.show([paragraph("text")])
    assert re.findall(r"<(\w+)", record.as_html()) == ["div", "style", "p"]
    assert "http" not in record.as_html()


def test_a_long_record_is_cut() -> None:
    record = Record()
    record.show([paragraph(f"{number} {'x' * 900}") for number in range(1_000)])
    assert len(record.as_html()) < 310_000
    assert "The record is cut here." in record.as_html()
