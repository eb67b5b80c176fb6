"""A refusal is one sentence that says what to do, without secrets."""

from __future__ import annotations

import base64
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError, ServiceRequestError
from azure.servicebus._pyamqp.error import TokenAuthFailure
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbnotebook.emulator import QueueOptions, RunningEmulator, Tier, running
from sbnotebook.errors import BatchClosedError, ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import Complete, EntityAddress, Message, Resubmit, SubQueue
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.connecting import failures
from sbnotebook.settlement.connecting.failures import is_missing, known_addresses, missing, refusal, unreachable
from tests.filled_queues import filled_queue
from tests.settlement.namespaces import namespace_of
from tests.settlement.signed import signed

pytestmark = pytest.mark.anyio

KEY = base64.b64encode(bytes(range(90, 122))).decode()
ENDPOINT = "Endpoint=sb://shop.servicebus.windows.net/"
NAME, SECRET = "SharedAccessKeyName=root", f"SharedAccessKey={KEY}"
TOKEN = f"SharedAccessSignature=SharedAccessSignature sr=shop&sig={KEY}&se=1700000000&skn=root"

CONNECTION_STRINGS = {
    "empty": ("", "is empty"),
    "blank": (" \n", "is empty"),
    "a key alone": (KEY.rstrip("="), "has no = in part 1"),
    "no endpoint": (f"{NAME};{SECRET}", "has no Endpoint"),
    "no value": (f"Endpoint=;{NAME};{SECRET}", "nothing behind Endpoint="),
    "no host": (f"Endpoint=sb:///;{NAME};{SECRET}", "not a host name"),
    "a host with a blank": (f"Endpoint=sb://my shop/;{NAME};{SECRET}", "not a host name"),
    "a user in the host": (f"Endpoint=sb://root:{KEY}@shop/;{NAME};{SECRET}", "not a host name"),
    "a port that is none": (f"Endpoint=sb://shop:99999/;{NAME};{SECRET}", "from 1 to 65,535"),
    "no key": (f"{ENDPOINT};{NAME}", "neither a SharedAccessKey nor a SharedAccessSignature"),
    "no name": (f"{ENDPOINT};{SECRET}", "without its SharedAccessKeyName"),
    "an empty key": (f"{ENDPOINT};{NAME};SharedAccessKey=", "nothing behind SharedAccessKey="),
    "an empty name": (f"{ENDPOINT};SharedAccessKeyName= ;{SECRET}", "nothing behind SharedAccessKeyName="),
    "an empty token": (f"{ENDPOINT};SharedAccessSignature=", "nothing behind SharedAccessSignature="),
    "key and token": (f"{ENDPOINT};{NAME};{SECRET};{TOKEN}", "only one can be used"),
    "a key twice": (f"{ENDPOINT};{NAME};{SECRET};{SECRET}", "has SharedAccessKey twice"),
    "a lost semicolon": (f"{ENDPOINT}{NAME};{SECRET}", "not a host name"),
    "a comma": (f"{ENDPOINT},{NAME},{SECRET}", "not a host name"),
    "two semicolons": (f"{ENDPOINT};;{NAME};{SECRET}", "has no = in part 2"),
    "an empty entity": (f"{ENDPOINT};{NAME};{SECRET};EntityPath=", "nothing behind EntityPath="),
}


def check_sentence(error: BaseException, pattern: str) -> None:
    text = str(error)
    assert pattern in text
    assert "\n" not in text
    assert text.endswith((".", ")", "'")), text
    shown = "".join(traceback.format_exception(error))
    assert KEY[:12] not in shown
    assert "SAS_KEY_VALUE" not in shown


@pytest.mark.parametrize("case", CONNECTION_STRINGS)
def test_a_malformed_connection_string(case: str) -> None:
    text, pattern = CONNECTION_STRINGS[case]
    with pytest.raises(ConfigurationError) as refused:
        Connection(text)
    check_sentence(refused.value, pattern)


# ---------------------------------------------------------------- with an emulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    queues = {"orders": None, "sessions": QueueOptions(requires_session=True)}
    with running(queues=queues, topics={"events": ["audit"]}, tier=Tier.STANDARD) as server:
        yield server


@pytest.fixture
async def spaces(emulator: RunningEmulator, tmp_path: Path) -> AsyncIterator[Spaces]:
    spaces = Spaces(emulator, tmp_path, [])
    yield spaces
    for each in spaces.opened:
        await each.close()


class Spaces(NamedTuple):
    """Makes namespaces on connection strings that were changed."""

    emulator: RunningEmulator
    folder: Path
    opened: list[AsyncNamespace]

    def of(self, connection_string: str) -> AsyncNamespace:
        self.opened.append(namespace_of(Connection(connection_string), self.folder))
        return self.opened[-1]

    @property
    def right(self) -> AsyncNamespace:
        return self.of(self.emulator.connection_string)

    @property
    def wrong_key(self) -> AsyncNamespace:
        return self.of(self.emulator.connection_string.replace("SAS_KEY_VALUE", KEY))

    @property
    def wrong_name(self) -> AsyncNamespace:
        return self.of(self.emulator.connection_string.replace("RootManage", "Nobodys"))

    @property
    def for_orders(self) -> AsyncNamespace:
        return self.of(self.emulator.connection_string + "EntityPath=orders")

    @property
    def expired(self) -> AsyncNamespace:
        return self.of(signed(self.emulator.connection_string, int(time.time()) - 60))

    @property
    def forged(self) -> AsyncNamespace:
        return self.of(signed(self.emulator.connection_string, int(time.time()) + 3600, KEY))


async def peek(namespace: AsyncNamespace, name: str) -> None:
    await namespace.entity(name).peek(1)


async def lock(namespace: AsyncNamespace, name: str) -> None:
    async with namespace.entity(name).batch() as batch:
        await batch.receive(1, max_wait=0.1)


async def send(namespace: AsyncNamespace, name: str) -> None:
    (await namespace.entity(name).send([Message(body=b"x")])).raise_for_failures()


async def settle(namespace: AsyncNamespace, name: str) -> None:
    await namespace.entity(name).plan_by_token(Complete(), [(1, "7a5ebd3e-b74d-4b4e-9fc2-8a1f0f6f0b6c")]).apply()


async def session(namespace: AsyncNamespace, name: str) -> None:
    async with namespace.connection.receiver(EntityAddress(name), session_id="a"):
        pytest.fail("it was opened")


async def sessions(namespace: AsyncNamespace, name: str) -> None:
    await namespace.entity(name).sessions()


Act = Callable[[AsyncNamespace, str], Awaitable[object]]
NOT_THERE = "There is no queue or topic 'nowhere' in 127.0.0.1"
NOT_LET = "does not let this connection use the queue or topic 'orders'"
SESSIONS = "The queue or topic 'sessions' requires sessions"
ONE_ENTITY = "for one entity only, by its EntityPath"
REFUSED: dict[tuple[str, Act, str], tuple[type[Exception], str]] = {
    **{("right", act, "nowhere"): (MessagingEntityNotFoundError, NOT_THERE) for act in (peek, lock, send, settle)},
    **{("wrong_key", act, "orders"): (ServiceBusAuthenticationError, NOT_LET) for act in (peek, lock, send, settle)},
    **{("wrong_name", act, "orders"): (ServiceBusAuthenticationError, NOT_LET) for act in (peek, send)},
    **{("expired", act, "orders"): (ServiceBusAuthenticationError, NOT_LET) for act in (peek, lock, send)},
    **{("forged", act, "orders"): (ServiceBusAuthenticationError, NOT_LET) for act in (peek, send)},
    **{("right", act, "sessions"): (ServiceBusError, SESSIONS) for act in (lock,)},
    **{("for_orders", act, "events"): (ConfigurationError, ONE_ENTITY) for act in (send,)},
    **{("for_orders", act, "events/subscriptions/audit"): (ConfigurationError, ONE_ENTITY) for act in (peek, lock)},
    **{
        ("right", act, "events/subscriptions/nobody"): (
            MessagingEntityNotFoundError,
            "There is no subscription 'events/subscriptions/nobody' in",
        )
        for act in (peek, lock)
    },
    ("right", send, "events/subscriptions/audit"): (ConfigurationError, "name a queue or a topic"),
    ("right", send, "orders/$dlq"): (ConfigurationError, "name a queue or a topic"),
    ("right", send, "sessions"): (SbNotebookError, "Sent 0 of 1 message: 1 failed"),
    **{("right", act, "events"): (ServiceBusError, "name one of these, events/subs") for act in (peek, lock)},
    ("right", sessions, "orders"): (ServiceBusError, "The queue or topic 'orders' has no sessions: look at its"),
    ("right", session, "orders"): (ServiceBusError, "The queue or topic 'orders' has no sessions: use it without"),
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]}-{case[1].__name__}-{case[2]}")
async def test_who_is_not_let_in_is_told_why(spaces: Spaces, case: tuple[str, Act, str]) -> None:
    namespace, act, name = case
    kind, pattern = REFUSED[case]
    with pytest.raises(kind) as refused:
        await act(getattr(spaces, namespace), name)
    check_sentence(refused.value, pattern)


@pytest.mark.parametrize(
    ("words", "is_explained"),
    [
        ("[Errno -2] Name or service not known", True),
        ("[Errno 8] nodename nor servname provided, or not known", True),
        ("[Errno 11001] getaddrinfo failed", True),
        ("[Errno -3] Temporary failure in name resolution", False),
        ("[Errno 111] Connect call failed", True),
    ],
)
def test_missing_host_is_explained_other_errors_are_retried(words: str, *, is_explained: bool) -> None:
    said = f"Failed to initiate the connection due to exception: {words}"
    found = unreachable("shop.servicebus.windows.net", said, is_emulator=False)
    assert (found is not None) is is_explained
    starts = ("There is no host shop.servicebus.windows.net: check", "Nothing listens at shop.servicebus.windows.net: ")
    assert found is None or found.startswith(starts)


@pytest.mark.parametrize(
    ("status", "pattern"),
    [
        (400, "does not let this connection use the queue or topic 'orders': check"),
        (401, "does not let this connection use the queue or topic 'orders': check"),
        (403, "does not let this connection use the queue or topic 'orders': check"),
        (404, None),
        (500, None),
    ],
)
def test_a_token_is_refused_by_its_status(status: int, pattern: str | None) -> None:
    error = ServiceBusAuthenticationError(message="An error.", error=TokenAuthFailure(status, b"No. TrackingId:1"))
    said = refusal(error, EntityAddress("orders"), "shop")
    assert is_missing(error) is (status == 404)
    assert (said is None) is (pattern is None)
    if said is not None and pattern is not None:
        assert pattern in said
        assert said.endswith("(Service Bus says: No).")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MessagingEntityDisabledError(message="Off."), "The queue or topic 'orders' is disabled: enable it, or wait"),
        (ServiceBusAuthorizationError(message="No."), "shop does not let this connection use the queue or topic"),
        (ServiceBusError("Not here.", condition="amqp:not-implemented"), "The queue or topic 'orders' cannot do this:"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_refusal_is_known_by_its_kind(error: ServiceBusError, said: str) -> None:
    assert str(refusal(error, EntityAddress("orders"), "shop")).startswith(said)


@pytest.mark.parametrize("condition", ["amqp:internal-error", "amqp:not-found", "com.microsoft:server-busy"])
def test_what_may_pass_is_not_explained(condition: str) -> None:
    error = ServiceBusError("Not from the topic of an entity that requires sessions.", condition=condition)
    assert refusal(error, EntityAddress("orders"), "shop") is None


def test_a_subscription_is_meant_before_what_is_spelled_alike() -> None:
    known = ["events/audio/$dlq", "events/subscriptions/audit/$dlq"]
    said = missing(EntityAddress("events/audit", sub_queue=SubQueue.DEAD_LETTER), "shop", known)
    assert "(did you mean events/subscriptions/audit/$dlq?)" in said


async def test_dead_port_is_a_quick_sentence_until_it_has_answered(tmp_path: Path) -> None:
    """The SDK by itself tries for 13 seconds. A namespace that has answered before is worth that: it may restart."""
    with running(queues=["orders"]) as emulator:
        text = emulator.connection_string
        async with namespace_of(emulator, tmp_path) as known:
            assert not known.connection.has_answered
            await peek(known, "orders")
            assert known.connection.has_answered
    async with namespace_of(Connection(text), tmp_path) as stranger:
        for act in (peek, lock, send):
            with anyio.fail_after(10), pytest.raises(ServiceBusConnectionError) as refused:
                await act(stranger, "orders")
            check_sentence(refused.value, "Nothing listens at 127.0.0.1:")
        with anyio.fail_after(10), pytest.raises(ServiceRequestError) as not_listed:
            await stranger.entities()
        check_sentence(not_listed.value, "start the emulator, or check its port.")


@pytest.mark.parametrize(
    ("ask", "name", "kind", "words"),
    [
        (AsyncNamespace.counts, "nowhere", ResourceNotFoundError, NOT_THERE),
        (AsyncNamespace.counts, "ordres", ResourceNotFoundError, "(did you mean orders?)"),
        (AsyncNamespace.delete_queue, "nowhere", ResourceNotFoundError, NOT_THERE),
        (AsyncNamespace.create_queue, "orders", ResourceExistsError, "There is a queue or topic 'orders'"),
        (AsyncNamespace.create_queue, "events", ResourceExistsError, "use it, or choose another name."),
    ],
)
async def test_administration_answers_in_a_sentence(
    spaces: Spaces, ask: Act, name: str, kind: type[HttpResponseError], words: str
) -> None:
    with pytest.raises(kind) as refused:
        await ask(spaces.right, name)
    check_sentence(refused.value, words)
    assert "<" not in str(refused.value)
    assert refused.value.status_code in (None, 404, 409)  # None: the SDK's own, for an empty feed


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ordres", "orders"),
        ("orders/dlq", "orders/$dlq"),
        ("events/audit", "events/subscriptions/audit"),
        ("evnts/subscriptions/audit", "events/subscriptions/audit"),
        ("events/subscriptions/audti", "events/subscriptions/audit"),
    ],
)
async def test_missing_entity_comes_with_the_near_match(spaces: Spaces, written: str, meant: str) -> None:
    with pytest.raises(MessagingEntityNotFoundError) as refused:
        await peek(spaces.right, written)
    check_sentence(refused.value, f"(did you mean {meant}?): %sb_entities or entities() lists all.")


async def test_the_near_match_is_found_among_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_LISTED_WITHIN", 60)  # 700 take two seconds or more
    names = [*(f"{number:03}-{number:03}" for number in range(700)), "orders"]
    with running(queues=names) as emulator:
        connection, address = Connection(emulator.connection_string), EntityAddress("ordres")
        async with connection.administration_client() as client:
            known = await known_addresses(client, address)
        assert "(did you mean orders?)" in missing(address, connection.host, known)


async def test_a_suggestion_takes_its_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_LISTED_WITHIN", 0)
    with running(queues=["orders"]) as emulator:
        async with Connection(emulator.connection_string).administration_client() as client:
            assert await known_addresses(client, EntityAddress("ordres")) == []


async def test_listing_without_the_right_to_manage_says_so(spaces: Spaces) -> None:
    with pytest.raises(HttpResponseError) as refused:
        await spaces.wrong_key.counts("orders")
    check_sentence(refused.value, "does not let this connection list or change its entities")


async def test_decision_that_is_impossible_is_refused(spaces: Spaces) -> None:
    namespace = spaces.right
    queue = await filled_queue(namespace, "decided", 3)
    peeked: Any = await queue.peek()
    nonsense: Any = "complete"
    async with queue.batch() as batch:
        held = await batch.receive(2)
        rows: list[tuple[type[Exception], str, Callable[[], Awaitable[object]]]] = [
            (DecisionError, "3 messages are not in this batch", lambda: batch.settle(Complete(), peeked)),
            (DecisionError, "not in this batch", lambda: batch.settle(Complete(), nonsense)),
            (DecisionError, "A decision is one of", lambda: batch.settle(nonsense)),
            (DecisionError, "planned on the entity", lambda: batch.settle(Resubmit())),
            (ConfigurationError, "max_in_flight is 1 or more", lambda: batch.settle(Complete(), max_in_flight=0)),
            (ConfigurationError, "at least 0 messages", lambda: batch.receive(-1)),
            (ConfigurationError, "max_wait is above 0 seconds", lambda: batch.receive(1, max_wait=-1)),
        ]
        for kind, pattern, act in rows:
            with pytest.raises(kind) as refused:
                await act()
            check_sentence(refused.value, pattern)
        assert batch.messages == held
    with pytest.raises(BatchClosedError, match="The batch is closed"):
        await batch.settle(Complete(), held)
    assert {message.delivery_count for message in await queue.peek()} == {0}
