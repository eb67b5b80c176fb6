"""Two selected messages, or a dead letter and the last good message: what differs."""

from __future__ import annotations

from functools import partial
from typing import Final

from sbnotebook.client import Entity
from sbnotebook.client.difference import MessageDifference, last_good
from sbnotebook.client.messages import Messages
from sbnotebook.errors import DecisionError
from sbnotebook.widgets import background
from sbnotebook.widgets.text_view import Block, TextView, paragraph, rows_block

__all__ = ["comparison_view"]

_MOST: Final = 100
"""Differences that are shown."""
_PAIR: Final = 2
_ABSENT: Final = "(absent)"


def comparison_view(selected: Messages, entity: Entity, whole: Entity) -> TextView:
    """Return a view of what differs between the selected messages; it shows that when it is found.

    Args:
        selected: two messages; or one dead letter, to compare it with the last message of the same subject that was
            neither dead-lettered nor resubmitted.
        entity: where they are.
        whole: the entity to which that belongs, where the good message is.
    """
    view = TextView()
    view.show(paragraph("Comparing …", "quiet"))
    background.start(
        partial(_compared, selected, entity, whole),
        done=lambda found: view.show(*_blocks(found)),
        failed=lambda why: view.show(paragraph(why, "error")),
    )
    return view


def _compared(selected: Messages, entity: Entity, whole: Entity) -> MessageDifference:
    if len(selected) == _PAIR:
        return MessageDifference(selected[0], selected[1])
    if len(selected) != 1 or entity.address.sub_queue is None:
        one = ", or one dead letter to compare it with the last good message" if entity.address.sub_queue else ""
        raise DecisionError(f"Select two messages{one}; {len(selected):,} are selected.")
    return MessageDifference(selected[0], last_good(entity, whole, selected[0]))


def _blocks(found: MessageDifference) -> list[Block]:
    if not found:
        return [paragraph(found.summary)]
    rows = [[_ABSENT if value is None else value for value in row] for row in found.rows(_MOST)]
    more = f" The first {_MOST}:" if len(found) > _MOST else ""
    return [paragraph(f"{found.summary}{more}"), rows_block(found.headers, rows)]
