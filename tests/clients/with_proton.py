"""Proton, which speaks AMQP 1.0 and knows nothing of Service Bus, logged in with SASL PLAIN: ``make check-clients``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from proton import Condition, ConnectionException, Delivery, Described, Message, Timeout, symbol, timestamp
from proton.handlers import TransactionHandler
from proton.reactor import Filter, ReceiverOption
from proton.utils import BlockingConnection, LinkDetached

from sbnotebook.emulator import QueueOptions, RunningEmulator, running

KEY_NAME: Final = "RootManageSharedAccessKey"
KEY: Final = "SAS_KEY_VALUE"
PATIENCE: Final = 10
TRANSACTIONAL_STATE: Final = 0x34
SOON: Final = 0.5
"""Seconds after which a queue counts as empty."""
_PLAIN: Final = ("plain", "again", "dead", "peeked", "scheduled", "sized", "committed", "rolled-back", "cut-off")
QUEUES: Final = {**dict.fromkeys(_PLAIN, QueueOptions()), "sessions": QueueOptions(requires_session=True)}


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=QUEUES) as emulator:
        yield emulator


@pytest.fixture
def client(emulator: RunningEmulator) -> Iterator[Client]:
    client = Client(emulator)
    yield client
    client.close()


class AnswersTo(ReceiverOption):
    """Gives a link the address to which answers are sent: Service Bus makes no nodes of its own for that."""

    def __init__(self, address: str) -> None:
        self.address = address

    def apply(self, receiver: Any) -> None:
        """Do it."""
        receiver.target.address = self.address


class Client:
    """A connection of Proton's, with the few calls that the tests need."""

    def __init__(self, emulator: RunningEmulator, key: str = KEY) -> None:
        address = urlsplit(emulator.http_url)
        url = f"amqp://{KEY_NAME}:{key}@{address.hostname}:{address.port}"
        self.connection = BlockingConnection(url, timeout=PATIENCE, allowed_mechs="PLAIN", allow_insecure_mechs=True)

    def close(self) -> None:
        self.connection.close()

    def send(self, queue: str, *messages: Message) -> None:
        sender = self.connection.create_sender(queue)
        for message in messages:
            assert sender.send(message).remote_state == Delivery.ACCEPTED
        sender.close()

    def receiver(self, queue: str, filters: Mapping[str, Any] | None = None) -> Any:
        options = Filter({symbol(name): Described(symbol(name), value) for name, value in (filters or {}).items()})
        return self.connection.create_receiver(queue, credit=10, name=str(uuid4()), options=options)

    def settle(self, receiver: Any, state: Any, **local: Any) -> None:
        """Settle the first message that was received, and wait until the emulator has confirmed it."""
        delivery = receiver.fetcher.unsettled.popleft()
        for name, value in local.items():
            setattr(delivery.local, name, value)
        delivery.update(state)
        self.connection.wait(lambda: delivery.settled, timeout=PATIENCE)
        assert delivery.remote_state == state
        delivery.settle()

    def manage(self, queue: str, operation: str, body: Any) -> Message:
        node, answers = f"{queue}/$management", str(uuid4())
        receiver = self.connection.create_receiver(node, credit=1, name=answers, options=AnswersTo(answers))
        request = Message(body=body, properties={"operation": f"com.microsoft:{operation}"})
        request.reply_to, request.id = answers, "1"
        self.send(node, request)
        answer = receiver.receive()
        assert answer.correlation_id == "1"
        return answer


class Transaction(TransactionHandler):
    """A transaction that has been declared."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client, self.end = client, ""
        connection = client.connection
        self.open: Any = connection.container.declare_transaction(connection.conn, handler=self)
        self.wait_until("declared")

    def wait_until(self, end: str) -> None:
        self.client.connection.wait(lambda: self.end, timeout=PATIENCE)
        assert self.end == end
        self.end = ""

    def commit(self) -> None:
        self.open.commit()
        self.wait_until("committed")

    def roll_back(self) -> None:
        self.open.abort()
        self.wait_until("aborted")

    def send(self, queue: str, message: Message) -> None:
        sender = self.client.connection.create_sender(queue)
        delivery = self.open.send(sender.link, message)
        self.client.connection.wait(lambda: delivery.settled, timeout=PATIENCE)
        assert state_of(delivery) == Delivery.ACCEPTED
        delivery.settle()

    def accept(self, receiver: Any) -> None:
        delivery = receiver.fetcher.unsettled.popleft()
        self.open.accept(delivery)
        self.client.connection.wait(lambda: delivery.remote_state, timeout=PATIENCE)
        assert state_of(delivery) == Delivery.ACCEPTED

    def on_transaction_declared(self, _event: Any) -> None:
        self.end = "declared"

    def on_transaction_committed(self, _event: Any) -> None:
        self.end = "committed"

    def on_transaction_aborted(self, _event: Any) -> None:
        self.end = "aborted"

    def on_transaction_declare_failed(self, _event: Any) -> None:
        self.end = "not declared"

    def on_transaction_commit_failed(self, _event: Any) -> None:
        self.end = "not committed"


def state_of(delivery: Any) -> int:
    """Return the outcome inside of a transactional state."""
    assert delivery.remote_state == TRANSACTIONAL_STATE
    _, outcome = delivery.remote.data
    return int(outcome.descriptor)


def is_empty(receiver: Any) -> bool:
    try:
        receiver.receive(timeout=SOON)
    except Timeout:
        return True
    return False


def test_proton_accepted_message_is_gone(client: Client, emulator: RunningEmulator) -> None:
    body = {"carrier": "UA", "flight": 1545, "delay": None, "codes": [1, 2.5, b"\x00"]}
    sent = Message(body=body, id="flight-1545", subject="departed", properties={"late": True})
    client.send("plain", sent)
    receiver = client.receiver("plain")
    message = receiver.receive()
    assert (message.body, message.id, message.subject) == (body, "flight-1545", "departed")
    assert message.properties == {"late": True}
    assert message.annotations["x-opt-sequence-number"] == 1
    client.settle(receiver, Delivery.ACCEPTED)
    assert is_empty(receiver)
    assert emulator.counts("plain").active == 0


def test_proton_wrong_key_is_refused(emulator: RunningEmulator) -> None:
    with pytest.raises(ConnectionException):
        Client(emulator, "wrong")


def test_proton_modified_message_comes_again_and_counts(client: Client) -> None:
    client.send("again", Message(body="again"))
    receiver = client.receiver("again")
    assert receiver.receive().delivery_count == 0
    client.settle(receiver, Delivery.RELEASED)
    assert receiver.receive().delivery_count == 0
    client.settle(receiver, Delivery.MODIFIED, failed=True)
    assert receiver.receive().delivery_count == 1
    client.settle(receiver, Delivery.ACCEPTED)


def test_proton_rejected_message_is_dead_lettered_with_its_reason(client: Client) -> None:
    client.send("dead", Message(body="bad"))
    receiver = client.receiver("dead")
    receiver.receive()
    info = {"DeadLetterReason": "Invalid", "DeadLetterErrorDescription": "No carrier."}
    client.settle(receiver, Delivery.REJECTED, condition=Condition("com.microsoft:dead-letter", None, info))
    dead = client.receiver("dead/$DeadLetterQueue")
    message = dead.receive()
    assert (message.body, message.properties) == ("bad", info)
    client.settle(dead, Delivery.ACCEPTED)


def test_proton_peeks_without_taking(client: Client) -> None:
    client.send("peeked", *(Message(body=number) for number in range(3)))
    answer = client.manage("peeked", "peek-message", {"from-sequence-number": 2, "message-count": 10})
    assert answer.properties["statusCode"] == 200
    peeked = [Message() for _ in answer.body["messages"]]
    for message, entry in zip(peeked, answer.body["messages"], strict=True):
        message.decode(entry["message"])
    assert [message.body for message in peeked] == [1, 2]
    assert client.receiver("peeked").receive().body == 0


def test_proton_scheduled_message_waits(client: Client, emulator: RunningEmulator) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    when = {symbol("x-opt-scheduled-enqueue-time"): timestamp(int(tomorrow.timestamp() * 1000))}
    client.send("scheduled", Message(body="tomorrow", annotations=when), Message(body="now"))
    receiver = client.receiver("scheduled")
    assert receiver.receive().body == "now"
    assert is_empty(receiver)
    assert emulator.counts("scheduled").scheduled == 1


def test_proton_holds_one_session_at_a_time(client: Client) -> None:
    for number, session in enumerate("aba"):
        client.send("sessions", Message(body=number, group_id=session))
    receiver = client.receiver("sessions", {"com.microsoft:session-filter": "a"})
    assert [receiver.receive().body for _ in range(2)] == [0, 2]
    assert is_empty(receiver)
    with pytest.raises(LinkDetached, match="session-cannot-be-locked"):
        client.receiver("sessions", {"com.microsoft:session-filter": "a"})


def test_proton_sends_messages_of_many_frames(client: Client) -> None:
    body = uuid4().bytes * 50_000
    client.send("sized", Message(body=body))
    receiver = client.receiver("sized")
    assert receiver.receive().body == body
    client.settle(receiver, Delivery.ACCEPTED)


def test_proton_commits_a_send_and_a_settlement_together(client: Client, emulator: RunningEmulator) -> None:
    client.send("committed", Message(body="original"))
    receiver = client.receiver("committed")
    assert receiver.receive().body == "original"
    transaction = Transaction(client)
    transaction.send("committed", Message(body="clone"))
    transaction.accept(receiver)
    assert is_empty(receiver)
    assert emulator.counts("committed").locked == 1
    transaction.commit()
    assert receiver.receive().body == "clone"
    client.settle(receiver, Delivery.ACCEPTED)
    assert emulator.counts("committed").locked == 0


def test_proton_rolls_a_send_and_a_settlement_back(client: Client, emulator: RunningEmulator) -> None:
    client.send("rolled-back", Message(body="original"))
    receiver = client.receiver("rolled-back")
    assert receiver.receive().body == "original"
    transaction = Transaction(client)
    transaction.send("rolled-back", Message(body="clone"))
    transaction.accept(receiver)
    transaction.roll_back()
    # The original is locked as before.
    assert is_empty(receiver)
    assert emulator.counts("rolled-back").locked == emulator.counts("rolled-back").active == 1
    emulator.lose_locks("rolled-back")
    assert receiver.receive().body == "original"
    client.settle(receiver, Delivery.ACCEPTED)


def test_proton_transaction_ends_with_its_connection(emulator: RunningEmulator) -> None:
    client = Client(emulator)
    Transaction(client).send("cut-off", Message(body="never"))
    client.close()
    other = Client(emulator)
    assert is_empty(other.receiver("cut-off"))
    other.close()
