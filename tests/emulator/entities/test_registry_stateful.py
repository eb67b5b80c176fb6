"""A whole namespace against ``documented``: both agree on any actions in any order."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID, uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sbnotebook.emulator.entities.box import ABANDON, COMPLETE, DEFER, RELEASE, MessageSession, Receivable
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.options import EntityStatus, QueueOptions
from sbnotebook.emulator.entities.queue import Queue, Subscription, Topic
from sbnotebook.emulator.entities.refusals import RefusedError
from tests.chances import rounds
from tests.emulator.entities.comparing import RED, SESSIONS, Pair
from tests.emulator.entities.conftest import BURY, sent, settles
from tests.emulator.entities.documented import Copy, entity_of

STORIES: Final = rounds(30, 300)
"""``make soak`` tells more of them."""

SENT_TO = st.sampled_from(["orders", "orders", "strict", "unique", "front", SESSIONS, SESSIONS, "events"])
SELDOM = st.sampled_from([False, False, False, True])
LIVES = st.sampled_from([None, None, 1, 700, 2500])
DELAYS = st.sampled_from([None, None, None, -5, 1, 800, 4000])
SETTLEMENTS: Final = {
    "complete": COMPLETE,
    "abandon": ABANDON._replace(properties={"tried": "again"}),
    "release": RELEASE,
    "defer": DEFER,
    "dead_letter": BURY,
}
HOW = [*SETTLEMENTS, "abandon", "defer", "renew", "renew", "late"]

WORKS = ["keep", "keep", "keep", "keep", "compare", "delete", "forward", "update", "restart"]


class NamespaceMachine(Pair, RuleBasedStateMachine):
    """Does the same to both. Few rules with many ways, because an example leaves out some rules."""

    @initialize(last=st.sampled_from([0, 1020]))
    def begin(self, last: int) -> None:
        for entity in (*self.registry.entities, *self.registry.topics[0].subscriptions):
            entity.last_sequence_number = last  # So that shelves end among the messages.
        for name in ("orders", "orders", "orders", "strict", SESSIONS, SESSIONS, "events"):
            self.send_one(name, Copy(f"{next(self.bodies)}-", session="a" if name == SESSIONS else None), "first")
        self.defer_first()
        self.kept.keep(self.registry)

    def defer_first(self) -> None:
        """One of the queue, and one of the session, which is closed again."""
        session = self.accept_session("a")
        for path, held in (("orders", None), (SESSIONS, session)):
            copy = self.model.available(path)[0]
            found = self.box(path).receive(self.now, held)
            self.received(path, found, [copy], self.now + 5000, delete=False)
            assert copy.token is not None
            self.box(path).settle(copy.token, DEFER, self.now)
            self.model.settle(path, copy, "defer", self.now)
        self.close_session("a")

    # ------------------------------------------------------------------------------------- sending

    @rule(data=st.data(), name=SENT_TO, count=st.integers(1, 3))
    def send(self, data: st.DataObject, name: str, count: int) -> None:
        for _ in range(count):
            body = f"{next(self.bodies)}-".ljust(data.draw(st.sampled_from([1, 300])), ".")
            due = 0 if (delay := data.draw(DELAYS)) is None else self.now + delay
            session_id = data.draw(st.sampled_from("ab")) if name == SESSIONS else None
            copy = Copy(body, data.draw(st.sampled_from(["red", "blue"])), data.draw(LIVES), session_id, due=due)
            self.send_one(name, copy, data.draw(st.sampled_from("xyz")))

    def send_one(self, name: str, copy: Copy, message_id: str) -> None:
        new = sent(
            copy.body,
            message_id=message_id,
            label=copy.label,
            session_id=copy.session,
            time_to_live=copy.life,
            scheduled_time=copy.due or None,
        )
        destination = self.registry.find(name)
        assert isinstance(destination, Queue | Topic)
        can_send = self.model.entities[name].can_send
        try:
            destination.check([new])
        except RefusedError:
            assert not can_send
            return
        assert can_send
        number = destination.send(new, self.now)
        used = self.used.setdefault(name, set())
        assert all(number > earlier for earlier in used)
        used.add(number)
        stays = self.model.send(name, copy, self.now, message_id)
        if stays is not None:
            stays.number = number

    @precondition(lambda self: self.scheduled())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        path, copy = data.draw(st.sampled_from(self.scheduled()))
        destination = self.registry.find(path)
        assert isinstance(destination, Queue | Topic)
        assert copy.number is not None
        assert destination.find_scheduled(copy.number) is not None
        destination.cancel_scheduled([copy.number, copy.number])
        del self.model.boxes[path][copy.body]
        assert destination.find_scheduled(copy.number) is None

    # ----------------------------------------------------------------------------------- receiving

    @rule(data=st.data(), count=st.integers(1, 3), delete=SELDOM)
    def receive(self, data: st.DataObject, count: int, delete: bool) -> None:
        path = data.draw(st.sampled_from(self.received_from()))
        for _ in range(count):
            self.receive_one(path, delete=delete)

    def receive_one(self, path: str, *, delete: bool) -> None:
        self.learn(path)
        box, expected = self.box(path), self.model.available(path)
        assert box.has_available == bool(expected)
        found = box.receive(self.now, delete=delete)
        self.received(path, found, expected, self.now + 5000, delete=delete)

    @precondition(lambda self: self.model.holders)
    @rule(data=st.data(), delete=SELDOM)
    def receive_from_session(self, data: st.DataObject, delete: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.holders)))
        self.learn(SESSIONS)
        queue = self.box(SESSIONS).owner
        session, expected = queue.held_session(name, self.now), self.model.available(SESSIONS, name)
        assert bool(session.ready) == bool(expected)
        found = queue.receive(self.now, session, delete=delete)
        self.received(SESSIONS, found, expected, self.model.holders[name][1], delete=delete)

    def received(
        self, path: str, found: BrokeredMessage | None, expected: list[Copy], until: int, *, delete: bool
    ) -> None:
        if not expected:
            assert found is None
            return
        assert found is not None
        assert found.sequence_number == expected[0].number
        self.taken(path, expected[0], found, until, delete=delete)

    def taken(self, path: str, copy: Copy, found: BrokeredMessage, until: int, *, delete: bool) -> None:
        if delete:
            assert found.payload is not None
            del self.model.boxes[path][copy.body]
            return
        assert found.locked_until == until
        copy.token, copy.until = found.lock_token, until
        assert copy.token is not None

    @precondition(lambda self: self.deferred())
    @rule(data=st.data(), delete=SELDOM, spoiled=SELDOM)
    def receive_deferred(self, data: st.DataObject, delete: bool, spoiled: bool) -> None:
        path, first = data.draw(st.sampled_from(self.deferred()))
        self.learn(path)
        chosen = [copy for other, copy in self.deferred() if other == path and copy.session == first.session]
        chosen = data.draw(st.lists(st.sampled_from(chosen), min_size=1, unique_by=lambda copy: copy.body))
        numbers = [copy.number or 0 for copy in chosen]
        box = self.box(path)
        session, until = None, self.now + 5000
        if path == SESSIONS:
            session, until = (
                box.owner.held_session(first.session or "", self.now),
                self.model.holders[first.session or ""][1],
            )
        found = box.receive_deferred(
            [*numbers, *numbers, *([10**6] if spoiled else [])], self.now, delete=delete, session=session
        )
        expired = [copy for copy in chosen if copy.expires is not None and copy.expires <= self.now]
        for copy in expired:
            self.model.expire(path, copy, self.now)
        if expired or spoiled:
            assert found is None
            return
        assert found is not None
        assert [each.sequence_number for each in found] == numbers
        for copy, each in zip(chosen, found, strict=True):
            self.taken(path, copy, each, until, delete=delete)

    @precondition(lambda self: self.locked())
    @rule(data=st.data(), count=st.integers(1, 3))
    def settle(self, data: st.DataObject, count: int) -> None:
        for path, copy in data.draw(st.permutations(self.locked()))[:count]:
            self.settle_one(data, path, copy, data.draw(st.sampled_from(HOW)))

    def settle_one(self, data: st.DataObject, path: str, copy: Copy, how: str) -> None:
        if how == "late":
            self.settle_late(data)
            return
        if how == "renew":
            self.renew(path, copy)
            return
        if how == "dead_letter" and "$" in path:
            how = "release"  # There is no dead-letter queue of a dead-letter queue.
        box, token = self.box(path), copy.token
        assert token is not None
        assert self.settled(box, token, how)
        assert not self.settled(box, token, how)
        copy.token = None
        self.lost.append((path, token))
        self.model.settle(path, copy, how, self.now)

    def settled(self, box: Receivable, token: UUID, how: str) -> bool:
        return settles(box, token, SETTLEMENTS[how], self.now)

    def settle_late(self, data: st.DataObject) -> None:
        path, token = data.draw(st.sampled_from([*self.lost[-20:], ("orders", uuid4())]))
        how = data.draw(st.sampled_from(["complete", "abandon", "release", "defer", "renew"]))
        box = self.box(path)
        assert box.held(token, self.now) is None
        if how == "renew":
            with pytest.raises(RefusedError):
                box.renew(token, self.now)
        else:
            assert not self.settled(box, token, how)

    def renew(self, path: str, copy: Copy) -> None:
        assert copy.token is not None
        if path == SESSIONS:
            return  # A client renews the lock of the session, and not that of a message.
        assert self.box(path).renew(copy.token, self.now) == self.now + 5000
        copy.until = self.now + 5000

    def delete(self, path: str, count: int, age: int) -> None:
        self.learn(path)
        old = {each.sequence_number for each in self.box(path).peek(0, 10_000) if each.enqueued_time < self.now - age}
        expected = [copy for copy in self.model.available(path) if copy.number in old][:count]
        assert self.box(path).delete(count, self.now - age, self.now) == len(expected)
        for copy in expected:
            del self.model.boxes[path][copy.body]

    # ------------------------------------------------------------------------------------ sessions

    @rule(name=st.sampled_from([None, "a", "b"]))
    def accept(self, name: str | None) -> None:
        self.accept_session(name)

    def accept_session(self, name: str | None) -> MessageSession | None:
        queue = self.box(SESSIONS).owner
        if name in self.model.holders:
            with pytest.raises(RefusedError):
                queue.accept_session(name, self.now)
            return None
        accepted = queue.accept_session(name, self.now)
        if accepted is None:
            assert name is None
            assert not self.model.free_sessions(SESSIONS)
            return None
        session, token = accepted
        assert session.session_id in ([name] if name else self.model.free_sessions(SESSIONS))
        assert session.locked_until == self.now + 5000
        assert session.state == self.model.states.get(session.session_id)
        self.model.holders[session.session_id] = (token, self.now + 5000)
        return session

    def close_session(self, name: str) -> None:
        queue = self.box(SESSIONS).owner
        session, token = queue.held_session(name, self.now), self.model.holders.pop(name)[0]
        queue.close_session(session, uuid4(), self.now)  # Another receiver cannot settle it.
        queue.close_session(session, token, self.now)
        for copy in self.model.locked(SESSIONS):
            if copy.session == name:
                self.model.fail(SESSIONS, copy, self.now, counts=False)

    @precondition(lambda self: self.model.holders)
    @rule(data=st.data(), how=st.sampled_from(["close", "renew", "set", "set", "forget"]))
    def use_session(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.holders)))
        queue = self.box(SESSIONS).owner
        session, token = queue.held_session(name, self.now), self.model.holders[name][0]
        mine = [copy for copy in self.model.locked(SESSIONS) if copy.session == name]
        match how:
            case "close":
                self.close_session(name)
            case "renew":
                assert queue.renew_session(session, self.now) == self.now + 5000
                self.model.holders[name] = (token, self.now + 5000)
                for copy in mine:
                    copy.until = self.now + 5000
            case "set":
                queue.set_session_state(session, b"state", self.now)
                self.model.states[name] = b"state"
            case _:
                queue.set_session_state(session, None, self.now)
                self.model.states.pop(name, None)

    # ------------------------------------------------------------------------------ time and changes

    @rule(milliseconds=st.sampled_from([1, 1, 1500, 1500, 1500, 3500, 3500, 4999, 5000, 15_000, 20_000, 10**8]))
    def pass_time(self, milliseconds: int) -> None:
        self.wait(milliseconds)

    @rule(data=st.data(), what=st.sampled_from(WORKS))
    def administer(self, data: st.DataObject, what: str) -> None:
        """What would come too often if each of it was a rule."""
        match what:
            case "keep":
                self.kept.keep(self.registry)
            case "compare":
                self.compare_all()
            case "update":
                name = data.draw(st.sampled_from(["orders", "strict", SESSIONS, RED]))
                self.update(name, data.draw(st.integers(1, 4)), can_send=data.draw(st.booleans()))
            case "forward":
                self.forward(data.draw(st.sampled_from([None, "orders"])))
            case "delete":
                path = data.draw(st.sampled_from(self.received_from()))
                self.delete(path, data.draw(st.integers(1, 2)), data.draw(st.sampled_from([0, 1, 500])))
            case _:
                self.restart()

    def update(self, name: str, most: int, *, can_send: bool) -> None:
        entity = self.registry.find(name)
        assert isinstance(entity, Queue | Subscription)
        status = EntityStatus.ACTIVE if can_send else EntityStatus.SEND_DISABLED
        options = replace(entity.options, max_delivery_count=most, status=status)
        self.lost += [(path, copy.token) for path, copy in self.locked() if entity_of(path) == name and copy.token]
        self.registry.update(entity, options, now=self.now)
        self.model.lose_locks(name, self.now)
        changed = self.model.entities[name]
        changed.max_deliveries, changed.can_send = most, can_send

    def forward(self, forward_to: str | None) -> None:
        self.learn("front")
        front = self.registry.find("front")
        assert isinstance(front, Queue)
        self.registry.update(front, QueueOptions(5000, 3, forward_to=forward_to), now=self.now)
        self.model.lose_locks("front", self.now)
        self.model.entities["front"].forward_to = forward_to
        if forward_to:
            for copy in self.model.available("front"):
                del self.model.boxes["front"][copy.body]
                self.model.forward("front", copy, self.now)

    @invariant()
    def counts_agree(self) -> None:
        self.compare_counts()

    def teardown(self) -> None:
        self.compare_all()
        self.restart()
        self.compare_all()
        self.registry.delete(*self.registry.entities)
        self.kept.keep(self.registry)
        assert self.registry.residency.size == 0
        assert self.kept.snapshot(self.now)[0] == []
        self.kept.close()


def test_a_namespace_does_what_is_documented() -> None:
    run_state_machine_as_test(NamespaceMachine, settings=settings(max_examples=STORIES, stateful_step_count=50))
