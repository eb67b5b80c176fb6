from __future__ import annotations

from datetime import timedelta

import pytest

from sbnotebook.model import EntityAddress, PeekedMessage, ReceivedMessage, Resubmit
from sbnotebook.model.clones import clone_of, lineage_of
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from tests.settlement.actions.dead_letters import NOW


def letter(**fields: object) -> PeekedMessage:
    return PeekedMessage(entity=EntityAddress.parse("q/$dlq"), sequence_number=9, **fields)  # pyright: ignore[reportArgumentType]


def test_clone_id_is_derived_and_stable_on_retry() -> None:
    original = letter(message_id="order-1")
    first = clone_of(original, Resubmit(), None, NOW)
    assert first.message_id == clone_of(original, Resubmit(), None, NOW).message_id
    assert (first.message_id or "").startswith("order-1~1-")
    second = clone_of(
        letter(message_id=first.message_id, application_properties=first.application_properties), Resubmit(), None, NOW
    )
    assert (second.message_id or "").startswith("order-1~2-")
    assert second.resubmit_count == 2
    assert (clone_of(letter(), Resubmit(), None, NOW).message_id or "").startswith("q/$deadletterqueue#9~1-")
    long = clone_of(letter(message_id="x" * 128), Resubmit(), None, NOW).message_id or ""
    assert len(long) <= 128
    assert "~1-" in long


def test_clone_id_differs_in_a_recreated_queue() -> None:
    one = letter(message_id="m", enqueued_time=NOW)
    two = letter(message_id="m", enqueued_time=NOW + timedelta(milliseconds=1))
    assert clone_of(one, Resubmit(), None, NOW).message_id != clone_of(two, Resubmit(), None, NOW).message_id


def test_clone_ids_differ_for_thousands_with_one_id() -> None:
    same = letter(message_id="same")
    clones = {clone_of(same.with_changes(sequence_number=n), Resubmit(), None, NOW).message_id for n in range(20_000)}
    assert len(clones) == 20_000


@pytest.mark.parametrize("count", [2**31 - 2, 2**31 - 1])
def test_a_count_stays_the_largest_number_of_its_type(count: int) -> None:
    original = letter(application_properties={"ResubmitCount": count})
    assert clone_of(original, Resubmit(), None, NOW).resubmit_count == 2**31 - 1


@pytest.mark.parametrize("count", [2**31 - 1, 2**40, -5, "7", None])
def test_a_hostile_count_makes_no_clone_that_cannot_be_sent(count: object) -> None:
    original = letter(application_properties={"ResubmitCount": count})
    clone = clone_of(original, Resubmit(), None, NOW)
    assert 1 <= clone.resubmit_count <= 2**31 - 1


def test_an_hostile_lineage_makes_no_id_that_is_too_long() -> None:
    for lineage in ("x" * 100_000, b"\xff" * 200, {"a": ["b"] * 100}, "\ud800" * 200, 0, ""):
        clone = clone_of(letter(application_properties={ORIGINAL_MESSAGE_ID: lineage}), Resubmit(), None, NOW)
        assert 1 <= len(clone.message_id or "") <= 128


def test_the_time_that_an_edit_sets_is_kept_and_an_old_one_is_not() -> None:
    later = NOW + timedelta(hours=3)
    original = letter(scheduled_enqueue_time=NOW - timedelta(days=1))

    def postpone(message: ReceivedMessage) -> ReceivedMessage:
        return message.with_changes(scheduled_enqueue_time=later)

    assert clone_of(original, Resubmit(), None, NOW).scheduled_enqueue_time is None
    assert clone_of(original, Resubmit(), postpone, NOW).scheduled_enqueue_time == later
    delayed = clone_of(original, Resubmit(delay=timedelta(hours=1)), postpone, NOW)
    assert delayed.scheduled_enqueue_time == NOW + timedelta(hours=1)


@pytest.mark.parametrize(("length", "is_kept"), [(109, True), (110, False)])
def test_an_id_is_hashed_where_the_clone_id_would_be_too_long(length: int, is_kept: bool) -> None:
    name = "x" * length
    clone_id = clone_of(letter(message_id=name), Resubmit(), None, NOW).message_id or ""
    assert clone_id.startswith(f"{name}~1-") is is_kept
    assert len(clone_id) == (128 if is_kept else 83)


def test_lineage_names_the_original_and_counts() -> None:
    assert lineage_of("m0~3-0123456789abcdef") == ("m0", 3)
    assert lineage_of("a~1-0123456789abcdef~2-0123456789abcdef") == ("a~1-0123456789abcdef", 2)
    assert lineage_of("~") == ("~", 0)
