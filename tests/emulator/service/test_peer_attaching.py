from __future__ import annotations

import pytest

from sbnotebook.amqp import Symbol
from sbnotebook.emulator.amqp.performatives import Source
from tests.emulator.service.conftest import Connect


@pytest.mark.parametrize(
    "address", ["orders", "/ORDERS/", "amqps://host:1/Orders", "amqp://host/orders/$management", "$cbs"]
)
def test_an_address_is_a_path_with_or_without_a_host(connect: Connect, address: str) -> None:
    client = connect()
    sending = client.sender(address)
    receiving = client.receiver(address)
    # More for requests, whose replies report the size limit, and less for tokens, which anyone can send.
    kilobytes = {"$cbs": 64, "amqp://host/orders/$management": 16_384}.get(address, 1024)
    assert sending.max_message_size == kilobytes * 1024
    assert sending.target is not None
    assert receiving.source is not None
    assert (receiving.source.address, receiving.initial_delivery_count) == (address, 0)


@pytest.mark.parametrize("address", ["nobody", "", None, 5, "nobody/$management", "orders/subscriptions/a", "x" * 5000])
def test_an_unknown_address_is_refused(connect: Connect, address: str) -> None:
    client = connect()
    assert client.sender(address).target is None
    assert client.refusal().startswith("amqp:not-found The messaging entity '")
    assert client.receiver(address).source is None
    assert client.refusal().startswith("amqp:not-found The messaging entity '")


def test_dead_letter_queues_are_received_from_only(connect: Connect) -> None:
    client = connect()
    assert client.receiver("orders/$DeadLetterQueue").source is not None
    assert client.sender("orders/$deadletterqueue").target is None
    assert client.refusal().startswith("amqp:not-allowed")


def test_sessions_are_refused_by_name(connect: Connect) -> None:
    client = connect()
    client.receiver("orders", source=Source("orders", filter={Symbol("com.microsoft:session-filter"): None}))
    assert "does not have sessions" in client.refusal()
