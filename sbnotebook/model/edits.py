"""Edits: functions that change the messages of a resubmit, what they change, and how they fail."""

from __future__ import annotations

import functools
import inspect
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sbnotebook.errors import DecisionError, let_interrupt_pass
from sbnotebook.model.body import fault_of_bytes, read_form
from sbnotebook.model.connection_strings import scrub
from sbnotebook.model.json_text import read_json, write_json
from sbnotebook.model.message import Message, ReceivedMessage

Edit = Callable[[ReceivedMessage], Message]
"""Gives the message that is sent in place of the one it is given; ``message.with_changes(…)`` makes one."""
JsonEdit = Callable[[Any], Any]
"""Gives the JSON that is sent in place of the one it is given, or changes that in place and gives None."""

_Pair = tuple[str, Any, Any]

_SHOWN_NAME: Final = 80
_SHOWN_VALUE: Final = 2_000
_ABSENT: Final = "(absent)"
_OURS: Final = str(Path(__file__).parents[1])
_EDIT: Final = "the edit"
_TRY_SECONDS: Final = 2.0
"""Seconds for which a preview tries an edit on messages that it does not show."""


@dataclass(frozen=True, slots=True)
class EditChange:
    """One field of one message before and after an edit, as text."""

    sequence_number: int
    field: str
    before: str
    after: str


def refuse_coroutine_function(function: object, what: str) -> None:
    """Refuse an ``async def`` in place of an ordinary function: its result would never be awaited.

    Args:
        function: that a user gave.
        what: names it, such as ``An edit``.

    Raises:
        DecisionError: it is one.
    """
    if inspect.iscoroutinefunction(function):
        raise DecisionError(f"{what} is an ordinary function here, not an async one.")


def edit_json(function: JsonEdit) -> Edit:
    """Make an edit for a resubmit of a function that changes the JSON of a body.

    The clone is packed as the original was, and all that the function leaves alone stays as it was written: the digits
    of numbers, spaces, the order of names.

    Args:
        function: gets the body as a dict or a list. It changes it in place, or returns the new one.

    Returns:
        A function for ``edit=``; ``edit_json`` is a decorator, too.

    Raises:
        DecisionError: the function is an ``async def``.

    Example:
        >>> from sbnotebook.model import EntityAddress
        >>> @edit_json
        ... def repair(order):
        ...     order["carrier"] = "UPS"
        >>> letter = ReceivedMessage(entity=EntityAddress("orders"), sequence_number=7, body='{"carrier": "DHL"}')
        >>> repair(letter).body
        b'{"carrier": "UPS"}'
    """
    refuse_coroutine_function(function, "An edit")

    @functools.wraps(function)
    def edit(message: ReceivedMessage) -> Message:
        document = message.json
        returned = function(document)
        return message.with_changes(json=document if returned is None else returned)

    return edit


def edited_by(edit: Edit, message: ReceivedMessage) -> Message:
    """Return what an edit makes of a message.

    Args:
        edit: of a resubmit.
        message: the original.

    Raises:
        DecisionError: the edit failed, gave something else than a message, or a body that is not packed as the
            original was. The sentence names the message and the line.
    """
    number = f"message #{message.sequence_number}"
    try:
        edited: Any = edit(message)
    except BaseException as error:  # noqa: BLE001 (a user's edit may raise anything)
        let_interrupt_pass(error)
        # Also sys.exit(): where it passed, it would end the loop of all namespaces.
        raise DecisionError(f"The edit failed for {number}{_line_of(edit, error)}: {_reason(error)}") from None
    if not isinstance(edited, Message):
        raise DecisionError(
            f"The edit gave {type(edited).__name__} for {number}: it must return the message to send, such as "
            "message.with_changes(…). To change the JSON of the body, use edit_json(function)."
        )
    fault = fault_of_bytes(message.body, message.marks, edited.body, edited.marks)
    if fault is not None:
        raise DecisionError(
            f"The edit of {number} is refused: {fault} Give message.with_changes(json=…), or a text as body."
        )
    return edited


def _reason(error: BaseException) -> str:
    if isinstance(error, DecisionError):  # ours: a sentence
        return _line(error)
    is_of_message = isinstance(error, (TypeError, AttributeError)) and "Message'" in str(error)
    hint = ". The function gets a message: for the JSON of its body, use edit_json(function)" if is_of_message else ""
    return f"{type(error).__name__}: {_line(error)}{hint}"


def _line(error: BaseException) -> str:
    return scrub(" ".join(str(error).split()), _SHOWN_VALUE)


def _line_of(edit: Edit, error: BaseException) -> str:
    """Return the line of the user's function at which an edit failed."""
    function: Any = inspect.unwrap(edit)
    code = getattr(function, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    # An object that is called, such as a partial: the last frame that is not of sbnotebook.
    theirs = [frame for frame in own or frames if not frame.filename.startswith(_OURS)]
    if not theirs:
        return ""
    found = theirs[-1]
    return f", line {found.lineno} of {found.name}" if found.name.isidentifier() else f", line {found.lineno}"


def edit_changes(message: ReceivedMessage, edit: Edit) -> list[EditChange]:
    """Return what an edit changes in a message, field by field; an edit that fails counts as a change.

    Args:
        message: the original.
        edit: of a resubmit.

    Example:
        >>> from sbnotebook.model import EntityAddress
        >>> letter = ReceivedMessage(entity=EntityAddress("orders"), sequence_number=7, body="a")
        >>> edit_changes(letter, lambda message: message.with_changes(body="b"))
        [EditChange(sequence_number=7, field='body', before='a', after='b')]
    """
    try:
        edited = edited_by(edit, message)
    except DecisionError as error:
        return [EditChange(message.sequence_number, _EDIT, "", str(error))]
    names = [name for name in Message.__dataclass_fields__ if name not in ("body", "application_properties", "extras")]
    pairs = [
        *((name, getattr(message, name), getattr(edited, name)) for name in names),
        *_body_pairs(message, edited),
        *_entries("property ", message.application_properties, edited.application_properties),
        *_entries("extra ", message.extras, edited.extras),
    ]
    return [
        EditChange(message.sequence_number, _shown(name), str(before)[:_SHOWN_VALUE], str(after)[:_SHOWN_VALUE])
        for name, before, after in pairs
        if before is not after and before != after
    ]


def _body_pairs(before: Message, after: Message) -> list[_Pair]:
    """Return the bodies, entry by entry where both are JSON objects, so that the changed entry can be seen."""
    old, new = (str(read_form(message.body, message.marks)[1]) for message in (before, after))
    form: list[_Pair] = [("form of the body", old, new)] if old != new else []
    texts = before.body_text, after.body_text
    if before.body == after.body and texts[0] == texts[1]:
        return form
    entries = [pair for pair in _json_entries(*texts) if pair[1] != pair[2]]
    if entries:
        return [*entries, *form]
    if None in texts or texts[0] == texts[1]:  # what changed is not in the texts
        return [("body", before.body, after.body), *form]
    return [("body", *texts), *form]


def _json_entries(before: str | None, after: str | None) -> list[_Pair]:
    try:
        objects: list[Any] = [read_json(text) for text in (before, after)]
    except DecisionError:
        return []
    if not all(isinstance(item, dict) for item in objects):
        return []
    texts = [
        {name: each if isinstance(each, str) else write_json(each) for name, each in item.items()} for item in objects
    ]
    return _entries("body.", *texts)


def _entries(prefix: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[_Pair]:
    return [(f"{prefix}{key}", before.get(key, _ABSENT), after.get(key, _ABSENT)) for key in {**before, **after}]


def _shown(name: str) -> str:
    # Keys come from messages, too.
    return name[:_SHOWN_NAME] if name.isprintable() else repr(name[:_SHOWN_NAME])


def effect_of(
    edit: Edit, messages: Sequence[ReceivedMessage], shown: Sequence[ReceivedMessage], changes: Sequence[EditChange]
) -> str:
    """Return which messages an edit leaves as they are, and which it cannot change, as sentences."""
    changed = {change.sequence_number for change in changes}
    same = sum(message.sequence_number not in changed for message in shown)
    said = f" It changes nothing in {same:,} of the first {len(shown):,}." if same else ""
    refused, start, tried = [change.after for change in changes if change.field == _EDIT], time.monotonic(), len(shown)
    for message in messages[len(shown) :]:
        if time.monotonic() - start > _TRY_SECONDS:
            break
        tried += 1
        try:
            edited_by(edit, message)
        except DecisionError as error:
            refused.append(str(error))
    if not refused:
        return said
    of = f"{tried:,}" if tried == len(messages) else f"the first {tried:,}"
    stay = "which stays where it is" if len(refused) == 1 else "which stay where they are"
    return f"{said} It is refused for {len(refused):,} of {of}, {stay}: {' '.join(refused[:3])}"
