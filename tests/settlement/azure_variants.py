"""A queue on an emulator that behaves in any of the ways that Azure may, and the count of its messages.

Each message has a name, which its body carries, so that it is recognised in every place: see
:class:`World`. What the emulator holds is read from its memory, not over the connection that is disturbed.
"""

# ruff: noqa: SLF001 (the emulator's memory, and the SDK's credential, which fails for a while)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import anyio
from azure.core.exceptions import AzureError
from azure.servicebus.aio import _base_handler_async as sdk

from sbnotebook.emulator import QueueOptions, RunningEmulator, Tier, running
from sbnotebook.emulator.entities.box import COMPLETE
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import DeadLetter, Decision, Defer, Message, Outcome, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.locking.lock import LockedBatch
from tests.hand_clock import HandClock
from tests.settlement.namespaces import namespace_of

__all__ = [
    "DEAD",
    "ENDS",
    "QUEUE",
    "TO",
    "TROUBLES",
    "VARIANTS",
    "Act",
    "Move",
    "Scene",
    "Spot",
    "Trouble",
    "World",
    "world_of",
]

QUEUE: Final = "orders"
DEAD: Final = "orders/$DeadLetterQueue"
TO: Final = "mended"
PATHS: Final = (QUEUE, DEAD, TO)
PATIENCE: Final = 45
"""Seconds after which an action hangs, beside those for which it tries to lock what others may have."""
SILENCE: Final = 20
"""Seconds for which the library waits for the confirmation of a range."""
SLOWEST: Final = 0.25
"""Seconds for each message besides: a link may have to be emptied after a few."""
ENDS: Final = (AzureError, OSError, SbNotebookError)
"""Errors with which a disturbed action may end."""
_NAME: Final = re.compile(rb"<(m\d+)>")
_SENT: Final = "The clone was sent"
"""How a resubmit says that the clone is there and the original, too."""

VARIANTS: Final[Mapping[str, tuple[object, ...]]] = {
    "accept_delay_ms": (0, 10, 40),
    "settle_delay_ms": (0, 10, 40),
    "delivery_delay_ms": (0, 20),
    "empty_peeks": (0, 1, 3),
    "short_answers": (0, 1, 5),
    "batch_delete": ("taken", "refused", "zero"),
    "short_deletes": (0, 1, 3),
    "unconfirmed": ("", "released", "ranges"),
    "order_after_release": ("place", "front", "back"),
    "link_settles_minutes": (0, 1),
    "max_unsettled": (0, 4, 20),
    "over_max_unsettled": ("detach", "stop"),
    "mixed_partitions": ("taken", "refused"),
    "refused_tokens": ("kept", "settled"),
    "activated_state": ("active", "scheduled"),
}
"""Each behaviour that an entity may have, by the name of its fault: a new one is one line."""

LOSES_LOCKS: Final = ("unconfirmed", "link_settles_minutes", "max_unsettled")

TROUBLES: Final[Mapping[str, Callable[[World, Random], object]]] = {
    "busy": lambda world, chance: world.fault(server_busy=chance.randint(1, 3)),
    "reject": lambda world, chance: world.fault(
        reject_nth=chance.randint(1, 5), reject_condition=chance.choice(("amqp:internal-error", "amqp:not-allowed"))
    ),
    "break off": lambda world, chance: world.fault(
        broken_off=chance.randint(1, 6), broken_off_is=chance.choice(("kept", "settled", "busy"))
    ),
    "drop before": lambda world, chance: world.fault(drop_before_nth=chance.randint(1, 4)),
    "drop after": lambda world, chance: world.fault(drop_after_nth=chance.randint(1, 4)),
    "lost locks": lambda world, _: world.emulator.lose_locks(),
    "closed links": lambda world, _: world.emulator.close_links(),
    "dropped connections": lambda world, _: world.emulator.drop_connections(),
    "freeze": lambda world, chance: world.freeze_for(chance.choice((0.2, 0.6, 2.5))),
    "no token": lambda world, chance: world.fail_tokens_for(chance.choice((0.2, 1.0))),
    "consumer": lambda world, _: world.consume(),
    "rival": lambda world, chance: world.take(chance.randint(1, 4)),
    "time": lambda world, _: world.clock.emulators.advance(world.scene.lock_seconds + 1),
}
"""What can happen at any moment of an action, by name."""


class Spot(NamedTuple):
    """The place of one copy of a message."""

    path: str
    state: str = "ACTIVE"


class Copy(NamedTuple):
    """One copy of a message."""

    spot: Spot
    number: int
    deliveries: int
    session_id: str


View = Mapping[str, tuple[Copy, ...]]


class Move(NamedTuple):
    """What an action is to do with a message: from one spot to another, None for neither."""

    origin: Spot | None
    target: Spot | None
    is_clone: bool = False
    is_atomic: bool = False

    def without_origin(self) -> Move:
        """Return the same where the message stays, too."""
        return self._replace(origin=None)


class Trouble(NamedTuple):
    """Something that happens in the middle of an action."""

    name: str
    after: float
    """Seconds from the begin of the action."""


@dataclass(frozen=True)
class Scene:
    """What the queue is like, all the time."""

    variants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    has_sessions: bool = False
    is_partitioned: bool = False
    detects_duplicates: bool = False
    lock_seconds: int = 10
    size: int = 20
    body_size: int = 0
    one_way_ms: int = 0
    """Milliseconds that each byte is on its way to the emulator, and as many back."""
    group: int = 200
    """Messages that take their steps together, at most."""
    per_link: int = LockedBatch.per_link
    """Messages that are unsettled on a link, at most. The one link of a session always has room for all."""


@dataclass
class World:
    """An emulator with a queue, its dead-letter queue and a destination, and all messages by name.

    Args:
        scene: how they behave.
        emulator: which one.
        namespace: what acts.
        clock: that of both.
    """

    scene: Scene
    emulator: RunningEmulator
    namespace: AsyncNamespace
    clock: HandClock
    moves: dict[str, Move] = field(default_factory=dict[str, Move])
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict[str, list[Outcome]])
    order: dict[str | None, list[int]] = field(default_factory=dict[str | None, list[int]])
    known: set[str] = field(default_factory=set[str])
    resubmitted: dict[str, Move] = field(default_factory=dict[str, Move])
    removed: list[Outcome] = field(default_factory=list[Outcome])
    consumed: dict[str, tuple[Copy, ...]] = field(default_factory=dict[str, tuple[Copy, ...]])
    taken: set[str] = field(default_factory=set[str])
    is_told_of_each: bool = True
    is_calm: bool = False
    before: View = field(default_factory=dict[str, tuple[Copy, ...]])
    _thaw_at: float = 0
    _tokens_fail_until: float = 0

    # ------------------------------------------------------------------ messages

    def new(self, count: int, chance: Random) -> list[Message]:
        """Make messages that have not been there before."""
        names = [f"m{len(self.known) + number}" for number in range(count)]
        self.known |= set(names)
        filling = bytes(self.scene.body_size)
        sessions = ("a", "b", "c") if self.scene.has_sessions else (None,)
        return [
            Message(body=b"<%s>" % name.encode() + filling, message_id=name, session_id=chance.choice(sessions))
            for name in names
        ]

    async def set_up(self, chance: Random) -> None:
        """Fill the queue: some messages are dead-lettered, some deferred."""
        # Ahead of the machine's clock, by which the SDK sees the lock of a session end.
        self.clock.emulators.advance(600)
        queue = self.namespace.entity(QUEUE)
        decisions: tuple[Decision, ...] = (DeadLetter("old"), Defer())
        for decision in decisions:
            assert (await queue.send(self.new(6, chance))).ok
            plan = await queue.pick(self.before_all(), decision)
            assert (await plan.apply()).ok
        assert (await queue.send(self.new(self.scene.size, chance))).ok

    def before_all(self) -> list[int]:
        """Return the sequence numbers of all active messages."""
        self.before = self.look()
        return [*self.numbers(Spot(QUEUE))]

    def look(self) -> View:
        """Read where each copy of each message is, in the emulator's memory."""

        def read(broker: Any) -> dict[str, tuple[Copy, ...]]:
            found = {name: list(copies) for name, copies in self.consumed.items()}
            for path in PATHS:
                box, _ = box_of(broker, path)
                for message in box.peek(0, 1_000_000):
                    name, copy = copy_of(box, message, path)
                    found.setdefault(name, []).append(copy)
            return {name: tuple(sorted(copies)) for name, copies in found.items()}

        return self.emulator._do(read)

    def consume(self) -> None:
        """Take all clones from where they are sent, as a consumer does, so that no peek finds them."""

        def consume(broker: Any) -> None:
            box, now = box_of(broker, TO)
            while (message := box.receive(now)) is not None:
                name, copy = copy_of(box, message, TO)
                self.consumed[name] = (*self.consumed.get(name, ()), copy)
                box.settle(message.lock_token, COMPLETE, now)

        self.emulator._do(consume)

    def take(self, count: int) -> None:
        """Settle messages that the action does not hold, as another receiver does."""

        def take(broker: Any) -> None:
            box, now = box_of(broker, QUEUE)
            for _ in range(0 if self.scene.has_sessions else count):
                if (message := box.receive(now)) is not None:
                    self.taken.add(copy_of(box, message, QUEUE)[0])
                    box.settle(message.lock_token, COMPLETE, now)

        self.emulator._do(take)

    def numbers(self, *spots: Spot) -> dict[int, str]:
        """Return the names of the messages before the action, by sequence number, in order."""
        every = [(copy.number, name) for name, copies in self.before.items() for copy in copies if copy.spot in spots]
        return dict(sorted(every))

    # ------------------------------------------------------------------ what an action is to do, and says

    def expect(self, names: Iterable[str], move: Move, *, is_told_of_each: bool = True) -> None:
        """Say what an action does with messages; where it may see fewer of them, it is not told of each."""
        moves = dict.fromkeys(names, move)
        self.moves |= moves
        if move.is_clone:
            self.resubmitted |= moves
        self.is_told_of_each = is_told_of_each

    def tell(self, report: Iterable[Outcome]) -> None:
        """Note what an action says that it did."""
        by_number = {
            (copy.spot.path.casefold(), copy.number): name for name, copies in self.before.items() for copy in copies
        }
        for outcome in report:
            place = outcome.entity.path.casefold(), outcome.sequence_number or -1
            name = by_number.get(place) or str(outcome.message_id).partition("~")[0]
            assert name in self.moves, f"{outcome} is about no message that was chosen"
            self.outcomes.setdefault(name, []).append(outcome)
            if outcome.verb in ("complete", "purge"):
                self.removed.append(outcome)

    def judge(self, after: View, error: Exception | None) -> None:
        """Compare each message's place with its outcome.

        Raises:
            AssertionError: one is lost, is there twice, or is not where the action says.
        """
        for name in {*self.before, *after, *self.moves}:
            was, now = spots(self.before.get(name, ())), spots(after.get(name, ()))
            if name in self.taken:
                was = moved(was, Move(Spot(QUEUE), None))
            said = self.outcomes.get(name, [])
            may = self._may_be(name, was, has_failed=error is not None)
            if name in self.taken:  # perhaps after it was sent
                may = [*may, *(moved(each, Move(Spot(QUEUE), None)) for each in may)]
            assert now in may, f"{name} was at {was} and is at {now}; it was said: {said or error}; it may be at {may}"
            if self.is_calm and name not in self.moves:
                assert self.before[name] == after[name], f"{name} was delivered, and not released"
        for session, numbers in self.order.items():
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), f"session {session} was worked on in the order {numbers}"

    def _may_be(self, name: str, was: tuple[Spot, ...], *, has_failed: bool) -> Collection[tuple[Spot, ...]]:
        move, said = self.moves.get(name), self.outcomes.get(name, [])
        if move is None:
            return [was]
        if said:
            # A message that came again has an end for each time, in the order in which they are known.
            return places(was, move, next((end for end in reversed(said) if end.ok), said[-1]))
        if has_failed:
            return [was, moved(was, move), was if move.is_atomic else moved(was, move.without_origin())]
        assert not self.is_told_of_each, f"{name} was chosen, and nothing is said about it"
        return [was]

    # ------------------------------------------------------------------ troubles

    def fault(self, **values: Any) -> None:
        """Set faults of all entities, beside the variants."""
        for path in PATHS:
            for name, value in values.items():
                setattr(self.emulator.faults.entity(path), name, value)

    def freeze_for(self, seconds: float) -> None:
        """Answer nothing for a while."""
        self._thaw_at = anyio.current_time() + seconds
        self.emulator.freeze()

    def fail_tokens_for(self, seconds: float) -> None:
        """Have the credential fail for a while."""
        self._tokens_fail_until = anyio.current_time() + seconds

    async def _make_trouble(self, troubles: Iterable[Trouble], chance: Random) -> None:
        began = anyio.current_time()
        for each in sorted(troubles, key=lambda trouble: trouble.after):
            await anyio.sleep_until(began + each.after)
            TROUBLES[each.name](self, chance)
            if self._thaw_at:
                await anyio.sleep_until(self._thaw_at)
                self._thaw()

    async def _turn(self) -> None:
        # Four times as fast as time: a lock must outlast the second for which the SDK waits for messages.
        while True:
            await self.clock.turn(1)
            await anyio.sleep(0.2)

    def _thaw(self) -> None:
        self._thaw_at = 0
        self.emulator.thaw()

    # ------------------------------------------------------------------ one action

    async def carry_out(self, act: Act, troubles: Sequence[Trouble] = (), seed: int = 0) -> None:
        """Have the variants and troubles while an action runs, and count the messages afterwards.

        Raises:
            AssertionError: a message is lost, is there twice, or is not where the action says.
        """
        self.moves, self.outcomes, self.order, self.taken, self.before = {}, {}, {}, set(), self.look()
        error: Exception | None = None
        # Where a link is lost, or a release is not confirmed, a lock may end by itself, which counts as a delivery.
        self.is_calm = not troubles and not any(self.scene.variants.get(name) for name in LOSES_LOCKS)
        limit = anyio.CancelScope()
        self.fault(**self.scene.variants)
        with self._failing_credential():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._turn)
                tasks.start_soon(self._make_trouble, troubles, Random(seed + 1))  # noqa: S311 - no secret
                limit.deadline = anyio.current_time() + self._patience()
                with limit:
                    try:
                        await act(self, Random(seed))  # noqa: S311 - no secret
                    except ENDS as raised:
                        error = raised
                tasks.cancel_scope.cancel()
        assert not limit.cancelled_caught, "the action hangs"
        self._thaw()
        self.emulator.faults.entities = {path: EntityFaults() for path in PATHS}
        await anyio.sleep(0.1 + self.scene.one_way_ms / 500)  # messages on their way still arrive
        self.clock.emulators.advance(self.scene.lock_seconds + 1)  # held messages still come back
        self.judge(self.look(), error)

    def _patience(self) -> float:
        """Return the seconds that an action may take."""
        # The batch of each session finds out by itself that ranges are not confirmed.
        silences = 3 * SILENCE if self.scene.has_sessions and self.scene.variants.get("unconfirmed") == "ranges" else 0
        return PATIENCE + self.scene.lock_seconds + SLOWEST * self.scene.size + silences

    @contextmanager
    def _failing_credential(self) -> Generator[None]:
        credential: Any = sdk.ServiceBusSharedKeyCredential
        get_token, self._tokens_fail_until = credential.get_token, 0

        async def fail_or_get(*args: Any, **options: Any) -> Any:
            if anyio.current_time() < self._tokens_fail_until:
                raise OSError("The credential does not answer.")
            return await get_token(*args, **options)

        credential.get_token = fail_or_get
        try:
            yield
        finally:
            credential.get_token = get_token


Act = Callable[[World, Random], Awaitable[None]]


@asynccontextmanager
async def world_of(scene: Scene, folder: Path) -> AsyncGenerator[World]:
    """Run an emulator of its own for a scene."""
    clock = HandClock()
    lock = scene.lock_seconds * 1000
    options = QueueOptions(
        lock_duration=lock,
        max_delivery_count=2000,
        requires_session=scene.has_sessions,
        enable_partitioning=scene.is_partitioned,
    )
    # The longest window: the library counts it by the machine's clock, the emulator by that which is turned.
    to = QueueOptions(requires_duplicate_detection=scene.detects_duplicates, duplicate_detection_window=7 * 86_400_000)
    with running(queues={QUEUE: options, TO: to}, clock=clock.emulators, tier=Tier.STANDARD) as emulator:
        emulator.faults.network_delay_ms = scene.one_way_ms
        async with namespace_of(emulator, folder, clock=clock) as namespace:
            yield World(scene, emulator, namespace, clock)


def box_of(broker: Any, path: str) -> tuple[Any, int]:
    now = broker.advance()
    return broker.registry.find(path), now


def copy_of(box: Any, message: Any, path: str) -> tuple[str, Copy]:
    """Return the name of a message in the emulator's memory, and its place."""
    name = _NAME.search(box.rendered(message))
    assert name is not None
    spot = Spot(path, message.state.name)
    return name[1].decode(), Copy(spot, message.sequence_number, message.delivery_count, message.session_id or "")


def spots(copies: Iterable[Copy]) -> tuple[Spot, ...]:
    return tuple(sorted(copy.spot for copy in copies))


def places(was: tuple[Spot, ...], move: Move, said: Outcome) -> Collection[tuple[Spot, ...]]:
    """Return where the copies of a message may be, according to its outcome."""
    if said.verb == "abandon":
        move = move._replace(target=move.origin)
    both = moved(was, move.without_origin()) if move.is_clone and not move.is_atomic else was
    # Said of an original that is gone: the message was moved to another queue meanwhile.
    is_elsewhere = move.origin is not None and not is_at(move.origin, said)
    done = both if is_elsewhere else moved(was, move)
    match said.status:
        case OutcomeStatus.SETTLED | OutcomeStatus.ALREADY_SETTLED:
            return [done]
        case OutcomeStatus.NOT_FOUND:
            return [tuple(spot for spot in was if not is_at(spot, said))]
        case OutcomeStatus.UNCONFIRMED:
            return [was, done, both]
        case OutcomeStatus.LOCK_LOST | OutcomeStatus.FAILED | OutcomeStatus.SKIPPED:
            return [both if str(said.description).startswith(_SENT) else was]


def is_at(spot: Spot, said: Outcome) -> bool:
    return spot.path.casefold() == said.entity.path.casefold()


def moved(was: tuple[Spot, ...], move: Move) -> tuple[Spot, ...]:
    """Return where the copies of a message are after a move; an existing clone is not sent again."""
    left = list(was)
    if move.origin is not None and move.origin in left:
        left.remove(move.origin)
    if move.target is not None and not (move.is_clone and move.target in left):
        left.append(move.target)
    return tuple(sorted(left))
