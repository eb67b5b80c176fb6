from __future__ import annotations

import pickle
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, DeadLetter, Decision, EntityAddress, Message, Outcome
from sbnotebook.settlement import Archive, AsyncNamespace, Connection
from sbnotebook.spark.settle_task import (
    MessageKey,
    TaskStorage,
    settle_deferred_rows,
)


def with_deferred(namespace: Namespace, count: int) -> EntityAddress:
    name = f"queue-{uuid.uuid4().hex[:8]}"
    namespace.create_queue(name)
    queue = namespace.entity(name)
    assert queue.send([Message(message_id=f"m{n}") for n in range(count)], show_progress=False).ok
    assert queue.defer_all(show_progress=False).apply(show_progress=False).settled == count
    return EntityAddress(name)


def settle(
    namespace: AsyncNamespace, decided: dict[MessageKey, Decision], *, journalled: bool
) -> dict[MessageKey, Outcome]:
    async def work() -> dict[MessageKey, Outcome]:
        return await settle_deferred_rows(namespace, decided, max_in_flight=5, journalled=journalled)

    try:
        return run(work)
    finally:
        run(namespace.close)


def test_unreachable_entity_does_not_hide_other_outcomes(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    first, second, nowhere = with_deferred(namespace, 2), with_deferred(namespace, 1), EntityAddress("no-such-queue")
    decided: dict[MessageKey, Decision] = {
        (first, 1): Complete(),
        (nowhere, 1): Complete(),
        (first, 2): DeadLetter("Bad"),
        (second, 1): Complete(),
        (second, 9): Complete(),
    }
    storage = TaskStorage(tmp_path / "journal.sqlite", tmp_path / "archive.sqlite")
    own = pickle.loads(pickle.dumps(storage)).namespace(Connection(shared_emulator.connection_string))  # noqa: S301
    found = settle(own, decided, journalled=True)
    assert found.keys() == decided.keys()
    assert {place: outcome.status.value for place, outcome in found.items()} == {
        (first, 1): "settled",
        (first, 2): "settled",
        (second, 1): "settled",
        (second, 9): "not found",
        (nowhere, 1): "skipped",
    }
    assert (found[nowhere, 1].description or "").startswith("Not attempted: ")
    assert "no-such-queue" in (found[nowhere, 1].description or "")
    archived = Archive(tmp_path / "archive.sqlite")
    assert len(archived.find(own.identity())) == 2
    archived.close()


def test_task_storage_of_a_cluster_writes_no_files(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = with_deferred(namespace, 1)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    own = TaskStorage().namespace(Connection(shared_emulator.connection_string))
    found = settle(own, {(queue, 1): Complete()}, journalled=False)
    assert found[queue, 1].ok
    assert not (tmp_path / "data").exists()


def test_task_storage_refuses_another_machine(tmp_path: Path, shared_emulator: RunningEmulator) -> None:
    elsewhere = replace(TaskStorage(tmp_path / "journal.sqlite"), machine="elsewhere.invalid")
    with pytest.raises(ConfigurationError, match="Spark runs on another machine"):
        elsewhere.namespace(Connection(shared_emulator.connection_string))
