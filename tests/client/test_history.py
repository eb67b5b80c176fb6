from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbnotebook.client import Namespace
from sbnotebook.client.history import Remembered
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import ArchivedCount, ArchiveState, ResubmitEntry
from tests.filled_queues import filled_client_queue


def fail(namespace: Namespace, queue: str, count: int, reason: str) -> None:
    with namespace.entity(queue).lock(count) as batch:
        batch.dead_letter(reason=reason, description="no price")


def resubmit(namespace: Namespace, queue: str) -> None:
    letters = namespace.entity(f"{queue}/$dlq")
    assert letters.resubmit(letters.peek(), to=queue).apply(show_progress=False).ok


def test_history_tells_consumed_waiting_and_clones_that_came_back(namespace: Namespace) -> None:
    filled_client_queue(namespace, "judged", 3)
    fail(namespace, "judged", 3, "NoPrice")
    resubmit(namespace, "judged")
    with namespace.entity("judged").lock(2) as batch:
        batch.complete(where="message_id like 'm0~%'")
        batch.dead_letter(where="message_id like 'm1~%'", reason="StillNoPrice")

    history = namespace.history("judged/$dlq")

    found = {entry.message_id: entry for entry in history}
    assert {name: entry.fate for name, entry in found.items()} == {"m0": "consumed", "m1": "came back", "m2": "waiting"}
    assert (str(found["m1"].place), found["m1"].reason, found["m1"].times_back) == ("judged/$dlq", "StillNoPrice", 1)
    assert history.came_back == [found["m1"]]
    assert history.summary == "3 resubmits: 1 waiting, 1 came back, 1 consumed."
    assert set(history.to_pandas()["fate"]) == {"consumed", "came back", "waiting"}
    assert "StillNoPrice" in repr(history)
    assert len(namespace.history("judged/$dlq", max_messages=2)) == 2
    assert namespace.history("judged/$dlq", max_messages=2).has_more


def test_history_counts_messages_that_come_back_again_and_again(namespace: Namespace) -> None:
    filled_client_queue(namespace, "stubborn", 1)
    for reason in ("First", "Second", "Third"):
        fail(namespace, "stubborn", 1, reason)
        resubmit(namespace, "stubborn")
    fail(namespace, "stubborn", 1, "Fourth")

    history = namespace.history("stubborn/$dlq")

    assert [(entry.round, entry.fate, entry.reason) for entry in history] == [
        (3, "came back", "Fourth"),
        (2, "came back", None),
        (1, "came back", None),
    ]
    assert [entry.times_back for entry in history] == [3, 3, 3]
    assert history.summary.endswith("1 came back again and again.")
    (group,) = namespace.entity("stubborn/$dlq").peek().groups()
    assert group.came_back == 3
    resubmit(namespace, "stubborn")
    (waiting,) = namespace.entity("stubborn").peek().groups()
    assert waiting.came_back == 0, "a clone that waits for its first delivery"
    fail(namespace, "stubborn", 1, "Fifth")
    assert "came back 4 times" in repr(namespace.entity("stubborn/$dlq").peek().groups())


def test_history_without_resubmits_and_of_a_deleted_queue(namespace: Namespace) -> None:
    assert repr(namespace.history("never")) == (
        "The journal of this machine has no resubmits from there in the last 30 days."
    )
    filled_client_queue(namespace, "short-lived", 1)
    fail(namespace, "short-lived", 1, "Bad")
    resubmit(namespace, "short-lived")
    namespace.delete_queue("short-lived")
    (entry,) = namespace.history("short-lived/$dlq")
    assert entry.fate == "unknown"
    assert "there is no queue or topic short-lived any more" in (entry.description or "")


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ORDERS = EntityAddress.parse("orders/$dlq")


def test_remembered_lists_the_actions_of_this_machine(namespace: Namespace) -> None:
    nothing = namespace.remembered()
    assert repr(nothing) == "Nothing is remembered on this machine (removed messages for 7 days)."
    assert nothing._repr_html_() == f"<p>{nothing!r}</p>"  # pyright: ignore[reportPrivateUsage]
    queue = filled_client_queue(namespace, "kept", 4)
    with queue.lock(4) as batch:
        assert batch.complete(batch.messages[:2]).ok
        assert batch.defer(batch.messages[:1]).ok
    queue.purge(state="active").apply()
    namespace.undo(queue.purge(state="deferred").apply()).apply()
    namespace.note("f1", "the price list was empty")

    remembered = namespace.remembered()

    assert [(str(place), count) for place, count, _ in remembered.deferred] == []
    assert sorted((str(each.entity), each.verb, each.state.value, each.count) for each in remembered.removed) == [
        ("kept", "complete", "removed", 2),
        ("kept", "purge", "removed", 1),
        ("kept", "purge", "returned", 1),
    ]
    assert remembered.notes == {"f1": "the price list was empty"}
    assert remembered.retention == timedelta(days=7)
    text = repr(remembered)
    assert "%sb_undo kept --since 7d" in text
    assert "purge: undone" in text


def test_remembered_lists_deferrals_until_settled(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "aside", 2)
    with queue.lock(2) as batch:
        assert batch.defer().ok
    ((place, count, last),) = namespace.remembered().deferred
    assert (str(place), count) == ("aside", 2)
    assert abs(datetime.now(UTC) - last) < timedelta(minutes=5)
    assert queue.deferred().complete().apply().ok
    assert namespace.remembered().deferred == []


def test_remembered_names_the_magic_of_each_kind() -> None:
    entry = ResubmitEntry("host", "orders/$DeadLetterQueue", 7, "m", "orders", "c", changed=NOON)
    remembered = Remembered(
        unfinished=[entry, entry],
        deferred=[(ORDERS, 3, NOON)],
        removed=[
            ArchivedCount(ORDERS, "complete", ArchiveState.REMOVING, 4, NOON),
            ArchivedCount(ORDERS, "complete", ArchiveState.RETURNING, 5, NOON),
            ArchivedCount(ORDERS, "complete", ArchiveState.RETURNED, 6, NOON),
            ArchivedCount(ORDERS, "resubmit", ArchiveState.REMOVED, 7, NOON),
        ],
        notes={"f": "<script>\x1b[31m"},
        retention=None,
    )
    text, html = repr(remembered), remembered._repr_html_()  # pyright: ignore[reportPrivateUsage]
    for shown in (text, html):
        assert "Remembered on this machine (there is no archive)." in shown
        assert "orders/$dlq to orders" in shown
        assert "%sb_resume orders/$dlq" in shown
        assert "%sb_deferred orders/$dlq" in shown
        assert "complete: perhaps removed" in shown
        assert shown.count("%sb_undo orders/$dlq --since 1d --include-unknown") == shown.count("%sb_undo") == 2
        assert "\x1b" not in shown
    assert "<script>" not in html
    assert len(remembered) == 7
