"""A namespace of the emulator beside the same one of the model, and whether they agree."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, DATA
from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.message_log import Residency
from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.queue import Topic
from sbnotebook.emulator.entities.registry import Registry, restore
from sbnotebook.emulator.entities.rules.rule import Rule, correlation_filter
from tests.emulator.entities.conftest import values
from tests.emulator.entities.documented import Copy, Entity, Namespace, entity_of
from tests.emulator.entities.store_helpers import OnDisk

__all__ = ["RED", "SESSIONS", "Pair"]

ALL, RED = "events/Subscriptions/all", "events/Subscriptions/red"
SESSIONS = "calls"
STATES = ["active", "deferred", "scheduled"]


def documented() -> Namespace:
    """What there is, in the words of the model."""
    return Namespace(
        {
            "orders": Entity(),
            "dead": Entity(max_deliveries=2),
            "strict": Entity(life=25_000, keeps_expired=True, forward_dead_to="dead"),
            "unique": Entity(window=20_000),
            "front": Entity(forward_to="orders"),
            SESSIONS: Entity(has_sessions=True, keeps_expired=True),
            ALL: Entity(max_deliveries=1),
            RED: Entity(life=15_000, keeps_expired=True),
            "events": Entity(subscriptions={ALL: lambda _: True, RED: lambda label: label == "red"}),
        }
    )


def create(registry: Registry) -> None:
    """The same in the emulator's words."""
    registry.create_queue("orders", QueueOptions(5000, 3))
    registry.create_queue("dead", QueueOptions(5000, 2))
    strict = QueueOptions(
        5000, 3, default_time_to_live=25_000, dead_letter_on_expiration=True, forward_dead_letters_to="dead"
    )
    registry.create_queue("strict", strict)
    unique = QueueOptions(5000, 3, requires_duplicate_detection=True, duplicate_detection_window=20_000)
    registry.create_queue("unique", unique)
    registry.create_queue("front", QueueOptions(5000, 3, forward_to="orders"))
    registry.create_queue(SESSIONS, QueueOptions(5000, 3, requires_session=True, dead_letter_on_expiration=True))
    topic = registry.create_topic("events", TopicOptions())
    registry.create_subscription(topic, "all", SubscriptionOptions(5000, 1))
    red = SubscriptionOptions(5000, 3, default_time_to_live=15_000, dead_letter_on_expiration=True)
    registry.create_subscription(topic, "red", red, rules=[Rule("red", correlation_filter(subject="red"))])


class Pair:
    """Both, with what a client remembers of them.

    Attributes:
        used: numbers that were given out, by entity.
        lost: locks that have ended, by box.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.model = documented()
        self.kept = OnDisk()
        self.registry = Registry()
        self.registry.residency = Residency(self.kept, budget=1)  # Give up as much as possible.
        self.bodies = count(1)
        self.used: dict[str, set[int]] = {}
        self.lost: list[tuple[str, UUID]] = []
        create(self.registry)

    def box(self, path: str) -> Receivable:
        found = self.registry.find(path)
        assert isinstance(found, Receivable)
        return found

    def received_from(self) -> list[str]:
        """Boxes that are received from without a session: those that have something, but for one."""
        return ["orders"] + [
            path for path in self.model.boxes if path not in ("events", SESSIONS) and self.model.available(path)
        ]

    def everything(self) -> list[tuple[str, Copy]]:
        return [(path, copy) for path, box in self.model.boxes.items() for copy in box.values()]

    def scheduled(self) -> list[tuple[str, Copy]]:
        return [(path, copy) for path, copy in self.everything() if copy.state == "scheduled"]

    def deferred(self) -> list[tuple[str, Copy]]:
        """Return the available messages: in an entity with sessions, only to the holder of their session."""
        free = [(path, copy) for path, copy in self.everything() if copy.state == "deferred" and copy.token is None]
        return [(path, copy) for path, copy in free if path != SESSIONS or copy.session in self.model.holders]

    def locked(self) -> list[tuple[str, Copy]]:
        return [(path, copy) for path, copy in self.everything() if copy.token is not None]

    def learn(self, path: str) -> None:
        """Tell the model the numbers that it waits for."""
        if any(copy.number is None for copy in self.model.boxes[path].values()):
            self.compare(path)

    def restart(self) -> None:
        """Begin again with the stored state."""
        self.kept.keep(self.registry)
        self.registry = Registry()
        self.registry.residency = Residency(budget=1)
        restore(self.registry, self.kept.snapshot(self.now), self.kept, now=self.now)
        self.lost += [(path, copy.token) for path, copy in self.locked() if copy.token]
        self.model.lose_locks(None, self.now)
        self.wait(0)

    def wait(self, milliseconds: int) -> None:
        """Let time pass, and do due work; both must agree on its time."""
        self.now += milliseconds
        event, deadline = self.model.next_event(), self.registry.next_deadline
        if event is not None and event <= self.now:
            assert deadline is not None
            assert deadline <= event
        self.lost += [(path, copy.token) for path, copy in self.locked() if copy.until <= self.now and copy.token]
        if deadline is not None and deadline <= self.now:
            self.registry.expire(self.now)
        self.model.advance(self.now)
        assert self.registry.next_deadline is None or self.registry.next_deadline > self.now

    def compare_all(self) -> None:
        for path in self.model.boxes:
            if entity_of(path) != "events":
                self.compare(path)
        topic = self.registry.topics[0]
        assert {each.sequence_number for each in topic.log.walk()} == {
            copy.number for copy in self.model.boxes["events"].values()
        }

    def compare(self, path: str) -> None:
        box = self.box(path)
        found = {self.body(box, each): each for each in box.peek(0, 10_000)}
        numbers = [each.sequence_number for each in found.values()]
        assert numbers == sorted(set(numbers))
        expected = self.model.boxes[path]
        assert found.keys() == expected.keys()
        for body, each in found.items():
            self.compare_one(path, expected[body], each)

    def compare_one(self, path: str, copy: Copy, found: BrokeredMessage) -> None:
        box = self.box(path)
        if copy.number is None:
            used = self.used.setdefault(entity_of(path), set())
            assert found.sequence_number not in used
            used.add(found.sequence_number)
            copy.number = found.sequence_number
        assert (found.sequence_number, STATES[found.state], found.delivery_count, found.session_id) == (
            copy.number,
            copy.state,
            copy.failures,
            copy.session,
        )
        assert copy.state == "scheduled" or found.expires_at == copy.expires
        assert found.lock_token == copy.token
        assert copy.token is None or (box.held(copy.token, self.now) and found.locked_until == copy.until)
        properties = values(box.rendered(found)).get(APPLICATION_PROPERTIES, {})
        assert properties.get("DeadLetterReason") == copy.reason

    @staticmethod
    def body(box: Receivable, found: BrokeredMessage) -> str:
        return values(box.rendered(found))[DATA].decode()

    def compare_counts(self) -> None:
        for name, entity in self.model.entities.items():
            found = self.registry.find(name)
            boxes = [list(self.model.boxes[path].values()) for path in (name, f"{name}/$dlq", f"{name}/$transfer")]
            here = [copy.state for copy in boxes[0]]
            if isinstance(found, Topic):
                assert found.scheduled_count == len(here)
                continue
            assert isinstance(found, Receivable)
            for path, box in zip((name, f"{name}/$dlq", f"{name}/$transfer"), found.owner.boxes, strict=True):
                assert box.has_available == (bool(self.model.available(path)) and box.sessions is None)
            locked = len(self.model.locked(name))
            states = [here.count(state) for state in STATES]
            dead, transferred = len(boxes[1]), len(boxes[2])
            assert found.owner.counts == (states[0], locked, states[1], states[2], dead, transferred)
            if entity.has_sessions and found.sessions is not None:
                assert set(found.owner.session_ids(None)) == self.model.sessions(name)
                assert bool(found.sessions.free) == bool(self.model.free_sessions(name))
