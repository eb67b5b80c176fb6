from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities.json_form import stored, stored_options
from sbnotebook.emulator.entities.options import (
    FOREVER,
    AuthorizationRule,
    Claim,
    EntityStatus,
    Options,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
    forwarding_target,
    read_options,
)
from sbnotebook.errors import ConfigurationError


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"lock_duration": -1}, "LockDuration"),
        ({"lock_duration": 0}, "LockDuration"),
        ({"lock_duration": 4_999}, "LockDuration must be from 5 seconds to 5 minutes, not 4.999 seconds"),
        ({"lock_duration": 30}, "write timedelta"),
        ({"lock_duration": "4s"}, "not 4 seconds"),
        ({"lock_duration": "30"}, "LockDuration: '30' is not a duration"),
        ({"lock_duration": "30 parsecs"}, "is not a duration"),
        ({"lock_duration": timedelta(seconds=1)}, "not 1 second"),
        ({"lock_duration": 30.5}, "wrong type"),
        ({"lock_duration": True}, "wrong type"),
        ({"lock_duration": None}, "wrong type"),
        ({"lock_duration": timedelta(days=25)}, "supplied lock time exceeds the allowed maximum of '5' minutes"),
        ({"lock_duration": 300_001}, "LockDuration"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount"),
        ({"max_delivery_count": 2**31}, "MaxDeliveryCount must be from 1 to 2147483647"),
        ({"max_delivery_count": "3"}, "wrong type"),
        ({"duplicate_detection_window": 19_999}, "DuplicateDetectionHistoryTimeWindow"),
        ({"duplicate_detection_window": 604_800_001}, "DuplicateDetectionHistoryTimeWindow"),
        ({"duplicate_detection_window": "10s"}, "from 20 seconds to 7 days, not 10 seconds"),
        ({"max_size_mb": 0}, "MaxSizeInMegabytes"),
        ({"max_size_mb": 81_921}, "MaxSizeInMegabytes"),
        ({"max_message_size_kb": 0}, "MaxMessageSizeInKilobytes"),
        ({"max_message_size_kb": 102_401}, "MaxMessageSizeInKilobytes"),
        ({"default_time_to_live": -1}, "DefaultMessageTimeToLive"),
        ({"default_time_to_live": 0}, "DefaultMessageTimeToLive"),
        ({"default_time_to_live": 999}, "DefaultMessageTimeToLive must be at least 1 second"),
        ({"default_time_to_live": "999ms"}, "not 0.999 seconds"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "AutoDeleteOnIdle must be at least 5 minutes, not 4 minutes"),
        ({"status": "Asleep"}, "Status is none of Active"),
        ({"requires_session": 1}, "RequiresSession is of the wrong type"),
        ({"user_metadata": 1}, "UserMetadata is of the wrong type"),
        ({"auto_delete_on_idle": 299_999}, "AutoDeleteOnIdle"),
        ({"user_metadata": "x" * 1025}, "UserMetadata"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        QueueOptions(**options)


@pytest.mark.parametrize("kind", [TopicOptions, SubscriptionOptions])
def test_topics_and_subscriptions_are_checked_too(kind: type[Any]) -> None:
    with pytest.raises(ConfigurationError, match="AutoDeleteOnIdle"):
        kind(auto_delete_on_idle=1)


def test_the_limits_themselves_are_in_range() -> None:
    QueueOptions(300_000, 2**31 - 1, duplicate_detection_window=20_000, auto_delete_on_idle=300_000, max_size_mb=81_920)
    QueueOptions(
        5_000,
        1,
        default_time_to_live=1_000,
        duplicate_detection_window=604_800_000,
        max_message_size_kb=102_400,
        user_metadata="x" * 1024,
    )


RULES = st.builds(
    AuthorizationRule, st.text(), st.text(), st.text(), st.frozensets(st.sampled_from(Claim)), st.integers(0, 10**13)
)
TIMES = st.none() | st.integers(300_000, 10**15)


@given(
    st.builds(
        QueueOptions,
        status=st.sampled_from(EntityStatus),
        default_time_to_live=TIMES,
        auto_delete_on_idle=TIMES,
        forward_to=st.sampled_from([None, "orders", "sb://host/team/orders"]),
        user_metadata=st.none() | st.text(min_size=1, max_size=20),
        authorization_rules=st.lists(RULES, max_size=3).map(tuple),
    )
    | st.builds(
        TopicOptions, support_ordering=st.booleans(), authorization_rules=st.lists(RULES, max_size=1).map(tuple)
    )
    | st.builds(SubscriptionOptions, requires_session=st.booleans(), dead_letter_on_filter_errors=st.booleans())
)
def test_options_come_back_from_json(options: Options) -> None:
    plain = json.loads(json.dumps(stored(options, ())))
    assert stored_options(type(options), "q", plain) == options


def test_a_rule_does_not_show_its_keys() -> None:
    rule = AuthorizationRule("Root", "secret1", "secret2", frozenset([Claim.SEND]))
    assert "secret" not in repr(rule)
    assert "secret" not in repr(QueueOptions(authorization_rules=(rule,)))


SHARED: dict[str, Any] = {
    "default_time_to_live": None,
    "auto_delete_on_idle": None,
    "status": "Active",
    "enable_batched_operations": True,
    "user_metadata": None,
}
RECEIVING: dict[str, Any] = {
    **SHARED,
    "lock_duration": 60_000,
    "max_delivery_count": 10,
    "requires_session": False,
    "dead_letter_on_expiration": False,
    "forward_to": None,
    "forward_dead_letters_to": None,
}
SENDING: dict[str, Any] = {
    **SHARED,
    "requires_duplicate_detection": False,
    "duplicate_detection_window": 600_000,
    "max_size_mb": 1024,
    "max_message_size_kb": None,
    "enable_partitioning": False,
    "enable_express": False,
    "authorization_rules": (),
}


def test_the_defaults_are_those_of_service_bus() -> None:
    topic = {**SENDING, "support_ordering": True, "filter_messages_before_publishing": False}
    assert asdict(QueueOptions()) == {**RECEIVING, **SENDING}
    assert asdict(TopicOptions()) == topic
    assert asdict(SubscriptionOptions()) == {**RECEIVING, "dead_letter_on_filter_errors": True}
    assert AuthorizationRule("key", "one", "two", frozenset()).created_time == 0


@pytest.mark.parametrize("given", [timedelta(seconds=30), "30s", "PT30S", "0m30s", " 30S ", "30000ms", 30_000])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (QueueOptions, "lock_duration"),
        (QueueOptions, "default_time_to_live"),
        (QueueOptions, "duplicate_detection_window"),
        (TopicOptions, "default_time_to_live"),
        (SubscriptionOptions, "lock_duration"),
    ],
)
def test_a_duration_is_given_in_any_form(kind: type[Options], name: str, given: Any) -> None:
    assert getattr(kind(**{name: given}), name) == 30_000


def test_longer_durations_are_given_as_texts() -> None:
    options = QueueOptions(default_time_to_live="1d12h", auto_delete_on_idle="1h30m", duplicate_detection_window="7d")
    assert (options.default_time_to_live, options.auto_delete_on_idle) == (129_600_000, 5_400_000)
    assert QueueOptions(default_time_to_live=timedelta.max, auto_delete_on_idle=None) == QueueOptions()
    assert QueueOptions(status="SendDisabled").status is EntityStatus.SEND_DISABLED


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", "orders"),
        ("team/orders", "team/orders"),
        ("sb://ns.servicebus.windows.net/team/orders", "team/orders"),
        ("HTTPS://[::1]:5672/a%2Fb/", "a/b"),
        ("https://[", "https://["),
        ("orders:1", "orders:1"),
        ("sb:orders", "sb:orders"),
        ("ftp://ns/orders", "ftp://ns/orders"),
    ],
)
def test_a_forwarding_target_may_stand_in_an_address(text: str, name: str) -> None:
    assert forwarding_target(text) == name


# ---------------------------------------------------------------- texts of Service Bus


def test_missing_empty_and_unknown_properties_have_defaults() -> None:
    assert read_options(QueueOptions, {}) == QueueOptions()
    assert read_options(QueueOptions, {"ForwardTo": "", "Fly": "true"}) == QueueOptions()
    changed = QueueOptions(max_delivery_count=3, user_metadata="x")
    assert read_options(QueueOptions, {"LockDuration": "PT30S"}, changed) == QueueOptions(lock_duration=30_000)


@pytest.mark.parametrize("text", [FOREVER, "P10675199DT2H48M5.477580S"])
def test_the_longest_duration_is_never(text: str) -> None:
    # The SDK cuts the last digits.
    texts = {"DefaultMessageTimeToLive": text, "AutoDeleteOnIdle": text}
    assert read_options(QueueOptions, texts) == QueueOptions()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LockDuration", "soon"),
        ("LockDuration", "PT6M"),
        ("LockDuration", "PT1S"),
        ("MaxDeliveryCount", "2147483648"),
        ("MaxDeliveryCount", "9" * 5_000),
        ("MaxDeliveryCount", "-1"),
        ("MaxDeliveryCount", "٣"),
        ("MaxDeliveryCount", "0"),
        ("RequiresSession", "perhaps"),
        ("Status", "Asleep"),
        ("DefaultMessageTimeToLive", "PT0S"),
        ("AutoDeleteOnIdle", "PT4M"),
        ("ForwardTo", "http://host/"),
        ("ForwardTo", "x" * 5_000),
        ("ForwardDeadLetteredMessagesTo", "a b"),
    ],
)
def test_an_invalid_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as caught:
        read_options(QueueOptions, {name: text})
    assert len(str(caught.value)) < 300
