"""Answers to names that users know from Microsoft's SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

__all__ = ["SdkNames"]

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


class SdkNames:
    """A class that says which of its methods does what a method of the SDK does."""

    if not TYPE_CHECKING:  # all names would exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the method to use where the SDK has one of this name."""
            for kind in type(self).__mro__:
                hint = _HINTS.get(kind.__name__, {}).get(name)
                if hint is not None:
                    raise AttributeError(f"There is no {name} here: {hint}.", name=name, obj=self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
