from __future__ import annotations

import pickle
import random
import tracemalloc
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, Report, RunSpeed, Tally

ORDERS, INVOICES = EntityAddress("orders"), EntityAddress("invoices")

SUCCESSES = st.builds(
    Outcome,
    st.just(OutcomeStatus.SETTLED),
    st.sampled_from(["send", "complete"]),
    st.sampled_from([ORDERS, INVOICES]),
    st.none() | st.integers(0, 2**63 - 1),
    st.none() | st.text(st.characters(), max_size=5),  # half characters among them
)
OTHERS = st.builds(
    Outcome,
    st.sampled_from(OutcomeStatus),
    st.just("send"),
    st.just(ORDERS),
    description=st.none() | st.text(max_size=5),
    retryable=st.none() | st.booleans(),
)


# A long report is kept compressed.
@pytest.mark.parametrize("length", [30, 2100])
@given(few=st.lists(SUCCESSES | OTHERS, max_size=20), part=st.slices(2100))
def test_a_report_gives_back_what_it_was_made_of(few: list[Outcome], part: slice, length: int) -> None:
    outcomes = [few[number % len(few)] for number in range(length)] if few else []
    report = Report(outcomes)
    assert list(report) == outcomes
    assert isinstance(report[part], Report)
    assert list(report[part]) == outcomes[part]
    assert [report[index] for index in range(-len(outcomes), len(outcomes), 97)] == [
        outcomes[index] for index in range(-len(outcomes), len(outcomes), 97)
    ]
    assert report.failures == tuple(outcome for outcome in outcomes if not outcome.ok)
    assert report.settled == sum(outcome.ok for outcome in outcomes)
    assert report.counts == Counter(outcome.status for outcome in outcomes)
    assert report.ok is (len(report.failures) == 0)
    assert len(report) == len(outcomes)


def sent(number: int, status: OutcomeStatus = OutcomeStatus.SETTLED) -> Outcome:
    return Outcome(status, "send", ORDERS, message_id=f"m{number}")


def test_reports_are_equal_when_their_outcomes_are() -> None:
    report = Report(sent(number) for number in range(3000))
    assert report == Report([sent(number) for number in range(1000)]) + Report(map(sent, range(1000, 3000)))
    assert report != report[:-1]
    assert report[:-1] != report
    assert report != Report([*report[:-1], sent(2999, OutcomeStatus.UNCONFIRMED)])
    assert report != list(report)


def test_a_joined_report_finds_each_outcome() -> None:
    report = Report(map(sent, range(1500))) + Report() + Report([sent(1500)]) + Report(map(sent, range(1501, 2600)))
    assert [outcome.message_id for outcome in report] == [f"m{number}" for number in range(2600)]
    assert (report[1500], report[2599], report[-2600]) == (sent(1500), sent(2599), sent(0))
    with pytest.raises(IndexError):
        _ = report[2600]


def test_reading_a_joined_report_reads_its_parts() -> None:
    part = Report([Outcome(OutcomeStatus.SETTLED, "send", ORDERS)])
    look = part.watch()
    joined = part + Report()
    assert len(joined) == 1
    assert not look.is_done
    assert list(joined)
    assert look.is_done


def test_all_who_watch_a_report_learn_that_it_was_read() -> None:
    report = Report([sent(1)])
    looks = [report.watch(), report.watch()]
    assert [look.is_done for look in looks] == [False, False]
    assert report.ok
    assert [look.is_done for look in looks] == [True, True]


def test_the_speed_is_told_of_100_messages_or_more() -> None:
    assert Report(map(sent, range(99))).timed(2.0, 7).speed is None
    outcomes = [*map(sent, range(99)), sent(99, OutcomeStatus.FAILED)]
    assert Report(outcomes).timed(2.0, 7).speed == RunSpeed(99, 2.0, 7)


@pytest.mark.parametrize(
    ("speed", "text"),
    [
        (RunSpeed(11, 2.0, 1), "in 2s, 6 messages a second, at most 1 in flight"),
        (RunSpeed(11, 1.26, 1), "in 1.3s, 9 messages a second, at most 1 in flight"),
        (RunSpeed(11, 0.0, 1), "in 0s, at most 1 in flight"),
    ],
    ids=str,
)
def test_a_speed_is_told_in_seconds_and_messages(speed: RunSpeed, text: str) -> None:
    assert str(speed) == text


def test_a_report_can_be_pickled() -> None:
    report = Report(
        sent(number, OutcomeStatus.FAILED if number == 7 else OutcomeStatus.SETTLED) for number in range(2000)
    )
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301 (our own)


def test_a_million_successes_take_little_more_than_their_ids() -> None:
    chance = random.Random(5)  # noqa: S311 (no secret)
    count = 50_000
    tracemalloc.start()
    report = Report(_with_id(chance) for _ in range(count))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(report) == count
    assert size / count < 30  # of 32 hexadecimal digits, which are 16 bytes


def _with_id(chance: random.Random) -> Outcome:
    return Outcome(OutcomeStatus.SETTLED, "send", ORDERS, message_id=UUID(int=chance.getrandbits(128)).hex)


@given(st.permutations(range(40)))
def test_a_tally_has_its_report_in_the_order_of_the_messages(order: list[int]) -> None:
    tally = Tally()
    for index in order[:30]:
        tally.note(index * 100, sent(index))
    assert [outcome.message_id for outcome in tally.report()] == [f"m{index}" for index in sorted(order[:30])]


def test_a_later_outcome_takes_the_place_of_an_earlier_one() -> None:
    tally = Tally()
    for index in range(1500):
        tally.note(index, sent(index))
    for index in (3, 1200):
        tally.note(index, sent(index, OutcomeStatus.UNCONFIRMED))
    report = tally.report()
    assert [outcome.message_id for outcome in report.failures] == ["m3", "m1200"]
    assert len(report) == 1500
    tally.note(3, sent(3))
    assert tally.report().settled == 1499
    assert report.settled == 1498


def test_outcomes_that_are_alike_are_noted_together() -> None:
    tally = Tally()
    tally.note_alike([0, 2], OutcomeStatus.SETTLED, map(sent, (0, 2)))
    assert [outcome.message_id for outcome in tally.report()] == ["m0", "m2"]
    with pytest.raises(ValueError, match="zip"):
        tally.note_alike([3, 4], OutcomeStatus.SETTLED, [sent(3)])


def test_a_report_has_no_hash_and_a_repr() -> None:
    with pytest.raises(TypeError):
        hash(Report())
    assert repr(Report([sent(1)])) == "<Report Sent 1 message>"


def test_a_short_report_takes_no_time_to_compress() -> None:
    outcomes = [sent(number) for number in range(1023)]
    assert all(one is other for one, other in zip(Report(outcomes), outcomes, strict=True))


def test_report_is_a_frame_with_a_row_for_each_outcome() -> None:
    broken = "half \ud800"
    outcomes = [
        Outcome(OutcomeStatus.SETTLED, "complete", EntityAddress("orders"), 7, "m7"),
        Outcome(OutcomeStatus.FAILED, "send", EntityAddress("orders"), None, "m8", "busy", broken, "t", retryable=True),
    ]
    frame = Report(outcomes).to_pandas()
    assert [*frame.columns][:5] == ["entity", "sequence_number", "message_id", "verb", "status"]
    assert frame["sequence_number"].tolist()[0] == 7
    assert frame["sequence_number"].isna().tolist() == [False, True]
    assert frame["status"].tolist() == ["settled", "failed"]
    assert {type(value) for name in ("entity", "status") for value in frame[name]} == {str}
    assert frame["description"].tolist() == [None, broken]
    assert [*Report().to_pandas().columns] == [*frame.columns]
    assert outcomes[0].to_pandas()["message_id"].tolist() == ["m7"]


def test_outcome_is_shown_as_a_sentence() -> None:
    lost = Outcome(OutcomeStatus.LOCK_LOST, "complete", EntityAddress("orders"), 7, "m7", "lock-lost", "It ended.")
    assert repr(lost) == "<Outcome complete message 7 of orders: lock lost (lock-lost: 'It ended.')>"
    sent = Outcome(OutcomeStatus.SETTLED, "send", EntityAddress("orders"), None, "m7")
    assert repr(sent) == "<Outcome send 'm7' of orders: settled>"
