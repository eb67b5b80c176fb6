from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES, section_value, split
from sbnotebook.emulator.amqp.performatives import Accepted, Transfer, decode_composite
from tests.emulator.service.conftest import Connect, RawClient, token, token_request
from tests.emulator.service.transaction_client import refusal


def request(message_id: AmqpValue, reply_to: str | None, operation: str) -> bytes:
    return (
        b"\x00\x53\x73"
        + encode([message_id, None, None, None, reply_to])
        + b"\x00\x53\x74"
        + encode({"operation": operation})
        + b"\x00\x53\x77"
        + encode(None)
    )


def reply(client: RawClient) -> tuple[int, dict[int, AmqpValue]]:
    """The link that the next answer comes on, and its sections."""
    while True:
        body = client.read_frame()
        transfer, end = decode_composite(body)
        if isinstance(transfer, Transfer):
            payload = body[end:]
            return transfer.handle, {part.code: section_value(payload, part) for part in split(payload)}


@pytest.mark.parametrize("message_id", [uuid4(), "text", b"bytes", None])
def test_the_answer_names_its_request(connect: Connect, message_id: UUID | str | bytes | None) -> None:
    client = connect()
    client.sender("$cbs")
    client.receiver("$cbs")
    client.flow(1, 1)
    assert client.transfer(token_request(token(), message_id, "$cbs")).state == Accepted()
    _, sections = reply(client)
    assert sections[PROPERTIES] == [None] * 5 + [message_id]
    assert sections[APPLICATION_PROPERTIES] == {"status-code": 202, "status-description": "Accepted"}


def test_cbs_takes_tokens_only(connect: Connect) -> None:
    client = connect()
    client.sender("$cbs")
    client.receiver("$cbs")
    client.flow(1, 1)
    client.transfer(request(1, "$cbs", "delete-token"))
    properties = reply(client)[1][APPLICATION_PROPERTIES]
    assert isinstance(properties, dict)
    assert properties["status-code"] == 501


def test_the_link_that_is_meant_gets_the_answer(connect: Connect) -> None:
    client = connect()
    client.sender("orders/$management")
    for handle, (node, target) in enumerate(
        (("$cbs", "a"), ("orders/$management", "a"), ("orders/$management", "b")), start=1
    ):
        client.receiver(node, handle, target)
        client.flow(handle, 5)
    client.transfer(request(1, "b", "x"))
    assert reply(client)[0] == 3
    client.transfer(request(1, "orders/$management", "x"), 1)
    assert reply(client)[0] == 2


def test_a_client_may_name_its_link_or_none(connect: Connect) -> None:
    # @azure/service-bus gives the link that its tokens are answered over no target, and names the link itself.
    client = connect()
    client.sender("$cbs")
    for handle in (1, 2):
        client.receiver("$cbs", handle, target=None)
        client.flow(handle, 5)
    for number, (reply_to, handle) in enumerate((("from 2", 2), ("from 1", 1), ("neither", 1), (None, 1))):
        client.transfer(token_request(token(), number, reply_to), number)
        assert reply(client)[0] == handle


def test_an_answer_waits_for_credit(connect: Connect) -> None:
    client = connect()
    client.sender("$cbs")
    client.receiver("$cbs")
    client.transfer(token_request(token(), 1), 0)
    client.transfer(token_request(token(), 2), 1)
    client.flow(1, 2)
    assert [reply(client)[1][PROPERTIES] for _ in range(2)] == [[None] * 5 + [number] for number in (1, 2)]


@pytest.mark.parametrize("payload", [b"garbage", b"\x00\x53\x74" + encode([1]), b"\x00\x53\x73" + encode("text")])
def test_a_request_that_cannot_be_read_is_rejected(connect: Connect, payload: bytes) -> None:
    client = connect()
    client.sender("$cbs")
    assert refusal(client.transfer(payload).state).startswith("amqp:decode-error")
    assert client.transfer(token_request(token(), 1), 1).state == Accepted()
