"""The emulator in the background: one process for a user and a data directory, shared by all processes that ask for it.

Each process that asks holds a lease, an HTTP connection that stays open as long as the process lives. The emulator ends
some seconds after the last lease and the last client are gone.

Before a process takes a lease, the emulator proves that it knows the secret in the state file, which only its owner can
read: after a crash, any user of the machine could listen on the emulator's port.

A port says nothing about the process behind it: once the emulator has ended, another user of the machine can listen on
it, and the process ID is not a secret. So each emulator makes up a secret when it starts, and writes it into a file
that only its owner can read. A program that has read the file sends a challenge, and believes only an answer that needs
the secret.
"""

from __future__ import annotations

import hmac
import http.client
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from sbnotebook.emulator.store import is_in_use, make_private, take_lock
from sbnotebook.errors import EmulatorError, EmulatorStartError

PROOF: Final = "Proof"  # The header with the proof of a lease


def prove(secret: str, port: int, challenge: str) -> str:
    return hmac.digest(secret.encode(), f"sbnotebook emulator\n{port}\n{challenge}".encode(), "sha256").hex()


def prove_lease(secret: str) -> str:
    """Return what a program sends with a lease, to show that it has read the secret.

    No challenge has it as its answer.
    """
    return hmac.digest(secret.encode(), b"sbnotebook lease", "sha256").hex()


def belongs_to_user(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to the user of this process or to an administrator.

    On Windows, files have no such number. There, other users cannot open files below a user's profile.
    """
    return sys.platform == "win32" or status.st_uid in (0, os.getuid())


_STATE_FILE: Final = "emulator.json"
_LOG_FILE: Final = "emulator.log"
_LOCK_FILE: Final = "starting.lock"
_START_TIMEOUT: Final = 60.0  # Seconds; loading half a million messages takes a few of them
_ANSWER_TIMEOUT: Final = 5.0  # Seconds for the proof and the lease together
_MAX_ANSWER: Final = 4096  # Bytes of an answer that are read
_POLL: Final = 0.05

# By data directory, with the emulator's secret. A forked worker inherits the connection: it counts, too.
_leases: dict[Path, tuple[str, http.client.HTTPResponse]] = {}
# Kept, because Python complains about a process without a reference.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class EmulatorState:
    """The address of an emulator that keeps its messages, which it writes to its data directory once it is ready."""

    pid: int  # its process
    host: str
    port: int
    connection_string: str  # for clients
    secret: str = field(repr=False)  # what only it and its owner know, see :mod:`sbnotebook.emulator.process`

    def write(self, data_dir: Path) -> None:
        draft = data_dir / f"{_STATE_FILE}.{self.pid}"
        try:
            make_private(draft)
            draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
            draft.replace(data_dir / _STATE_FILE)
        except OSError as error:
            raise _unusable(data_dir, error) from error

    def remove(self, data_dir: Path) -> None:
        if self.read(data_dir) == self:
            with suppress(OSError):
                (data_dir / _STATE_FILE).unlink()

    @classmethod
    def read(cls, data_dir: Path) -> EmulatorState | None:
        try:
            with (data_dir / _STATE_FILE).open("rb") as file:
                if not belongs_to_user(os.fstat(file.fileno())):
                    return None
                state = cls(**json.loads(file.read()))
        except (OSError, ValueError, TypeError):
            return None
        kinds = [type(value) for value in (state.pid, state.host, state.port, state.connection_string, state.secret)]
        return state if kinds == [int, str, int, str, str] and state.port in range(1 << 16) else None


def default_data_dir() -> Path:
    from platformdirs import user_data_path

    return user_data_path("sbnotebook", appauthor=False) / "emulator"


def ensure_running(data_dir: Path | None = None) -> str:
    """Find the emulator of a data directory, or start it, and keep it running as long as this process lives.

    An emulator that was started by hand is found, too. It runs until it is ended by hand.
    """
    directory = (data_dir or default_data_dir()).resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not belongs_to_user(directory.stat()):
            raise EmulatorStartError(
                f"The data directory {directory} belongs to another user of this machine: choose one of your own."
            )
        # Only one process at a time looks for the emulator and starts it.
        with closing(take_lock(directory / _LOCK_FILE, 2 * _START_TIMEOUT)):
            state = EmulatorState.read(directory)
            if state is None or not _take_lease(directory, state):
                state = _start(directory)
            return state.connection_string
    except (OSError, sqlite3.Error) as error:
        raise _unusable(directory, error) from error


def stop(data_dir: Path | None = None) -> bool:
    """End the emulator of a data directory, even if it is in use, and wait until it has closed its store."""
    directory = (data_dir or default_data_dir()).resolve()
    state = EmulatorState.read(directory)
    _, lease = _leases.pop(directory, ("", None))
    if lease is not None:
        lease.close()
    connection = state and _proven(state)
    if state is None or connection is None:
        return False
    connection.close()
    with suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + _START_TIMEOUT
    # It removes its state before it closes its store. If the next emulator has started already, the state belongs to
    # it.
    while is_in_use(directory) and EmulatorState.read(directory) in (None, state):
        if time.monotonic() > deadline:
            raise EmulatorError(f"The emulator did not end within {_START_TIMEOUT:.0f} s: end the process {state.pid}.")
        time.sleep(_POLL)
    for process in _started:
        if process.pid == state.pid:
            process.wait(_START_TIMEOUT)
    return True


def _unusable(directory: Path, error: Exception) -> EmulatorStartError:
    return EmulatorStartError(f"The emulator cannot use the data directory {directory}: {error}.")


def _start(directory: Path) -> EmulatorState:
    # With -P, because files of the current folder, which may be another user's, would be imported first.
    command = [
        *(sys.executable, "-P", "-m", "sbnotebook.emulator"),
        *("--port", "0", "--data-dir", str(directory), "--end-after-unused", "10"),  # seconds
    ]
    make_private(directory / _LOG_FILE)
    # On its own, so that an interrupt of the notebook's kernel does not end it; on Windows with these flags.
    flags = sum(getattr(subprocess, name, 0) for name in ("CREATE_NEW_PROCESS_GROUP", "CREATE_NO_WINDOW"))
    with (directory / _LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, creationflags=flags
        )
    _started.append(process)
    deadline = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        state = EmulatorState.read(directory)
        # Perhaps of one that was started by hand meanwhile: then this one ends, kept out.
        if state is not None and _take_lease(directory, state):
            return state
        time.sleep(_POLL)
    process.kill()
    lines = (directory / _LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    raise EmulatorStartError("The emulator did not start. The end of its log:\n" + "\n".join(lines))


def _take_lease(directory: Path, state: EmulatorState) -> bool:
    """Hold a lease on a running emulator; return false if the one that wrote the state is not running any more."""
    connection = _proven(state)
    if connection is None:
        return False
    if _leases.get(directory, ("", None))[0] == state.secret:
        connection.close()
        return True
    # The emulator holds the answer open: the connection is the lease.
    try:
        with _ended_in_time(connection.sock):
            connection.request("GET", "/lease", headers={PROOF: prove_lease(state.secret)})
            response = connection.getresponse()
            is_held = response.readline() == b"held\n"
    except (OSError, http.client.HTTPException):
        return False
    if is_held:
        _leases[directory] = (state.secret, response)
    return is_held


def _proven(state: EmulatorState) -> http.client.HTTPConnection | None:
    """Return a connection to the emulator that wrote this state, after it has proved that; None if it is another."""
    challenge = secrets.token_hex()
    proof = prove(state.secret, state.port, challenge)
    with ExitStack() as stack:
        stack.enter_context(suppress(OSError, http.client.HTTPException, ValueError, RecursionError))
        connection = http.client.HTTPConnection(state.host, state.port, timeout=_ANSWER_TIMEOUT)
        stack.callback(connection.close)
        # The proof holds for this connection only, not for a later one.
        connection.auto_open = 0
        connection.connect()
        with _ended_in_time(connection.sock):
            connection.request("GET", f"/health?challenge={challenge}")
            answer = json.loads(connection.getresponse().read(_MAX_ANSWER))
        if answer == {"status": "ok", "pid": state.pid, "proof": proof}:
            stack.pop_all()
            return connection
    return None


@contextmanager
def _ended_in_time(connection: socket.socket) -> Generator[None]:
    """End the connection if the block takes too long: a timeout begins again with each byte."""

    def end() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_ANSWER_TIMEOUT, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
