"""Refusals in better words, below the SDK's public interface, as :mod:`sbnotebook.settlement.sdk_internals` is.

The SDK has one place where each of its senders and receivers looks at an error and decides whether to try again.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from azure.servicebus.exceptions import ServiceBusError

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

    from sbnotebook.settlement.sdk_internals import Browser

__all__ = ["explain_refusals"]


def explain_refusals(
    client: ServiceBusReceiver | ServiceBusSender | Browser, explained: Callable[[ServiceBusError], str | None]
) -> None:
    """Make a sender or receiver raise a refusal at once, in better words, in place of asking again for many seconds.

    Args:
        client: not open yet.
        explained: gives the words for an error, None for one that may pass.
    """
    handle: Any = client._handle_exception

    async def handle_or_explain(exception: Exception) -> Exception:
        try:
            error = await handle(exception)
        except ServiceBusError as final:
            _raise_explained(final, explained)
            raise
        _raise_explained(error, explained)
        return error

    client._handle_exception = handle_or_explain


def _raise_explained(error: Any, explained: Callable[[ServiceBusError], str | None]) -> None:
    words = explained(error) if isinstance(error, ServiceBusError) else None
    if words is not None:
        # Those of the SDK's exceptions that have a meaning take no message by position.
        clear = ServiceBusError(words) if type(error) is ServiceBusError else type(error)(message=words)
        clear._condition, clear._retryable = error._condition, False
        raise clear from error
