from __future__ import annotations

import pytest
from hypothesis import Phase, find, given, settings

from sbnotebook.amqp import AmqpValue, decode_exactly, encode, type_name
from sbnotebook.amqp.encoding import type_names
from sbnotebook.model import BodyType, EntityAddress, PeekedMessage
from sbnotebook.testing.strategies import PRIMITIVES, amqp_values, entity_addresses, messages, peeked_messages
from tests.comparison import same_value

_FIRST_FOUND = settings(max_examples=2_000, phases=[Phase.generate])
_NESTED = {"list", "map", "array", "described"}


def test_every_type_has_a_strategy() -> None:
    assert PRIMITIVES.keys() | _NESTED == set(type_names.values())


@pytest.mark.parametrize("name", sorted(_NESTED))
def test_nested_values_of_every_type_are_made(name: str) -> None:
    found = find(amqp_values(), lambda value: type_name(value) == name, settings=_FIRST_FOUND)
    assert type_name(found) == name


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_has_its_type(name: str) -> None:
    assert type_name(find(PRIMITIVES[name], lambda _: True)) == name


@given(amqp_values())
def test_every_value_can_be_sent(value: AmqpValue) -> None:
    assert same_value(decode_exactly(encode(value)), value)


@pytest.mark.parametrize("body_type", BodyType)
def test_messages_with_every_kind_of_body_are_made(body_type: BodyType) -> None:
    found = find(messages(), lambda message: message.body_type is body_type, settings=_FIRST_FOUND)
    assert found.body_type is body_type


@given(peeked_messages())
def test_a_peeked_message_has_what_the_service_sets(message: PeekedMessage) -> None:
    assert message.sequence_number > 0
    assert isinstance(message.entity, EntityAddress)


@pytest.mark.parametrize("kind", ["queue", "subscription", "dead letters"])
def test_addresses_of_every_kind_are_made(kind: str) -> None:
    def is_one(address: EntityAddress) -> bool:
        if kind == "queue":
            return address == address.entity.sends_to
        return (address.sub_queue if kind == "dead letters" else address.subscription) is not None

    assert is_one(find(entity_addresses(), is_one, settings=_FIRST_FOUND))
