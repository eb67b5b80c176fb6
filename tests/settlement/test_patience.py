from __future__ import annotations

from collections.abc import Callable

import pytest
from azure.servicebus.exceptions import (
    MessageLockLostError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.patience import is_transient, patiently

pytestmark = pytest.mark.anyio
ORDERS = EntityAddress("orders")


class Attempt:
    """Fails some times before it answers."""

    def __init__(self, failures: int, error: Callable[[], Exception]) -> None:
        self.failures, self.error, self.count = failures, error, 0

    async def __call__(self, word: str) -> str:
        self.count += 1
        if self.count <= self.failures:
            raise self.error()
        return word


@pytest.mark.parametrize("error", [ServiceBusConnectionError, ServiceBusServerBusyError, TimeoutError, OSError])
async def test_what_has_no_answer_is_tried_again(error: Callable[[], Exception]) -> None:
    attempt = Attempt(2, error)
    assert await patiently(attempt, "done", address=ORDERS) == "done"
    assert attempt.count == 3


@pytest.mark.parametrize("error", [MessageLockLostError, ServiceBusAuthorizationError, ZeroDivisionError])
async def test_what_was_refused_or_is_wrong_is_not_tried_again(error: type[Exception]) -> None:
    attempt = Attempt(1, error)
    with pytest.raises(error):
        await patiently(attempt, "done", address=ORDERS)
    assert attempt.count == 1


async def test_patience_ends() -> None:
    attempt = Attempt(1000, ServiceBusConnectionError)
    with pytest.raises(ServiceBusConnectionError):
        await patiently(attempt, "done", address=ORDERS, patience=0.6)
    assert 1 < attempt.count < 5


async def test_only_a_busy_service_is_asked_again_if_so_wanted() -> None:
    busy, lost = Attempt(1, ServiceBusServerBusyError), Attempt(1, ServiceBusConnectionError)
    assert await patiently(busy, "done", address=ORDERS, only_busy=True) == "done"
    with pytest.raises(ServiceBusConnectionError):
        await patiently(lost, "done", address=ORDERS, only_busy=True)
    assert (busy.count, lost.count) == (2, 1)


def unreachable(*, retryable: bool | None) -> ServiceBusConnectionError:
    error = ServiceBusConnectionError()
    error._retryable = retryable  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return error


async def test_a_busy_service_and_a_lost_connection_pass() -> None:
    assert is_transient(ServiceBusServerBusyError(), ORDERS)
    assert is_transient(unreachable(retryable=True), ORDERS)
    assert not is_transient(unreachable(retryable=False), ORDERS), "there is no such host"
    assert not is_transient(MessageLockLostError(), ORDERS)
