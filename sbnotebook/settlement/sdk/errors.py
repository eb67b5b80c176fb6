"""Errors of the SDK: the AMQP condition behind one, and refusals in better words."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

    from sbnotebook.settlement.sdk.management import Browser

__all__ = ["answered_within", "as_service_bus_error", "condition_of", "explain_refusals"]

_LOGGER: Final = logging.getLogger(__name__)


def condition_of(error: BaseException) -> tuple[str | None, bool | None]:
    """The AMQP condition of an SDK exception, and whether the SDK holds a retry to be useful."""
    condition = getattr(error, "_condition", None)
    return (str(condition) if condition else None), getattr(error, "_retryable", None)


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


@contextlib.contextmanager
def as_service_bus_error(receiver: ServiceBusReceiver) -> Generator[None]:
    """Raise what a request to the management node raises as an error that users know.

    Args:
        receiver: whose request it is.
    """
    try:
        yield
    except AMQPException as error:
        raise receiver._amqp_transport.create_servicebus_exception(_LOGGER, error) from error
    except ValueError as error:
        if "Management Operation" not in str(error):
            raise
        # So the SDK says that the link is detached, as the service does where nothing goes for ten minutes.
        raise ServiceBusConnectionError(message="The link to the management node is gone.") from error


@contextlib.contextmanager
def answered_within(seconds: float) -> Generator[None]:
    """Wait so long for an answer, and no longer.

    Raises:
        TimeoutError: it did not come; says so, unlike anyio's own.
    """
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"No answer came within {seconds:g} second{'s' if seconds != 1 else ''}.") from None
