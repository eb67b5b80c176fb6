"""The SDK's errors: the AMQP condition of each, and refusals in clearer words."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import anyio
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbnotebook.settlement.sdk.private import AMQPException, private

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

_LOGGER: Final = logging.getLogger(__name__)


def condition_of(error: BaseException) -> tuple[str | None, bool | None]:
    """Return the AMQP condition of an SDK exception, and whether the SDK thinks that a retry can help."""
    condition = getattr(error, "_condition", None)
    return (str(condition) if condition else None), getattr(error, "_retryable", None)


def with_words(error: ServiceBusError, words: str) -> ServiceBusError:
    # Only the base class takes its message by position.
    return ServiceBusError(words) if type(error) is ServiceBusError else type(error)(message=words)


def given_up(error: ServiceBusError) -> ServiceBusError:
    private(error)._retryable = False  # by the SDK, which would wait as long again
    return error


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
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"No answer came within {seconds:g} second{'s' if seconds != 1 else ''}.") from None
