"""The emulator in the background: one process for a user and a data directory, shared by all processes that ask for it.

Each process that asks holds a lease, an HTTP connection that stays open as long as the process lives. The emulator ends
some seconds after the last lease and the last client are gone.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from sbnotebook.emulator.store import is_in_use
from sbnotebook.errors import EmulatorError, EmulatorStartError

__all__ = ["EmulatorState", "default_data_dir", "ensure_running", "stop"]

_STATE_FILE: Final = "emulator.json"
_LOG_FILE: Final = "emulator.log"
_LOCK_FILE: Final = "starting.lock"
_START_TIMEOUT: Final = 60.0
"""Seconds; loading half a million messages takes a few of them."""
_ANSWER_TIMEOUT: Final = 5.0
_UNUSED: Final = 10.0
"""Seconds without a user after which it ends."""
_POLL: Final = 0.05
_LOG_LINES: Final = 15

# By data directory, with the emulator's process id. A forked worker inherits the connection: it counts, too.
_leases: dict[Path, tuple[int, http.client.HTTPResponse]] = {}
# Kept, because Python complains about a process without a reference.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class EmulatorState:
    """The address of an emulator that keeps its messages, which it writes to its data directory once it is ready."""

    pid: int
    host: str
    port: int
    connection_string: str

    def write(self, data_dir: Path) -> None:
        """Write the state into the data directory, in one step.

        Raises:
            EmulatorStartError: it cannot be written.
        """
        draft = data_dir / f"{_STATE_FILE}.{self.pid}"
        try:
            draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
            draft.replace(data_dir / _STATE_FILE)
        except OSError as error:
            raise _unusable(data_dir, error) from error

    @classmethod
    def read(cls, data_dir: Path) -> EmulatorState | None:
        """Read the state in the data directory, of an emulator that may have ended since; None if there is none."""
        try:
            state = cls(**json.loads((data_dir / _STATE_FILE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        kinds = [type(value) for value in (state.pid, state.host, state.port, state.connection_string)]
        return state if kinds == [int, str, int, str] and state.port in range(1 << 16) else None


def default_data_dir() -> Path:
    """Return the user's own directory for the emulator's data."""
    from platformdirs import user_data_path

    return user_data_path("sbnotebook", appauthor=False) / "emulator"


def ensure_running(data_dir: Path | None = None) -> str:
    """Find the emulator of a data directory, or start it, and keep it running as long as this process lives.

    An emulator that was started by hand is found, too. It runs until it is ended by hand.

    Args:
        data_dir: directory of its messages; None for the user's own directory.

    Returns:
        Its connection string.

    Raises:
        EmulatorStartError: the data directory cannot be used, or it did not start; then the message
            has the end of its log.
    """
    directory = (data_dir or default_data_dir()).resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _starting(directory):
            state = EmulatorState.read(directory)
            if state is None or not _take_lease(directory, state):
                state = _start(directory)
            return state.connection_string
    except (OSError, sqlite3.Error) as error:
        raise _unusable(directory, error) from error


def stop(data_dir: Path | None = None) -> bool:
    """End the emulator of a data directory, even if it is in use, and wait until it has closed its store.

    Args:
        data_dir: directory of its messages; None for the user's own directory.

    Returns:
        False if none was running.

    Raises:
        EmulatorError: it did not end.
    """
    directory = (data_dir or default_data_dir()).resolve()
    state = EmulatorState.read(directory)
    _, lease = _leases.pop(directory, (0, None))
    if lease is not None:
        lease.close()
    if state is None or not _is_healthy(state):
        return False
    with suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    _wait_until_ended(directory, state)
    return True


def _wait_until_ended(directory: Path, state: EmulatorState) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    # The next emulator may be there already: then the state is its own.
    while is_in_use(directory) and EmulatorState.read(directory) == state:
        if time.monotonic() > deadline:
            raise EmulatorError(f"The emulator did not end within {_START_TIMEOUT:.0f} s: end the process {state.pid}.")
        time.sleep(_POLL)
    for process in _started:
        if process.pid == state.pid:
            process.wait(_START_TIMEOUT)


def _unusable(directory: Path, error: Exception) -> EmulatorStartError:
    return EmulatorStartError(f"The emulator cannot use the data directory {directory}: {error}.")


@contextmanager
def _starting(directory: Path) -> Generator[None]:
    """Let only one process at a time look for the emulator and start it.

    SQLite's lock works alike on every system, and ends with the process that holds it.
    """
    with closing(sqlite3.connect(directory / _LOCK_FILE, timeout=2 * _START_TIMEOUT, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def _start(directory: Path) -> EmulatorState:
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0", "--data-dir", str(directory)]
    command += ["--end-after-unused", str(_UNUSED)]
    with (directory / _LOG_FILE).open("wb") as log:
        process = _spawn(command, log)
    _started.append(process)
    deadline = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        state = EmulatorState.read(directory)
        # Perhaps of one that was started by hand meanwhile: then this one ends, kept out.
        if state is not None and _take_lease(directory, state):
            return state
        time.sleep(_POLL)
    process.kill()
    lines = (directory / _LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    raise EmulatorStartError("The emulator did not start. The end of its log:\n" + "\n".join(lines))


def _spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # On its own, so that an interrupt of the notebook's kernel does not end it.
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, creationflags=flags
    )


def _take_lease(directory: Path, state: EmulatorState) -> bool:
    """Hold a lease on a running emulator; return false if it is not running any more."""
    if not _is_healthy(state):
        return False
    if _leases.get(directory, (0, None))[0] == state.pid:
        return True
    # The emulator holds the answer open: the connection is the lease.
    connection = http.client.HTTPConnection(state.host, state.port, timeout=_ANSWER_TIMEOUT)
    try:
        connection.request("GET", "/lease")
        response = connection.getresponse()
        is_held = response.readline() == b"held\n"
    except (OSError, http.client.HTTPException):
        return False
    if is_held:
        _leases[directory] = (state.pid, response)
    return is_held


def _is_healthy(state: EmulatorState) -> bool:
    """Return whether the emulator that wrote this state is still the one at this port."""
    try:
        with closing(http.client.HTTPConnection(state.host, state.port, timeout=_ANSWER_TIMEOUT)) as connection:
            connection.request("GET", "/health")
            answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return isinstance(answer, dict) and answer == {"status": "ok", "pid": state.pid}
