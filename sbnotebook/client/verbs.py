"""Twins of the verbs, the arguments that many share, and hints for names of Microsoft's SDK."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from sbnotebook.analysis import tables
from sbnotebook.errors import in_one_frame
from sbnotebook.settlement import Preview

_LOCK: Final = "lock(10) locks messages, peek() looks at them, and process(function) consumes them"
_SETTLE: Final = "lock messages with lock(10) and settle them with batch.{0}(…), or settle chosen ones with pick(…)"
_HINTS: Final = {
    "Entity": {
        "receive": _LOCK,
        "receive_messages": _LOCK,
        "receive_deferred_messages": "deferred() finds them, and its plans settle them",
        "peek_messages": "use peek",
        "send_messages": "use send",
        "schedule_messages": "use schedule",
        "cancel_scheduled_messages": "use cancel_scheduled",
        **{verb: _SETTLE.format(verb) for verb in ("complete", "abandon", "defer", "dead_letter", "release")},
        **{f"{verb}_message": _SETTLE.format(verb) for verb in ("complete", "abandon", "defer", "dead_letter")},
    },
    "LockedBatch": {
        **{f"{verb}_message": f"use {verb}" for verb in ("complete", "abandon", "defer", "dead_letter")},
        "receive_messages": "use receive",
        "renew_message_lock": "locks are renewed by themselves, and extend(…) renews them for longer",
    },
    "Messages": {
        **dict.fromkeys(
            (
                *("columns", "describe", "dtypes", "filter", "groupby", "head", "iloc", "info", "iterrows", "loc"),
                *("merge", "query", "sample", "shape", "sort_values", "tail", "to_csv", "to_dict", "value_counts"),
            ),
            "to_pandas() gives a pandas frame, which has it",
        ),
        **dict.fromkeys(("complete", "abandon", "dead_letter"), "entity.pick(messages, …) settles peeked messages"),
    },
    "Namespace": {
        "list_queues": "use entities",
        **dict.fromkeys(
            (
                *("get_queue_receiver", "get_queue_sender", "get_subscription_receiver", "get_topic_sender"),
                *("queue", "topic", "subscription"),
            ),
            'entity("orders") sends, and locks, settles and looks at messages',
        ),
    },
}
ARGUMENTS: Final = {
    "archived": "False to remove messages for good; otherwise ``namespace.undo`` can send them back.",
    "description": "the fault of the message.",
    "error_description": "the name of ``description`` in the SDK, which is accepted, too.",
    "max_in_flight": 'the most operations in progress at once; ``"auto"`` adapts to the network.',
    "rate": "messages a second at most, None for no limit.",
    "reason": "short, and the same for the same cause.",
    "show_progress": "False for no bar.",
    "stop_at": "the share of a batch, from 0 to 1, that stops the others when it is dead-lettered again; 0 for any.",
    "watch": "for how long the clones of a batch are watched at most.",
    "where": "only messages for which this SQL expression over the message columns is true.",
}
"""The documentation of arguments that many verbs take. A docstring with its own line for an argument keeps it."""
_SECTIONS: Final = re.compile(r"^(?:Returns|Raises|Yields|Example|Source)\b.*:", re.MULTILINE)
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class SdkNames:
    """A class that says which of its methods does what a method of the SDK does."""

    if not TYPE_CHECKING:  # all names would exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the method to use where the SDK has one of this name."""
            for kind in type(self).__mro__:
                hint = _HINTS.get(kind.__name__.removeprefix("Async"), {}).get(name)
                if hint is not None:
                    raise in_one_frame(AttributeError(f"There is no {name} here: {hint}.", name=name, obj=self))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

        def __await__(self) -> Any:
            """Raise TypeError, because nothing here is a coroutine."""
            said = f"{type(self).__name__} needs no await: leave it out, or use sbnotebook.AsyncNamespace."
            raise in_one_frame(TypeError(said))


class Twin(SdkNames, Generic[T]):
    """A synchronous class: each of its verbs runs the same verb of its asynchronous twin on the background loop."""

    def __init__(self, asynchronous: T) -> None:
        self.asynchronous = asynchronous
        """The asynchronous twin."""


class ShownAsPreview:
    preview: Callable[..., Any]

    def _previewed(self) -> Preview:
        return self.preview()

    def __repr__(self) -> str:
        return tables.preview_text(self._previewed())

    def _repr_html_(self) -> str:
        return tables.preview_html(self._previewed())


def moved(successor: str, *names: str) -> Callable[[F], F]:
    """Let a verb answer arguments that it had with what takes them now."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            if gone := [name for name in names if name in given]:
                raise in_one_frame(TypeError(f"{function.__name__} has no argument {gone[0]}: use {successor}."))
            return function(*args, **given)

        return cast("F", call)

    return decorate


def twin_of(value: Any) -> Any:
    return getattr(value, "asynchronous", value)


def documented(kind: C) -> C:
    """Give the docstrings of a class the arguments that many verbs have."""
    for function in vars(kind).values():
        if inspect.isfunction(function) and function.__doc__ and not function.__name__.startswith("_"):
            function.__doc__ = with_arguments(function.__doc__, [*inspect.signature(function).parameters])
    return kind


def with_arguments(docstring: str, names: Sequence[str]) -> str:
    text = inspect.cleandoc(docstring)
    lacking = [name for name in names if name in ARGUMENTS and f"\n    {name}:" not in text]
    if not lacking or "\nArgs:\n" not in text:
        return text
    lines = "\n".join(f"    {name}: {ARGUMENTS[name]}" for name in lacking)
    section = _SECTIONS.search(text)
    place = section.start() if section else len(text)
    head, rest = text[:place].rstrip(), text[place:]
    return f"{head}\n{lines}\n\n{rest}" if rest else f"{head}\n{lines}"
