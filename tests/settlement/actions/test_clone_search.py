from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions, TopicOptions, running
from sbnotebook.emulator.entities.rules.rule import Rule, sql_filter
from sbnotebook.model import (
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    Fate,
    FateStatus,
    Message,
    Resubmit,
    SubQueue,
)
from sbnotebook.model.clones import clone_of
from sbnotebook.settlement import AsyncNamespace, administration
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.memory.journal import SentClone
from sbnotebook.settlement.peek import Peeker
from tests.filled_queues import filled_queue
from tests.settlement.actions.dead_letters import dead_letters
from tests.settlement.clerks import CLERK, clerks_connection
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio

CONSUMED, CAME_BACK = FateStatus.CONSUMED, FateStatus.CAME_BACK
WAITING, UNKNOWN = FateStatus.WAITING, FateStatus.UNKNOWN


def search_in(namespace: AsyncNamespace, name: str) -> CloneSearch:
    return CloneSearch(namespace, EntityAddress(name))


async def resubmitted(namespace: AsyncNamespace, name: str, count: int, to: str = "") -> list[str]:
    """Resubmit some dead letters, and return the ids of their clones."""
    letters = await dead_letters(namespace, name, count)
    decision = Resubmit(to=EntityAddress(to or name))
    assert (await namespace.entity(f"{name}/$dlq").plan_resubmit(letters, decision).apply()).ok
    return [clone_of(letter, decision, None, datetime.now(UTC)).message_id or "" for letter in letters]


async def consume(namespace: AsyncNamespace, address: str, *decisions: Decision) -> None:
    async with namespace.entity(address).batch() as batch:
        for decision in decisions:
            (message,) = await batch.receive(1)
            await batch.settle(decision, [message])


async def looked(search: CloneSearch, ids: list[str], *, later: timedelta = timedelta()) -> list[Fate]:
    now = datetime.now(UTC)
    found = await search.fates([SentClone(clone_id, now) for clone_id in ids], now + later)
    assert list(found) == ids
    return list(found.values())


async def statuses(namespace: AsyncNamespace, destination: str, ids: list[str]) -> list[FateStatus]:
    return [fate.status for fate in await looked(search_in(namespace, destination), ids)]


async def test_fates_tell_consumed_clones_from_those_that_came_back(namespace: AsyncNamespace) -> None:
    ids = await resubmitted(namespace, "told", 5)
    search = search_in(namespace, "told")
    assert not search.failed
    assert [fate.status for fate in await looked(search, ids)] == [WAITING] * 5

    await consume(namespace, "told", Complete(), DeadLetter("Invalid", "no carrier"), Defer(), DeadLetter())
    async with namespace.entity("told").batch() as batch:
        await batch.receive(1)
        found = await looked(search, ids)

    assert [fate.status for fate in found] == [CONSUMED, CAME_BACK, WAITING, CAME_BACK, WAITING]
    back = found[1]
    assert (str(back.entity), back.reason, back.description) == ("told/$dlq", "Invalid", "no carrier")
    letter, _ = await namespace.entity("told/$dlq").peek()
    assert back.sequence_number == letter.sequence_number
    assert await looked(search_in(namespace, "told"), ids) == found


async def test_marked_fates_peek_later_messages_only(own: AsyncNamespace) -> None:
    old = await dead_letters(own, "marked", 300)
    (letter,) = old[:1]
    search = search_in(own, "marked")
    await search.mark()
    decision = Resubmit(to=EntityAddress("marked"))
    assert (await own.entity("marked/$dlq").plan_resubmit([letter], decision).apply()).ok
    clone_id = clone_of(letter, decision, None, datetime.now(UTC)).message_id or ""
    assert [fate.status for fate in await looked(search, [clone_id])] == [WAITING]
    await consume(own, "marked", DeadLetter("Again"))
    assert [fate.reason for fate in await looked(search, [clone_id])] == ["Again"]

    earlier = old[5].message_id or ""
    assert [fate.status for fate in await looked(search, [earlier])] == [CONSUMED], "it was there before the mark"
    assert [fate.status for fate in await looked(search_in(own, "marked"), [earlier])] == [CAME_BACK]


async def test_a_fate_is_unknown_where_forwarding_hides_it(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("behind")
    shared_emulator.create_queue("letters-behind")
    shared_emulator.create_queue("before", QueueOptions(forward_to="behind", forward_dead_letters_to="letters-behind"))
    ids = await resubmitted(namespace, "sender", 2, to="before")
    assert await statuses(namespace, "before", ids) == [WAITING, WAITING]
    await consume(namespace, "behind", Complete(), DeadLetter("Bad"))
    assert await statuses(namespace, "before", ids) == [UNKNOWN, CAME_BACK]


async def test_forwarded_dead_letters_came_back(namespace: AsyncNamespace, shared_emulator: RunningEmulator) -> None:
    shared_emulator.create_queue("collected")
    shared_emulator.create_queue("collecting", QueueOptions(forward_dead_letters_to="collected"))
    ids = await resubmitted(namespace, "other-sender", 2, to="collecting")
    await consume(namespace, "collecting", DeadLetter("Bad"), DeadLetter())
    fates = await looked(search_in(namespace, "collecting"), ids)
    assert [(fate.status, str(fate.entity)) for fate in fates] == [(CAME_BACK, "collected")] * 2
    assert fates[0].reason == "Bad"


@pytest.mark.parametrize(
    ("subscriptions", "rules", "expected", "why"),
    [
        (["only"], None, CONSUMED, None),
        (["only"], [Rule("all-but", sql_filter("1 = 1"))], UNKNOWN, "a filter of"),
        (["one", "two"], None, UNKNOWN, "has 2 subscriptions"),
        ([], None, UNKNOWN, "has 0 subscriptions"),
    ],
)
async def test_a_topic_shows_the_fate_with_one_subscription(
    own: AsyncNamespace,
    emulator: RunningEmulator,
    subscriptions: list[str],
    rules: list[Rule] | None,
    expected: FateStatus,
    why: str | None,
) -> None:
    emulator.create_topic("events")
    for name in subscriptions:
        emulator.create_subscription("events", name, rules=rules)
    ids = await resubmitted(own, "to-a-topic", 2, to="events")
    for name in subscriptions:
        await consume(own, f"events/subscriptions/{name}", Complete(), DeadLetter("Bad"))
    consumed, back = await looked(search_in(own, "events"), ids)
    assert consumed.status is expected
    assert (why or "") in (consumed.description or "")
    assert back.status is (CAME_BACK if subscriptions else UNKNOWN)


@pytest.mark.parametrize("consumer", ["one", "two"])
async def test_a_clone_that_came_back_may_wait_in_another_subscription(
    own: AsyncNamespace, emulator: RunningEmulator, consumer: str
) -> None:
    emulator.create_topic("twofold")
    for name in ("one", "two"):
        emulator.create_subscription("twofold", name)
    ids = await resubmitted(own, "to-twofold", 2, to="twofold")
    search = search_in(own, "twofold")
    assert [fate.status for fate in await looked(search, ids)] == [WAITING] * 2
    await consume(own, f"twofold/subscriptions/{consumer}", DeadLetter("Bad"))
    for each in (search, search_in(own, "twofold")):
        back, waits = await looked(each, ids)
        assert (back.status, back.reason, waits.status) == (CAME_BACK, "Bad", WAITING)
    # The copy that waits stays known where that which came back was resubmitted.
    (letter,) = await own.entity(f"twofold/subscriptions/{consumer}/$dlq").peek()
    assert (await own.entity(f"twofold/subscriptions/{consumer}/$dlq").plan_resubmit([letter]).apply()).ok
    assert [fate.status for fate in await looked(search, ids)] == [WAITING] * 2


@pytest.mark.parametrize(
    ("part", "doubt"),
    [
        ("unread_pages", "silent/subscriptions/only could not be looked into"),
        ("takes_all", "a filter of silent/subscriptions/only may have refused it"),
    ],
)
async def test_a_question_without_an_answer_leaves_a_doubt(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, part: str, doubt: str
) -> None:
    emulator.create_topic("silent")
    emulator.create_subscription("silent", "only")
    ids = await resubmitted(own, "to-silent", 1, to="silent")
    search = search_in(own, "silent")
    await consume(own, "silent/subscriptions/only", Complete())

    def fail(*_: object, **__: object) -> None:
        raise TimeoutError("no answer")

    with monkeypatch.context() as silent:
        silent.setattr(administration if part == "takes_all" else Peeker, part, fail)
        (fate,) = await looked(search, ids)
    assert fate.status is UNKNOWN
    assert doubt in (fate.description or "")


async def test_a_fate_is_unknown_once_the_entity_is_gone(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    ids = await resubmitted(own, "leaving", 1)
    search = search_in(own, "leaving")
    assert [fate.status for fate in await looked(search, ids)] == [WAITING]
    emulator.delete("leaving")
    for each in (search, search_in(own, "leaving")):
        (fate,) = await looked(each, ids)
        assert fate.status is UNKNOWN
        assert "leaving" in (fate.description or "")


async def test_expired_clones_count_as_unknown_unless_dead_lettered(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    for name, keeps in (("drops", False), ("keeps", True)):
        options = QueueOptions(default_time_to_live=3_600_000, dead_letter_on_expiration=keeps)
        shared_emulator.create_queue(name, options)
        ids = await resubmitted(namespace, name, 1)
        await consume(namespace, name, Complete())
        search = search_in(namespace, name)
        assert [fate.status for fate in await looked(search, ids)] == [CONSUMED]
        for hours in (1, 2):
            (later,) = await looked(search, ids, later=timedelta(hours=hours))
            assert later.status is (CONSUMED if keeps else UNKNOWN)
        # Where it is not known when it was sent, nothing says that it has expired.
        undated = await search.fates(ids[:1], datetime.now(UTC) + timedelta(hours=2))
        assert undated[ids[0]].status is CONSUMED


async def test_a_clone_that_was_resubmitted_again_is_not_consumed(namespace: AsyncNamespace) -> None:
    ids = await resubmitted(namespace, "twice", 1)
    await consume(namespace, "twice", DeadLetter("Bad"))
    letters = await namespace.entity("twice/$dlq").peek()
    assert (await namespace.entity("twice/$dlq").plan_resubmit(letters).apply()).ok
    (fate,) = await looked(search_in(namespace, "twice"), ids)
    assert fate.status is UNKNOWN
    assert "came back, and was resubmitted" in (fate.description or "")


async def test_fates_of_other_messages_are_not_mixed_up(namespace: AsyncNamespace) -> None:
    ids = await resubmitted(namespace, "mixed", 1)
    await consume(namespace, "mixed", Complete())
    hostile = Message(message_id="m0", application_properties={"OriginalMessageId": b"m0", "ResubmitCount": "9"})
    # A clone of an earlier resubmit, and one of another original with the same id.
    others = [Message(application_properties={"OriginalMessageId": "m1", "ResubmitCount": count}) for count in (1, 2)]
    assert (await namespace.entity("mixed").send([hostile, *others])).ok
    assert await statuses(namespace, "mixed", [*ids, "m1~2-0123456789abcdef"]) == [CONSUMED, CONSUMED]


async def test_later_clones_of_others_do_not_hide_a_clone(namespace: AsyncNamespace) -> None:
    ids = await resubmitted(namespace, "same-ids", 2)
    queue = namespace.entity("same-ids")
    await consume(namespace, "same-ids", DeadLetter("Bad"))
    later = [Message(application_properties={"OriginalMessageId": f"m{n}", "ResubmitCount": 5}) for n in range(2)]
    assert (await queue.send(later, max_in_flight=1)).ok
    last = (await queue.peek())[-1]
    assert (await (await queue.pick([last], DeadLetter("Other"))).apply()).ok
    assert await statuses(namespace, "same-ids", ids) == [CAME_BACK, WAITING]


async def test_another_message_with_the_number_of_a_clone_is_not_it(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("remade")
    ids = await resubmitted(namespace, "to-remade", 2, to="remade")
    search = search_in(namespace, "remade")
    assert [fate.status for fate in await looked(search, ids)] == [WAITING, WAITING]
    shared_emulator.delete("remade")
    shared_emulator.create_queue("remade")
    for closed in (namespace.peeker(EntityAddress("remade")), namespace.pool(EntityAddress("remade"))):
        await closed.close()  # their links were detached
    smaller_and_larger = [Message(message_id="a"), Message(message_id="z")]
    assert (await namespace.entity("remade").send(smaller_and_larger, max_in_flight=1)).ok
    assert [message.sequence_number for message in await namespace.entity("remade").peek()] == [1, 2]
    assert [fate.status for fate in await looked(search, ids)] == [CONSUMED, CONSUMED]


async def test_a_subscription_that_goes_away_may_have_had_a_filter(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    emulator.create_topic("fading")
    emulator.create_subscription("fading", "only")
    search = search_in(own, "fading")
    await search.mark()
    emulator.delete("fading/subscriptions/only")
    (fate,) = await looked(search, ["m~1-0123456789abcdef"])
    assert fate.status is UNKNOWN
    assert "a filter of fading/subscriptions/only may have refused it" in (fate.description or "")


async def test_without_the_right_manage_no_clone_counts_as_consumed(tmp_path: Path) -> None:
    with running(keys=[CLERK], queues=["asked"]) as emulator:
        async with namespace_of(clerks_connection(emulator), tmp_path) as namespace:
            (fate,) = await looked(search_in(namespace, "asked"), ["m~1-0123456789abcdef"])
    assert fate.status is UNKNOWN
    assert "the right Manage is needed" in (fate.description or "")
    assert "topic asked" not in (fate.description or "")


async def test_the_time_for_which_duplicates_are_dropped_is_known(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    window = {"requires_duplicate_detection": True, "duplicate_detection_window": 120_000}
    shared_emulator.create_queue("twice-never", QueueOptions(**window))  # pyright: ignore[reportArgumentType]
    shared_emulator.create_topic("twice-never-told", TopicOptions(**window))  # pyright: ignore[reportArgumentType]
    shared_emulator.create_queue("any-number")
    # There it goes by partition keys, too, which an edit may change.
    shared_emulator.create_queue("parted", QueueOptions(requires_duplicate_detection=True, enable_partitioning=True))
    names = ("twice-never", "twice-never-told", "any-number", "parted")
    found = [await search_in(namespace, name).duplicate_window() for name in names]
    assert found == [timedelta(minutes=2), timedelta(minutes=2), None, None]


async def test_destination_follows_circular_forwarding(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_topic("circle")
    shared_emulator.create_queue("circle-end")
    shared_emulator.create_subscription("circle", "on", SubscriptionOptions(forward_to="circle-end"))
    shared_emulator.create_subscription("circle", "back", SubscriptionOptions(forward_to="circle"), rules=[])
    assert (await namespace.entity("circle").send([Message(message_id="here")])).ok
    place = search_in(namespace, "circle")
    assert await place.find({"here", "nowhere"}) == {"here"}
    assert await place.find(set()) == set()
    assert list(place.doubts) == ["scheduled messages of the topic circle cannot be looked at"]
    assert EntityAddress("circle", "on", SubQueue.TRANSFER_DEAD_LETTER) in await place.places()
    # Where nothing is forwarded, nothing can fail to be.
    assert list(map(str, await search_in(namespace, "circle-end").places())) == ["circle-end", "circle-end/$dlq"]


async def test_a_destination_that_is_gone_holds_nothing_and_says_so(namespace: AsyncNamespace) -> None:
    place = search_in(namespace, "was-never")
    assert await place.find({"here"}) == set()
    assert await place.duplicate_window() is None
    assert list(place.doubts) == ["there is no queue or topic was-never any more"]


async def test_a_clone_is_found_behind_many_other_messages(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "deep", 600)
    ids = {"m0", "m599"}
    assert await search_in(namespace, "deep").find({*ids, "nowhere"}) == ids
    assert await search_in(namespace, "deep").find(ids) == ids
