"""What the browser asks about the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sbnotebook.widgets.table.message_detail import body_part, detail_of
from sbnotebook.widgets.table.rows import Rows, matches

__all__ = ["answer"]


def answer(rows: Rows, name: str, data: Mapping[str, Any]) -> tuple[dict[str, object], list[bytes]]:
    """Answer a question.

    Args:
        rows: of the table.
        name: ``search`` for words in long texts, ``detail`` of the message at a row, or a part of its ``body``.
        data: ``words``; ``row``; or ``row``, ``offset`` and ``as_text``.

    Returns:
        What is to be said, and the bytes with it.
    """
    if name == "search":
        return {}, list(matches(rows.long_texts, [str(word) for word in data["words"]], len(rows)))
    message = rows.messages([int(data["row"])])[0]
    if name == "body":
        return {}, [body_part(message, int(data["offset"]), as_text=bool(data["as_text"]))]
    return detail_of(message), []
