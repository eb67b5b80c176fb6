"""Held batches for synchronous code, and what becomes of those that nobody closes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Message
from sbnotebook.settlement import Connection, Journal


def filled(namespace: Namespace, name: str, count: int) -> None:
    namespace.create_queue(name)
    assert namespace.entity(name).send([Message(body=b"%d" % n) for n in range(count)], show_progress=False).ok


def open_namespace(emulator: RunningEmulator, journal: Path) -> Namespace:
    return Namespace(Target(Connection(emulator.connection_string), "a test"), journal=Journal(journal))


def test_closing_reports_the_release_and_warns_of_nothing(namespace: Namespace) -> None:
    filled(namespace, "closed", 2)
    batch = namespace.entity("closed").lock(2)
    assert batch.release_report is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch.close()
        batch.close()
    assert batch.release_report is not None
    assert batch.release_report.settled == 2


def test_what_could_not_be_released_is_warned_of(tmp_path: Path) -> None:
    with running() as emulator:
        namespace = open_namespace(emulator, tmp_path / "journal.sqlite")
        filled(namespace, "stuck", 3)
        batch = namespace.entity("stuck").lock(3)
    with pytest.warns(UserWarning, match=r"3 of 3 messages of stuck could not be released.* UTC.*delivery count"):
        batch.close()
    namespace.close()


def test_closing_a_namespace_closes_its_batches_and_no_others(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    filled(namespace, "left-open", 2)
    kept = namespace.entity("left-open").lock(1)
    other = open_namespace(shared_emulator, tmp_path / "other.sqlite")
    batch = other.entity("left-open").lock(1)
    other.close()
    assert batch.release_report is not None
    assert batch.release_report.ok
    assert kept.release_report is None
    assert kept.complete().ok


def test_a_batch_that_is_open_as_the_interpreter_ends_is_released(
    namespace: Namespace, shared_emulator: RunningEmulator
) -> None:
    filled(namespace, "exit", 2)
    script = """
        import sys
        from sbnotebook.client import Namespace
        from sbnotebook.client.targets import Target
        from sbnotebook.settlement import Connection
        batch = Namespace(Target(Connection(sys.argv[1]), "a test")).entity("exit").lock(2)
        print(len(batch))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), shared_emulator.connection_string],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ended.stdout.strip(), ended.stderr) == ("2", "")
    with namespace.entity("exit").lock(2, max_wait=2) as batch:
        assert [message.delivery_count for message in batch.messages] == [0, 0]
