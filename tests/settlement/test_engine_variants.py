"""Every action, in any of the ways that Azure may behave and under troubles: each message is counted afterwards.

A failing run prints how to repeat it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    Outcome,
    OutcomeStatus,
    Resubmit,
    Send,
)
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import Limits, Policy, PolicyRow, Then
from sbnotebook.settlement.engine import GROUP, Run
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.sdk import management
from tests.chances import IS_THOROUGH, rounds
from tests.settlement.azure_variants import (
    DEAD,
    QUEUE,
    TO,
    TROUBLES,
    VARIANTS,
    Act,
    Move,
    Scene,
    Spot,
    Trouble,
    World,
    world_of,
)

RUNS: Final = rounds(3, 30)
IS_SHORT: Final = not IS_THOROUGH
ACTIVE, DEFERRED, SCHEDULED = Spot(QUEUE), Spot(QUEUE, "DEFERRED"), Spot(QUEUE, "SCHEDULED")
DEAD_LETTERED, MENDED = Spot(DEAD), Spot(TO)

GO_ON: Final = Policy(failed=PolicyRow(Abandon(), Then.GO_ON))
RESUBMIT: Final = Resubmit(to=EntityAddress(TO))
MOVES: Final[Mapping[Decision, Move]] = {
    Complete(): Move(ACTIVE, None),
    Abandon(): Move(ACTIVE, ACTIVE),
    DeadLetter("bad"): Move(ACTIVE, DEAD_LETTERED),
    Defer(): Move(ACTIVE, DEFERRED),
    RESUBMIT: Move(ACTIVE, MENDED, is_clone=True),
}


# ---------------------------------------------------------------------- the actions


async def send(world: World, chance: Random) -> None:
    messages = world.new(chance.choice((1, 15)), chance)
    world.expect([str(message.message_id) for message in messages], Move(None, ACTIVE))
    world.tell(await world.namespace.entity(QUEUE).send(messages, max_in_flight=chance.choice((1, 4))))


async def schedule(world: World, chance: Random) -> None:
    messages = world.new(chance.choice((1, 8)), chance)
    world.expect([str(message.message_id) for message in messages], Move(None, SCHEDULED))
    world.tell(await world.namespace.entity(QUEUE).send(messages, Send(delay=timedelta(days=30))))


async def cancel(world: World, chance: Random) -> None:
    numbers = some(world.numbers(SCHEDULED), chance)
    world.expect(numbers.values(), Move(SCHEDULED, None))
    world.tell(await world.namespace.entity(QUEUE).plan_cancel_scheduled(numbers).apply())


def picking(decision: Decision) -> Act:
    async def pick(world: World, chance: Random) -> None:
        numbers = some(world.numbers(ACTIVE), chance)
        plan = await world.namespace.entity(QUEUE).pick(numbers, decision)
        world.expect(numbers.values(), MOVES[decision])
        world.tell(await plan.apply(Limits(chance.choice((1, 10, AUTO)))))

    return pick


async def undo(world: World, _: Random) -> None:
    names = [name for name in world.known if name not in world.before]
    plan = await world.namespace.undo(world.removed)
    world.expect(names, Move(None, ACTIVE), is_told_of_each=False)
    world.tell(await plan.apply())


async def purge(world: World, chance: Random) -> None:
    place = chance.choice((QUEUE, DEAD))
    plan = await world.namespace.entity(place).purge()
    spots = [spot for spot in (ACTIVE, DEFERRED, SCHEDULED, DEAD_LETTERED) if spot.path == place]
    for spot in spots:
        world.expect(world.numbers(spot).values(), Move(spot, None), is_told_of_each=False)
    world.tell(await plan.apply())


async def defer_all(world: World, chance: Random) -> None:
    plan = await world.namespace.entity(QUEUE).defer_all(max_messages=chance.choice((5, None)))
    world.expect(world.numbers(ACTIVE).values(), MOVES[Defer()], is_told_of_each=False)
    world.tell(await plan.apply())


def settling_deferred(decision: Decision) -> Act:
    async def settle_deferred(world: World, chance: Random) -> None:
        queue = world.namespace.entity(QUEUE)
        numbers = some(world.numbers(DEFERRED), chance)
        chosen = [message for message in await queue.peek() if message.sequence_number in numbers]
        names = [numbers[message.sequence_number] for message in chosen]
        target = DEFERRED if isinstance(decision, Abandon) else MOVES[decision].target
        world.expect(names, MOVES[decision]._replace(origin=DEFERRED, target=target))
        if isinstance(decision, Resubmit):
            plan = queue.plan_resubmit(chosen, decision)
        else:
            plan = queue.plan_deferred(chosen, decision)
        world.tell(await plan.apply())

    return settle_deferred


async def resubmit(world: World, chance: Random) -> None:
    origin = chance.choice((ACTIVE, DEAD_LETTERED))
    numbers = world.numbers(origin)
    place = world.namespace.entity(origin.path)
    chosen = [message for message in await place.peek() if message.sequence_number in numbers]
    chosen = chosen[: chance.choice((3, len(chosen)))]
    names = [numbers[message.sequence_number] for message in chosen]
    world.expect(names, MOVES[RESUBMIT]._replace(origin=origin))
    world.tell(await place.plan_resubmit(chosen, RESUBMIT).apply(Limits(chance.choice((1, 10, AUTO)))))


async def resubmit_atomically(world: World, chance: Random) -> None:
    place = world.namespace.entity(DEAD)
    decision = chance.choice((Resubmit(to=EntityAddress(QUEUE), atomic=True), replace(RESUBMIT, atomic="forward")))
    target = ACTIVE if decision.atomic is True else MENDED
    numbers = world.numbers(DEAD_LETTERED)
    chosen = [message for message in await place.peek() if message.sequence_number in numbers]
    names = [numbers[message.sequence_number] for message in chosen]
    world.expect(names, Move(DEAD_LETTERED, target, is_clone=True, is_atomic=True))
    faults = world.emulator.faults
    faults.transaction_refusal = chance.choice(("rejected", "in_state", "detach"))
    if chance.random() < 0.5:
        drop = chance.choice(("drop_before_nth", "drop_after_nth"))
        setattr(faults.entity("$coordinator"), drop, chance.randint(1, 8))
    world.tell(await place.plan_resubmit(chosen, decision).apply(Limits(chance.choice((1, 10, AUTO)))))


async def resume(world: World, _: Random) -> None:
    for name, move in list(world.resubmitted.items()):
        # A later action may have deferred the original, which is resubmitted all the same.
        stands = (
            copy.spot for copy in world.before.get(name, ()) if move.origin and copy.spot.path == move.origin.path
        )
        world.expect([name], move._replace(origin=next(stands, move.origin)), is_told_of_each=False)
    for plan in await world.namespace.resume():
        world.tell(await plan.apply())


async def lock_and_settle(world: World, chance: Random) -> None:
    decision = chance.choice([each for each in MOVES if not isinstance(each, Resubmit)])
    world.expect(world.numbers(ACTIVE).values(), MOVES[decision], is_told_of_each=False)
    queue = world.namespace.entity(QUEUE)
    batch = queue.session(None, max_wait=2) if world.scene.has_sessions else queue.batch()
    async with batch:
        messages = await batch.receive(chance.choice((3, 20)), max_wait=1)
        world.tell(await batch.settle(decision, messages[::2]))


async def process(world: World, chance: Random) -> None:
    world.expect(world.numbers(ACTIVE).values(), MOVES[Complete()], is_told_of_each=False)

    fails_once = set(some(world.numbers(ACTIVE), chance)) if chance.random() < 0.5 else set[int]()

    async def work(message: LockedMessage) -> None:
        world.order.setdefault(message.session_id, []).append(message.sequence_number)
        await anyio.sleep(0.01)
        if message.sequence_number in fails_once:
            fails_once.discard(message.sequence_number)
            raise ZeroDivisionError

    by_session = world.scene.has_sessions
    queue, at_once = world.namespace.entity(QUEUE), chance.choice((1, 3))
    world.tell(await queue.process(work, policy=GO_ON, by_session=by_session, max_wait=1, max_in_flight=at_once))
    if not by_session:
        world.order.clear()  # only a session promises an order


ACTS: Final[Mapping[str, Act]] = {
    "send": send,
    "schedule": schedule,
    "cancel": cancel,
    **{f"pick to {decision.verb}": picking(decision) for decision in MOVES},
    "undo": undo,
    "purge": purge,
    "defer_all": defer_all,
    **{f"{decision.verb} deferred": settling_deferred(decision) for decision in MOVES if decision != Defer()},
    "resubmit": resubmit,
    "resubmit atomically": resubmit_atomically,
    "resume": resume,
    "lock and settle": lock_and_settle,
    "process": process,
}


def some(numbers: dict[int, str], chance: Random) -> dict[int, str]:
    """Return about half of the messages."""
    return {number: name for number, name in numbers.items() if chance.random() < 0.5}


# ---------------------------------------------------------------------- what the count notices


async def lose(world: World, _: Random) -> None:
    async with world.namespace.connection.receiver(EntityAddress(QUEUE)) as receiver:
        (message,) = await receiver.take(1, max_wait=5)
        await management.settle_by_tokens(receiver, [message.lock_token], Complete(), answer_within=20)


async def double(world: World, chance: Random) -> None:
    await world.namespace.entity(QUEUE).send(2 * world.new(1, chance))


async def lie(world: World, _: Random) -> None:
    number, name = next(iter(world.numbers(ACTIVE).items()))
    world.expect([name], MOVES[Complete()])
    world.tell([Outcome(OutcomeStatus.SETTLED, "complete", EntityAddress(QUEUE), number)])


async def work_backwards(world: World, _: Random) -> None:
    world.order = {"a": [1, 3, 1, 2]}


@pytest.mark.anyio
@pytest.mark.parametrize("act", [lose, double, lie, work_backwards], ids=lambda act: act.__name__)
async def test_a_wrong_action_is_noticed(tmp_path: Path, act: Act) -> None:
    async with world_of(Scene(), tmp_path) as world:
        await world.set_up(Random(0))  # noqa: S311 - no secret
        with pytest.raises(AssertionError, match=r"was at|in the order"):
            await world.carry_out(act)


# ---------------------------------------------------------------------- the runs

troubles = st.builds(Trouble, st.sampled_from(sorted(TROUBLES)), st.sampled_from((0.0, 0.02, 0.05, 0.1, 0.2, 0.4)))
steps = st.tuples(st.sampled_from(sorted(ACTS)), st.lists(troubles, max_size=3), st.integers(0, 1000))


def turns_slowly(scene: Scene) -> bool:
    """Tell whether a session turns by few messages at a time, each time for seconds, until its first one comes.

    That happens where released messages come at its end, and a link gets few before it settles one.
    """
    variants, most = scene.variants, scene.variants.get("max_unsettled") or scene.size
    ends_last = variants.get("order_after_release") == "back" and variants.get("over_max_unsettled") == "stop"
    return scene.has_sessions and ends_last and scene.size > 10 * most


scenes = st.builds(
    Scene,
    variants=st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VARIANTS.items()}),
    has_sessions=st.booleans(),
    is_partitioned=st.booleans(),
    detects_duplicates=st.booleans(),
    lock_seconds=st.sampled_from((10, 30)),
    size=st.sampled_from((20,) if IS_SHORT else (20, 20, 20, 450)),
    body_size=st.sampled_from((0, 0, 70_000)),
    one_way_ms=st.sampled_from((0, 0, 5, 30)),
    group=st.sampled_from((2, 7, GROUP)),
    per_link=st.sampled_from((6, 60, LockedBatch.per_link)),
).filter(lambda scene: not turns_slowly(scene))


def at_most(most: int) -> Callable[[Run, int], int]:
    """Return how many messages a group has where it may have some number."""
    return lambda _, size=GROUP: min(size, most)


async def play(scene: Scene, story: list[tuple[str, list[Trouble], int]], folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Several groups are in progress at once, also of few messages.
        patch.setattr(Run, "group_size", at_most(scene.group))
        if not scene.has_sessions:
            patch.setattr(LockedBatch, "per_link", scene.per_link)
        async with world_of(scene, folder) as world:
            await world.set_up(Random(0))  # noqa: S311 - no secret
            for act, trouble, seed in story:
                await world.carry_out(ACTS[act], trouble, seed)
            await world.carry_out(resume)


@settings(
    max_examples=RUNS,
    derandomize=IS_SHORT,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink what depends on time takes for ever
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(scene=scenes, story=st.lists(steps, min_size=1, max_size=2 if IS_SHORT else 4))
def test_each_message_is_counted(scene: Scene, story: list[tuple[str, list[Trouble], int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(play, scene, story, Path(folder))
