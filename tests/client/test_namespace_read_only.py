"""A read-only connection refuses every change."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.errors import ReadOnlyError
from sbnotebook.model import Complete, Defer, EntityAddress, Resubmit
from sbnotebook.settlement import Archive, Connection, Journal, Policy, PolicyRow
from tests.azure import HOST, take_place
from tests.namespaces import opened

Act = Callable[[Namespace], object]
QUEUES = {"orders": None, "other": None, "by-session": QueueOptions(requires_session=True)}


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    """Active, deferred, scheduled and dead messages, and one that was removed and archived."""
    with running(queues=QUEUES) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def namespace(emulator: RunningEmulator, folder: Path) -> Iterator[Namespace]:
    with opened(emulator.connection_string, folder, write=True) as writing:
        orders = writing.entity("orders")
        assert orders.send(["removed", "deferred", "dead", "active"]).ok
        assert writing.entity("by-session").send([{"body": "a", "session_id": "s"}]).ok
        with orders.lock(3) as batch:
            for settle, message in zip((batch.complete, batch.defer, batch.dead_letter), batch.messages, strict=True):
                assert settle([message]).ok
        assert orders.schedule("later", delay="1h").ok
    with opened(emulator.connection_string, folder, write=False) as looking:
        yield looking


def undo(namespace: Namespace) -> object:
    return namespace.undo(entity="orders", since="1h").apply()


def cancel(namespace: Namespace) -> object:
    orders = namespace.entity("orders")
    return orders.cancel_scheduled(orders.scheduled()).apply()


def by_token(namespace: Namespace) -> object:
    orders = namespace.entity("orders")
    return orders.settle_by_token(Complete(), [(1, "0" * 8 + "-0000-0000-0000-" + "0" * 12)]).apply()


def receive_and_delete(namespace: Namespace) -> object:
    with warnings.catch_warnings(action="ignore"):
        return namespace.entity("orders").receive_and_delete(1)


def resubmit(namespace: Namespace) -> object:
    letters = namespace.entity("orders/$dlq")
    return letters.resubmit(letters.peek()).apply()


def picked(decision: Complete | Defer | Resubmit) -> Act:
    def pick(namespace: Namespace) -> object:
        orders = namespace.entity("orders")
        return orders.pick(orders.peek(state="active"), decision).apply()

    return pick


ENVELOPES = Policy(rejected=PolicyRow(Complete(), envelope_to=EntityAddress("other")))
ACTS: dict[str, Act] = {
    "send": lambda n: n.entity("orders").send("x"),
    "schedule": lambda n: n.entity("orders").schedule("x", delay="1h"),
    "cancel scheduled": cancel,
    "warm senders": lambda n: n.entity("orders").warm(1),
    "lock": lambda n: n.entity("orders").lock(1),
    "lock nothing yet": lambda n: n.entity("orders").lock(),
    "lock a session": lambda n: n.entity("by-session").session("s"),
    "lock the next session": lambda n: n.entity("by-session").next_session(max_wait=1),
    "settle by token": by_token,
    "receive and delete": receive_and_delete,
    "resubmit": resubmit,
    "pick and complete": picked(Complete()),
    "pick and defer": picked(Defer()),
    "pick and resubmit": picked(Resubmit()),
    "settle deferred": lambda n: n.entity("orders").deferred().complete().apply(),
    "purge": lambda n: n.entity("orders").purge().apply(),
    "purge scheduled": lambda n: n.entity("orders").purge(state="scheduled").apply(),
    "purge deferred": lambda n: n.entity("orders").purge(state="deferred").apply(),
    "undo": undo,
    "process": lambda n: n.entity("orders").process(print, max_wait=1),
    "process with envelopes": lambda n: n.entity("orders").process(print, max_wait=1, policy=ENVELOPES),
    "process by session": lambda n: n.entity("by-session").process(print, max_wait=1, by_session=True),
    "create a queue": lambda n: n.create_queue("new"),
    "delete a queue": lambda n: n.delete_queue("orders"),
}


def everything(emulator: RunningEmulator, folder: Path) -> object:
    """All that an act could change: in the entities, in the journal and in the archive."""
    with opened(emulator.connection_string, folder, write=False) as namespace:
        archived = Archive(folder / "archive.sqlite").find(namespace.identity())
        unfinished = Journal(folder / "journal.sqlite").unfinished(namespace.identity())
        ledger = [(m.sequence_number, m.state) for m in namespace.entity("orders").deferred()]
        messages = [
            (str(m.entity), m.sequence_number, m.state, m.delivery_count)
            for name in ("orders", "orders/$dlq", "other", "by-session")
            for m in namespace.entity(name).peek()
        ]
        return namespace.entities(), messages, ledger, [(a.row, a.state) for a in archived], unfinished


def test_read_only_namespace_changes_nothing(namespace: Namespace, emulator: RunningEmulator, folder: Path) -> None:
    before, done = everything(emulator, folder), dict[str, object]()
    for name, act in ACTS.items():
        try:
            done[name] = act(namespace)
        except ReadOnlyError as error:
            assert str(error) == (  # noqa: PT017 (each of them is expected to end here, and all are tried)
                f"Writing is off on the connection to {namespace.host}, so nothing was done: "
                "turn it on with %sb_connect --write, or in Python with connect(…, write=True)."
            )
    assert not done
    assert everything(emulator, folder) == before


def test_in_the_background_nothing_is_changed_either(namespace: Namespace) -> None:
    with pytest.raises(ReadOnlyError), namespace.entity("orders").start_processing(print) as processing:
        processing.wait(30)


def test_read_only_namespace_looks_and_plans(namespace: Namespace) -> None:
    orders = namespace.entity("orders")
    assert namespace.read_only
    assert [message.body for message in orders.peek(state="active")] == [b"active"]
    assert namespace.entity("by-session").sessions() == ["s"]
    assert len(orders.pick(orders.peek(state="active"), Complete())) == 1
    assert orders.purge().preview().sentence.startswith("purge 3 messages of orders")
    assert len(namespace.undo(entity="orders")) == 1
    assert namespace.resume() == []


AZURE = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=a2V5"
MICROSOFTS = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


@pytest.mark.parametrize("target", [AZURE, f"{AZURE};UseDevelopmentEmulator=false"])
def test_writing_is_off_with_a_key_of_azure_until_it_is_turned_on(target: str) -> None:
    for write, is_read_only in ((None, True), (False, True), (True, False)):
        assert Connection(target, write=write).read_only is is_read_only


def test_writing_is_off_on_azure_until_it_is_turned_on(
    emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "with_credential", Connection.with_credential)  # puts it back
    take_place(emulator.connection_string)
    for write, is_read_only in ((None, True), (False, True), (True, False)):
        with connect(HOST, write=write) as namespace:
            assert namespace.read_only is is_read_only
    with connect(HOST) as namespace, pytest.raises(ReadOnlyError, match=rf"{re.escape(HOST)}.*write=True"):
        namespace.entity("orders").send("x")


def test_writing_is_on_in_every_emulator_unless_it_is_turned_off(emulator: RunningEmulator) -> None:
    for target in (emulator.connection_string, MICROSOFTS):
        assert not Connection(target).read_only
        assert Connection(target, write=False).read_only
    with connect(emulator.connection_string, write=False) as namespace:
        assert namespace.read_only
