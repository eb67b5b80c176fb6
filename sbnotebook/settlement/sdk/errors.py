"""The SDK's errors: the AMQP condition of each, and refusals in clearer words."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbnotebook.settlement.sdk.protocol import AMQPException, AnyClient, private

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

_LOGGER: Final = logging.getLogger(__name__)


def condition_of(error: BaseException) -> tuple[str | None, bool | None]:
    """Return the AMQP condition of an SDK exception, and whether the SDK thinks that a retry can help."""
    condition = getattr(error, "_condition", None)
    return (str(condition) if condition else None), getattr(error, "_retryable", None)


def explain_refusals(
    client: AnyClient,
    explained: Callable[[ServiceBusError], Awaitable[ServiceBusError | None]],
    opened: Callable[[], None],
) -> None:
    """Make a client raise a refusal at once and in clearer words, instead of retrying it for many seconds."""
    parts = private(client)
    # The one place where the SDK's clients look at an error and decide whether to try again.
    handle, open_once = parts._handle_exception, parts._open

    async def handle_or_explain(exception: Exception) -> Exception:
        try:
            error = await handle(exception)
        except ServiceBusError as final:
            await _raise_explained(final, explained)
            raise
        await _raise_explained(error, explained)
        return error

    async def open_and_tell(*args: Any, **options: Any) -> None:
        await open_once(*args, **options)
        opened()

    parts._handle_exception, parts._open = handle_or_explain, open_and_tell


async def _raise_explained(
    error: Exception, explained: Callable[[ServiceBusError], Awaitable[ServiceBusError | None]]
) -> None:
    if not isinstance(error, ServiceBusError):
        return
    clear = await explained(error)
    if clear is not None:
        private(clear)._condition, private(clear)._retryable = private(error)._condition, False
        raise clear from error


def with_words(error: ServiceBusError, words: str) -> ServiceBusError:
    """Return an error of the same class with another text."""
    # Only the base class takes its message by position.
    return ServiceBusError(words) if type(error) is ServiceBusError else type(error)(message=words)


@contextlib.contextmanager
def as_service_bus_error(receiver: ServiceBusReceiver) -> Generator[None]:
    """Turn the SDK's internal errors of a management request into its public ones."""
    try:
        yield
    except AMQPException as error:
        raise private(receiver)._amqp_transport.create_servicebus_exception(_LOGGER, error) from error
    except ValueError as error:
        if "Management Operation" not in str(error):
            raise
        # The SDK says this when the link is detached. The service detaches a link after ten idle minutes.
        raise ServiceBusConnectionError(message="The link to the management node is gone.") from error


@contextlib.contextmanager
def answered_within(seconds: float) -> Generator[None]:
    """Limit how long the block waits for an answer, in seconds."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"No answer came within {seconds:g} second{'s' if seconds != 1 else ''}.") from None
