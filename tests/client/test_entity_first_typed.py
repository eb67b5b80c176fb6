"""The first attempts of new users in Python: each works, or a sentence says what to do."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import numpy as np
import pytest

from sbnotebook.client import Entity, LockedBatch, Namespace, connect
from sbnotebook.client.coercions import start_time, time_to_come
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, Message
from tests.filled_queues import filled_client_queue


def test_values_that_stand_for_json_are_sent(namespace: Namespace) -> None:
    namespace.create_queue("json")
    colour = Enum("colour", ["RED"])
    queue = namespace.entity("json")
    queue.send({"day": datetime(2026, 1, 31, tzinfo=UTC), "n": np.int64(1), "all": np.array([1, 2]), "c": colour.RED})
    assert queue.peek()[0].body_text == (
        '{"day": "2026-01-31T00:00:00+00:00", "n": 1, "all": [1, 2], "c": "colour.RED"}'
    )


def test_a_time_in_the_past_is_refused(namespace: Namespace) -> None:
    namespace.create_queue("past")
    queue = namespace.entity("past")
    for at in ("2020-01-01", datetime(2020, 1, 1, tzinfo=UTC)):
        with pytest.raises(ConfigurationError, match="2020-01-01 00:00 UTC is in the past"):
            queue.schedule("x", at=at)
        with pytest.raises(ConfigurationError, match="2020-01-01 00:00 UTC is in the past"):
            queue.plan_send("x", at=at)
    assert queue.schedule("x", at="2099-12-31T08:00").ok
    now = datetime(2026, 1, 31, tzinfo=UTC)
    assert time_to_come(now - timedelta(seconds=30), now) == now - timedelta(seconds=30)


def test_times_and_durations_both_say_since_when() -> None:
    assert start_time("2d") == timedelta(days=2)
    assert start_time("2026-01-31T08:00:00+00:00") == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert start_time("2026-01-31") == datetime(2026, 1, 31).astimezone()
    with pytest.raises(ConfigurationError, match="neither a time nor a duration"):
        start_time("yesterday")


def test_purge_takes_a_date(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "dated", 2)
    assert len(queue.purge(before="2026-01-01")) == 0
    assert len(queue.purge(before="2099-01-01")) == 2


def test_undo_takes_an_entity(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "undone", 2)
    queue.purge().apply()
    assert namespace.undo("undone").apply().settled == 2
    with pytest.raises(ConfigurationError, match="one entity"):
        namespace.undo("undone", entity="other")


def test_topics_and_subscriptions_are_created(namespace: Namespace) -> None:
    namespace.create_topic("made")
    namespace.create_subscription("made", "audit", lock_duration="2m", max_delivery_count=3)
    namespace.entity("made").send("x")
    assert len(namespace.entity("made/subscriptions/audit").peek()) == 1


def test_lock_locks_ten_or_all_or_none(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "locked", 12)
    with queue.lock() as batch:
        assert len(batch) == 10
    with queue.lock(None, max_wait="2s") as batch:
        assert len(batch) == 12
    with queue.lock(0) as batch:
        assert len(batch) == 0
        assert len(batch.receive()) == 10
        assert len(batch.receive(None)) == 2


def test_dead_letter_takes_the_name_of_the_sdk(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "named", 2)
    with queue.lock() as batch:
        batch.dead_letter(1, reason="R", error_description="D")
        with pytest.raises(ConfigurationError, match="not both"):
            batch.dead_letter(error_description="D", description="E")
    assert namespace.entity("named/$dlq").peek()[0].dead_letter_error_description == "D"


def test_names_of_the_sdk_have_a_hint(namespace: Namespace) -> None:
    queue: Any = filled_client_queue(namespace, "hinted", 1)
    untyped: Any = namespace
    with pytest.raises(AttributeError, match=r"There is no receive here: lock\(10\) locks messages"):
        queue.receive(10)
    with pytest.raises(AttributeError, match="use peek"):
        queue.peek_messages()
    with pytest.raises(AttributeError, match=r"entity\(\"orders\"\) sends"):
        untyped.get_queue_receiver("hinted")
    with queue.lock(0) as batch, pytest.raises(AttributeError, match="use complete"):
        batch.complete_message(1)
    with pytest.raises(AttributeError, match="no attribute 'peeek'"):
        queue.peeek()
    assert not hasattr(queue, "_repr_png_")


@pytest.mark.parametrize("kind", [Entity, LockedBatch, Namespace])
def test_every_option_has_a_name(kind: type) -> None:
    methods = [method for name, method in vars(kind).items() if inspect.isfunction(method) and name[0] != "_"]
    assert len(methods) > 10
    for method in methods:
        kinds = {each.kind for each in inspect.signature(method).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}, method


def test_connect_says_of_an_emulator_that_it_has_a_key(shared_emulator: RunningEmulator) -> None:
    with pytest.raises(ConfigurationError, match="have a key of their own"):
        connect(shared_emulator.connection_string, credential=object())
    with connect(shared_emulator.connection_string) as namespace:
        namespace.create_queue("keyed")
        assert namespace.entity("keyed").pick([1], Complete()).apply().failures
        assert namespace.entity("keyed").send(Message()).ok
