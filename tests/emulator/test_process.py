"""The emulator in the background, with processes that use it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import ensure_running, stop
from sbnotebook.emulator.process import EmulatorState, default_data_dir
from sbnotebook.emulator.store import Store
from sbnotebook.errors import EmulatorStartError
from tests.emulator.service.conftest import token

USER = (
    "import sys, time; from pathlib import Path; from sbnotebook.emulator import ensure_running;"
    "print(ensure_running(Path(sys.argv[1])), flush=True); time.sleep(60)"
)


@contextmanager
def started_by_hand(*options: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The process and its connection string."""
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create_queue(directory: Path) -> None:
    state = EmulatorState.read(directory)
    assert state is not None
    connection = http.client.HTTPConnection("127.0.0.1", state.port, timeout=30)
    connection.request("PUT", "/orders", headers={"Authorization": token()})
    assert connection.getresponse().status == 201
    connection.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended stays until its parent reads its exit status.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_emulator_is_started_once_and_found_again(data_dir: Path) -> None:
    with ThreadPoolExecutor() as pool:
        users = [
            pool.submit(
                subprocess.run,
                [sys.executable, "-c", USER.rsplit(";", 1)[0], str(data_dir)],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            for _ in range(3)
        ]
        answers = {str(user.result().stdout).strip() for user in users}
    assert answers == {ensure_running(data_dir)}
    assert ensure_running(data_dir) in answers


def test_sent_messages_are_kept_after_a_stop(data_dir: Path) -> None:
    where = ensure_running(data_dir)
    create_queue(data_dir)
    with (
        ServiceBusClient.from_connection_string(where, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    assert stop(data_dir)
    assert not stop(data_dir)
    with (
        ServiceBusClient.from_connection_string(ensure_running(data_dir), retry_total=0) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        assert [str(message) for message in receiver.peek_messages(5)] == ["x"]


def test_another_is_started_after_a_crash(data_dir: Path) -> None:
    ensure_running(data_dir)
    first = EmulatorState.read(data_dir)
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    ensure_running(data_dir)
    second = EmulatorState.read(data_dir)
    assert second is not None
    assert second.pid != first.pid


def test_an_emulator_started_by_hand_is_found_and_stopped(data_dir: Path) -> None:
    with started_by_hand("--host", "localhost", "--data-dir", str(data_dir)) as (process, where):
        assert ensure_running(data_dir) == where
        assert stop(data_dir)
        assert process.wait(20) == 0


def test_a_stop_waits_until_the_messages_are_let_go(data_dir: Path, tmp_path: Path) -> None:
    store = Store(data_dir)
    with started_by_hand("--data-dir", str(tmp_path / "other")) as (process, _), ThreadPoolExecutor() as pool:
        state = EmulatorState.read(tmp_path / "other")
        assert state is not None
        state.write(data_dir)
        stopped = pool.submit(stop, data_dir)
        process.wait(20)  # it answers no more, but its store is still open
        with pytest.raises(TimeoutError):
            stopped.result(0.5)
        store.close()
        assert stopped.result(20)


@pytest.mark.parametrize("taken", ["emulator/starting.lock/x", "emulator/emulator.log/x"])
def test_an_unusable_directory_is_reported(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).mkdir(parents=True)
    with pytest.raises(EmulatorStartError, match="cannot use the data directory"):
        ensure_running(tmp_path / "emulator")


@pytest.mark.skipif(sys.platform == "win32", reason="the state of a process is read from /proc")
@pytest.mark.thorough
def test_emulator_ends_some_seconds_after_its_last_user(data_dir: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", USER, str(data_dir)], stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        where = user.stdout.readline().strip()
        state = EmulatorState.read(data_dir)
        assert state is not None
        assert where == state.connection_string
        user.kill()
    killed = time.monotonic()
    until(lambda: not is_alive(state.pid))
    assert 9 < time.monotonic() - killed < 20


def test_a_start_that_fails_shows_the_end_of_its_log(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "emulator.sqlite3").write_bytes(b"something else")
    with pytest.raises(EmulatorStartError, match="is not a file of the emulator: choose another data directory"):
        ensure_running(data_dir)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff"])
def test_a_state_that_makes_no_sense_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "emulator.json").write_bytes(content)
    assert EmulatorState.read(tmp_path) is None
    assert not stop(tmp_path)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 2**70), ("127.0.0.1", "x"), (7, 7), ("a b\n", 1)])
def test_a_state_with_an_unreachable_port_is_ignored(tmp_path: Path, host: object, port: object) -> None:
    state = {"pid": os.getpid(), "host": host, "port": port, "connection_string": "", "secret": ""}
    (tmp_path / "emulator.json").write_text(json.dumps(state))
    assert not stop(tmp_path)


def test_a_server_without_the_secret_is_not_believed(data_dir: Path, tmp_path: Path) -> None:
    ensure_running(data_dir)
    known = EmulatorState.read(data_dir)
    assert known is not None
    replace(known, secret="another").write(tmp_path)
    assert not stop(tmp_path)  # the process at this port is not the recorded one
    assert is_alive(known.pid)
    assert "another" not in repr(EmulatorState.read(tmp_path))


def test_the_users_own_directory_is_the_default() -> None:
    assert default_data_dir().parts[-2:] == ("sbnotebook", "emulator")
