"""Verbs of this package: their docstrings are the asynchronous library's, and names of Microsoft's SDK lead to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sbnotebook.errors import in_one_frame

_LOCK: Final = "lock(10) locks messages, peek() looks at them, and process(function) consumes them"
_SETTLE: Final = "lock messages with lock(10) and settle them with batch.{0}(…), or settle chosen ones with pick(…)"
_ENTITY: Final = 'entity("orders") sends, and locks, settles and looks at messages'
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
            _ENTITY,
        ),
    },
}
F = TypeVar("F", bound=Callable[..., Any])


class SdkNames:
    """A class that says which of its methods does what a method of the SDK does."""

    if not TYPE_CHECKING:  # all names would exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the method to use where the SDK has one of this name."""
            for kind in type(self).__mro__:
                hint = _HINTS.get(kind.__name__, {}).get(name)
                if hint is not None:
                    raise in_one_frame(AttributeError(f"There is no {name} here: {hint}.", name=name, obj=self))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

        def __await__(self) -> Any:
            """Raise TypeError, because nothing here is a coroutine."""
            said = f"{type(self).__name__} needs no await: leave it out, or use sbnotebook.AsyncNamespace."
            raise in_one_frame(TypeError(said))


def mirrors(verb: object) -> Callable[[F], F]:
    """Give a synchronous verb the docstring of the asynchronous verb that does its work.

    Example:
        >>> @mirrors(sorted)
        ... def in_order(items): ...
        >>> in_order.__doc__[:21]
        'Return a new list con'
    """

    def take_docstring(function: F) -> F:
        function.__doc__ = inspect.getdoc(verb)
        return function

    return take_docstring
