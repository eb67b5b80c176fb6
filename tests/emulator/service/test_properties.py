from __future__ import annotations

import re

import pytest

from sbnotebook.emulator.entities.options import FOREVER, EntityStatus, QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.service.properties import PROPERTIES, read_properties
from sbnotebook.errors import ConfigurationError


def test_missing_empty_and_unknown_properties_have_defaults() -> None:
    assert read_properties(QueueOptions, {}) == QueueOptions()
    assert read_properties(QueueOptions, {"ForwardTo": "", "Fly": "true"}) == QueueOptions()
    changed = QueueOptions(max_delivery_count=3, user_metadata="x")
    assert read_properties(QueueOptions, {"LockDuration": "PT30S"}, changed) == QueueOptions(lock_duration=30_000)


def test_a_topic_has_no_lock() -> None:
    assert read_properties(TopicOptions, {"LockDuration": "PT30S"}) == TopicOptions()


@pytest.mark.parametrize(
    "options",
    [
        QueueOptions(
            lock_duration=13_000,
            max_delivery_count=14,
            requires_session=True,
            default_time_to_live=660_000,
            dead_letter_on_expiration=True,
            requires_duplicate_detection=True,
            duplicate_detection_window=723_000,
            forward_dead_letters_to="team/bills",
            auto_delete_on_idle=601_000,
            status=EntityStatus.SEND_DISABLED,
            max_size_mb=3072,
            max_message_size_kb=2048,
            enable_partitioning=True,
            enable_batched_operations=False,
            enable_express=True,
            user_metadata="<any> text",
        ),
        TopicOptions(support_ordering=False, filter_messages_before_publishing=True, default_time_to_live=1),
        SubscriptionOptions(dead_letter_on_filter_errors=False, forward_to="orders", auto_delete_on_idle=None),
    ],
)
def test_options_are_read_as_they_were_written(options: QueueOptions | TopicOptions | SubscriptionOptions) -> None:
    texts = {name: each.write(getattr(options, each.option, None)) for name, each in PROPERTIES.items()}
    assert read_properties(type(options), {name: text for name, text in texts.items() if text}) == options


@pytest.mark.parametrize("text", [FOREVER, "P10675199DT2H48M5.477580S"])
def test_the_longest_duration_is_never(text: str) -> None:
    # The SDK cuts the last digits.
    texts = {"DefaultMessageTimeToLive": text, "AutoDeleteOnIdle": text}
    assert read_properties(QueueOptions, texts) == QueueOptions()


@pytest.mark.parametrize("name", ["RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning"])
def test_fixed_properties_stay_unchanged(name: str) -> None:
    created = read_properties(QueueOptions, {name: "true"})
    assert read_properties(QueueOptions, {}, created) == created
    assert read_properties(QueueOptions, {name: "TRUE"}, created) == created
    with pytest.raises(ConfigurationError, match=f"the {name} property of an existing Queue cannot"):
        read_properties(QueueOptions, {name: "false"}, created)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LockDuration", "soon"),
        ("LockDuration", "PT6M"),
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
        read_properties(QueueOptions, {name: text})
    assert len(str(caught.value)) < 300


def test_every_name_is_service_buss_own() -> None:
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", name) for name in PROPERTIES)
