from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbnotebook.client import Namespace
from sbnotebook.client.history import Remembered
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import ArchivedCount, ArchiveState, ResubmitEntry

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ORDERS = EntityAddress.parse("orders/$dlq")


def test_remembered_lists_the_actions_of_this_machine(namespace: Namespace) -> None:
    nothing = namespace.remembered()
    assert repr(nothing) == "Nothing is remembered on this machine (removed messages for 7 days)."
    assert nothing._repr_html_() == f"<p>{nothing!r}</p>"  # pyright: ignore[reportPrivateUsage]
    namespace.create_queue("kept")
    queue = namespace.entity("kept")
    queue.send(["a", "b", "c", "d"])
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
    namespace.create_queue("aside")
    queue = namespace.entity("aside")
    queue.send(["a", "b"])
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
        assert shown.count("%sb_undo orders/$dlq --since 1d --include-unknown") == 2
        assert "\x1b" not in shown
    assert "<script>" not in html
    assert len(remembered) == 6
