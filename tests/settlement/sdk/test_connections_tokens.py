"""Tokens that cannot be refreshed in time, on connections whose token is valid still."""

# ruff: noqa: SLF001 (the time of a refresh is brought forward inside of the SDK)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbnotebook.model import Complete, EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import connections, management
from sbnotebook.settlement.sdk.connections import refresh_if_due
from sbnotebook.settlement.sdk.private import CbsAuthState, private

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken

    from sbnotebook.settlement.sdk.receivers import LockReceiver, ReceivedLock

pytestmark = pytest.mark.anyio

LEFT = 30
"""Seconds that the valid token has left."""


class Held(NamedTuple):
    """A receiver that holds a message, and whose token is due for a refresh."""

    receiver: LockReceiver
    message: ReceivedLock
    authenticator: Any
    get_token: Callable[[], Awaitable[AccessToken]]

    async def renew(self) -> None:
        with anyio.fail_after(10):
            await management.renew_locks(self.receiver, [self.message])

    async def renew_until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(20):
            while not condition():
                await self.renew()
                await anyio.sleep(0.05)


@pytest.fixture
async def held(own: AsyncNamespace) -> AsyncIterator[Held]:
    await own.create_queue("orders")
    await own.entity("orders").send([Message()])
    async with own.connection.receiver(EntityAddress("orders")) as receiver:
        (message,) = await receiver.take(1, max_wait=5)
        await management.renew_locks(receiver, [message])
        handler: Any = private(receiver)._handler
        authenticator: Any = handler._cbs_authenticator
        authenticator._expires_on = int(time.time()) + LEFT
        authenticator._refresh_window = LEFT
        yield Held(receiver, message, authenticator, authenticator._auth.get_token)


def is_refreshed(held: Held) -> bool:
    return held.authenticator._expires_on > time.time() + LEFT


async def test_a_failed_refresh_leaves_the_valid_token_in_use(held: Held) -> None:
    asked: list[float] = []

    async def fail() -> AccessToken:
        asked.append(time.monotonic())
        raise OSError("login.microsoftonline.com does not answer")

    held.authenticator._auth.get_token = fail
    await held.renew_until(lambda: len(asked) > 1)
    assert held.authenticator.auth_state is CbsAuthState.OK
    assert asked[1] - asked[0] > 2, "the credential is not asked by each operation"
    held.authenticator._auth.get_token = held.get_token
    await held.renew_until(lambda: is_refreshed(held))
    await held.renew()
    await management.settle_by_tokens(held.receiver, [held.message.lock_token], Complete(), answer_within=20)


async def test_a_slow_refresh_holds_up_no_operation(held: Held) -> None:
    answered = anyio.Event()

    async def wait() -> AccessToken:
        await answered.wait()
        return await held.get_token()

    held.authenticator._auth.get_token = wait
    began = time.monotonic()
    for _ in range(5):
        await held.renew()
    assert time.monotonic() - began < 8
    assert not is_refreshed(held)
    answered.set()
    await held.renew_until(lambda: is_refreshed(held))


async def test_a_cancelled_refresh_is_taken_up_again(held: Held) -> None:
    asked: list[float] = []

    async def slowly() -> AccessToken:
        asked.append(time.monotonic())
        await anyio.sleep(0.3)
        return await held.get_token()

    held.authenticator._auth.get_token = slowly
    with anyio.move_on_after(0.05) as cut:
        await management.renew_locks(held.receiver, [held.message])
    assert cut.cancelled_caught
    await held.renew_until(lambda: is_refreshed(held))
    assert len(asked) == 1, "the first question is answered, and no second one is asked"


async def test_operations_wait_for_the_next_token_at_the_last_moment(held: Held) -> None:
    async def slowly() -> AccessToken:
        await anyio.sleep(0.5)
        return await held.get_token()

    held.authenticator._auth.get_token = slowly
    held.authenticator._expires_on = int(time.time()) + 4
    await held.renew()
    assert is_refreshed(held)


async def never(*_: object) -> AccessToken:
    await anyio.sleep_forever()
    raise AssertionError


async def test_a_credential_that_hangs_at_the_end_is_not_waited_for(held: Held) -> None:
    held.authenticator._auth.get_token = never
    held.authenticator._expires_on = int(time.time()) + 2
    with anyio.fail_after(10):
        while held.authenticator.auth_state is not CbsAuthState.EXPIRED:
            await refresh_if_due(held.receiver)


async def test_the_first_token_is_not_waited_for_without_end(
    own: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own.create_queue("orders")
    monkeypatch.setattr(connections, "_FIRST_WITHIN", 0.3)
    browser = own.connection.browser(EntityAddress("orders"))
    credential: Any = browser._credential
    monkeypatch.setattr(credential, "get_token", never)
    with (
        anyio.fail_after(10),
        pytest.raises(ServiceBusConnectionError, match=r"gave no token in 0\.3 seconds: finish"),
    ):
        await management.peek_payloads(browser, 1, 1)
