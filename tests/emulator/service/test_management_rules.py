"""The operations on rules, as Azure's SDKs for .NET, Java and JavaScript send them."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import AmqpValue, Described, Int, Symbol, Timestamp, ULong, encode
from sbnotebook.emulator import ManualClock, RunningEmulator
from sbnotebook.emulator.amqp.performatives import Accepted
from sbnotebook.emulator.entities.box import Counts
from tests.emulator.service.conftest import Connect
from tests.emulator.service.management_node import Node

PATH = "events/Subscriptions/audit"
EVERYTHING: dict[str, AmqpValue] = {"top": Int(2_147_483_647), "skip": Int(0)}
DEFAULT = Described(ULong(0x1370000007), [])
NO_ACTION = Described(ULong(0x13700000005), [])


@pytest.fixture
def node(emulator: RunningEmulator, connect: Connect) -> Node:
    emulator.create_topic("events")
    emulator.create_subscription("events", "audit")
    return Node(connect(), PATH)


def rules(node: Node) -> list[Any]:
    """The fields of each rule's description."""
    status, _, body = node.ask("enumerate-rules", EVERYTHING)
    if status == 204:
        return []
    assert (status, list(body)) == (200, ["rules"])
    for rule in body["rules"]:
        assert list(rule) == ["rule-description"]
        assert rule["rule-description"].descriptor == 0x0000013700000004
    return [rule["rule-description"].value for rule in body["rules"]]


def add(node: Node, name: str, **description: AmqpValue) -> tuple[int, str, Any]:
    described = {key.replace("_", "-"): value for key, value in description.items()}
    return node.ask("add-rule", {"rule-name": name, "rule-description": described})


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a@b", "a?", "#", "*", "x" * 51])
def test_a_rule_has_the_names_that_administration_takes(node: Node, name: str) -> None:
    assert add(node, name, true_filter={})[:2] == (400, "com.microsoft:argument-error")
    assert [rule[2] for rule in rules(node)] == ["$Default"]


def test_a_new_subscription_has_the_rule_that_is_always_true(node: Node, clock: ManualClock) -> None:
    assert rules(node) == [[DEFAULT, NO_ACTION, "$Default", Timestamp(clock.now())]]


def test_a_sql_filter_with_an_action_as_dotnet_sends_it(node: Node, clock: ManualClock) -> None:
    action: AmqpValue = {"expression": "SET size = 1"}
    answer = add(node, "big", sql_filter={"expression": "size > 3"}, sql_rule_action=action, rule_name="big")
    assert answer == (200, "", None)
    sql = Described(ULong(0x1370000006), ["size > 3", Int(20)])
    set_ = Described(ULong(0x13700000006), ["SET size = 1", Int(20)])
    assert rules(node)[1] == [sql, set_, "big", Timestamp(clock.now())]


def test_a_correlation_filter_has_its_fields_in_order(node: Node) -> None:
    given: dict[str, AmqpValue] = {
        "correlation-id": "c",
        "message-id": "m",
        "to": "t",
        "reply-to": "r",
        "label": "l",
        "session-id": "s",
        "reply-to-session-id": "rs",
        "content-type": "ct",
        "properties": {"id": UUID(int=5), "count": Int(3)},
    }
    assert add(node, "mine", correlation_filter=given, sql_rule_action=None)[0] == 200
    assert rules(node)[1][0] == Described(ULong(0x1370000009), list(given.values()))


def test_a_correlation_filter_may_leave_out_properties(node: Node) -> None:
    given: dict[str, AmqpValue] = {"correlation-id": None, "label": "l", "properties": None}
    assert add(node, "mine", correlation_filter=given)[0] == 200
    assert rules(node)[1][0].value == [None, None, None, None, "l", None, None, None, {}]


def test_true_and_false_come_back_as_what_they_are(node: Node) -> None:
    assert add(node, "yes", true_filter={})[0] == 200
    assert add(node, "no", false_filter={})[0] == 200
    descriptors = {name: found.descriptor for found, _, name, _ in rules(node)}
    assert descriptors == {"$Default": 0x1370000007, "yes": 0x1370000007, "no": 0x1370000008}


def test_the_keys_of_maps_may_be_symbols(node: Node) -> None:
    body: AmqpValue = {
        Symbol("rule-name"): "big",
        Symbol("rule-description"): {Symbol("sql-filter"): {Symbol("expression"): "size > 3"}},
    }
    assert node.ask("add-rule", body)[0] == 200
    assert rules(node)[1][2] == "big"


def test_rules_come_in_pages(node: Node) -> None:
    for name in ("a", "b", "c"):
        add(node, name, true_filter={})
    pages = [node.ask("enumerate-rules", {"top": Int(2), "skip": Int(skip)}) for skip in (0, 2, 4)]
    assert [status for status, _, _ in pages] == [200, 200, 204]
    names = [rule["rule-description"].value[2] for _, _, body in pages[:2] for rule in body["rules"]]
    assert names == ["$Default", "a", "b", "c"]
    assert node.ask("enumerate-rules", {"top": Int(-1), "skip": Int(0)})[:2] == (400, "com.microsoft:argument-error")


def test_rules_are_followed_from_then_on(node: Node, connect: Connect, emulator: RunningEmulator) -> None:
    sender = connect()
    sender.sender("events")

    def send(number: int, color: str) -> None:
        message = b"\x00\x53\x74" + encode({"color": color}) + b"\x00\x53\x75\xa0\x00"
        assert sender.transfer(message, number).state == Accepted()

    add(node, "red", sql_filter={"expression": "color = 'red'"})
    assert node.ask("remove-rule", {"rule-name": "$Default"}) == (200, "", None)
    send(0, "red")
    send(1, "blue")
    assert emulator.counts(PATH) == Counts(1, 0, 0, 0, 0)
    node.ask("remove-rule", {"rule-name": "RED"})  # names are the same in upper and lower case
    send(2, "red")
    assert emulator.counts(PATH) == Counts(1, 0, 0, 0, 0)
    assert rules(node) == []


def test_a_rule_cannot_be_added_or_removed_twice(node: Node) -> None:
    assert add(node, "$default", true_filter={})[:2] == (409, "com.microsoft:entity-already-exists")
    assert node.ask("remove-rule", {"rule-name": "other"})[:2] == (404, "amqp:not-found")
    # By this sentence, @azure/service-bus distinguishes a missing entity from a failed connection.
    assert re.match("The messaging entity '.*' could not be found", node.description)


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"sql-filter": {"expression": "1=1"}, "true-filter": {}},
        {"sql-filter": "1=1"},
        {"sql-filter": {}},
        {"sql-filter": {"expression": 5}},
        {"sql-filter": {"expression": "size >"}},
        {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {"expression": "DROP TABLE"}},
        {"correlation-filter": {}},
        {"correlation-filter": {"label": 5}},
        {"correlation-filter": {"properties": "x"}},
        {"correlation-filter": {"properties": {5: "x"}}},
        "1=1",
        None,
    ],
)
def test_an_invalid_rule_is_not_added(node: Node, description: AmqpValue) -> None:
    answer = node.ask("add-rule", {"rule-name": "bad", "rule-description": description})
    assert answer[:2] == (400, "com.microsoft:argument-error")
    assert len(rules(node)) == 1


@pytest.mark.parametrize("name", ["", "x" * 51, "a/b", 5, b"x", ["a"], None])
def test_a_rule_needs_a_name(node: Node, name: AmqpValue) -> None:
    answer = node.ask("add-rule", {"rule-name": name, "rule-description": {"true-filter": {}}})
    assert answer[:2] == (400, "com.microsoft:argument-error")


def test_only_a_subscription_has_rules(connect: Connect) -> None:
    assert Node(connect(), "orders").ask("enumerate-rules", EVERYTHING)[:2] == (501, "amqp:not-implemented")
