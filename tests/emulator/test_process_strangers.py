"""The emulator in the background on a machine with other users: their files, their folders, and their servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sbnotebook.emulator import ensure_running, process, stop
from sbnotebook.emulator.process import EmulatorState
from sbnotebook.errors import EmulatorStartError

STRANGER = 65534
"""The id of another user than the one that runs the tests; on most systems, that of ``nobody``."""
as_root = pytest.mark.skipif(
    sys.platform == "win32" or os.getuid() != 0, reason="only root can give files to another user"
)


def state_of(data_dir: Path) -> EmulatorState:
    state = EmulatorState.read(data_dir)
    assert state is not None
    return state


@contextmanager
def impostor(state: EmulatorState) -> Generator[list[str]]:
    """A server at the port of an emulator that has ended, with its answers; yields the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            body = b"held\n" if self.path == "/lease" else b'{"status": "ok", "pid": %d}' % state.pid
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
            del format, args

    with ThreadingHTTPServer((state.host, state.port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield asked
        finally:
            server.shutdown()


def kill(state: EmulatorState) -> None:
    os.kill(state.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while True:
        with suppress(OSError), socket.create_server((state.host, state.port)):
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_at_the_port_of_a_killed_emulator_is_not_used(data_dir: Path) -> None:
    ensure_running(data_dir)
    killed = state_of(data_dir)
    kill(killed)
    with impostor(killed) as asked:
        assert not stop(data_dir)  # which would send a signal to the process that the state names
        where = ensure_running(data_dir)
        assert {path.partition("?")[0] for path in asked} == {"/health"}
        assert state_of(data_dir).port != killed.port
        assert where == state_of(data_dir).connection_string != killed.connection_string


def test_the_state_is_its_owners_only_and_ends_with_the_emulator(data_dir: Path) -> None:
    ensure_running(data_dir)
    file = data_dir / "emulator.json"
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["secret"] not in (data_dir / "emulator.log").read_text()
    assert stop(data_dir)
    assert not file.exists()
    assert not list(data_dir.glob("emulator.json*"))


def test_the_state_of_a_later_emulator_is_left(tmp_path: Path) -> None:
    first, second = (EmulatorState(1, "127.0.0.1", 1, "", secret) for secret in ("first", "second"))
    second.write(tmp_path)
    first.remove(tmp_path)
    assert EmulatorState.read(tmp_path) == second
    second.remove(tmp_path)
    assert EmulatorState.read(tmp_path) is None


def test_a_server_that_answers_byte_by_byte_is_left_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_ANSWER_TIMEOUT", 0.5)
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        EmulatorState(1, "127.0.0.1", listener.getsockname()[1], "", "secret").write(tmp_path)

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000:
                    connection.sendall(bytes([byte]))
                    sent.append(byte)
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        assert not stop(tmp_path)
    assert len(sent) < 500


def test_files_of_the_current_folder_are_not_run(data_dir: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("typer", "asyncio", "sbnotebook"):
        (shared / f"{name}.py").write_text("open('ran', 'w').close()\n")
    script = (
        "import sys; from pathlib import Path; from sbnotebook.emulator import *; ensure_running(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-P", "-c", script, str(data_dir)]
    subprocess.run(command, cwd=shared, check=True, timeout=60)
    assert not (shared / "ran").exists()


@as_root
def test_a_data_directory_of_another_user_is_refused(data_dir: Path) -> None:
    data_dir.mkdir()
    os.chown(data_dir, STRANGER, STRANGER)
    with pytest.raises(EmulatorStartError, match="belongs to another user of this machine: choose one of your own"):
        ensure_running(data_dir)


@as_root
def test_a_state_that_another_user_wrote_is_not_read(tmp_path: Path) -> None:
    EmulatorState(1, "127.0.0.1", 1, "", "secret").write(tmp_path)
    assert EmulatorState.read(tmp_path) is not None
    os.chown(tmp_path / "emulator.json", STRANGER, STRANGER)
    assert EmulatorState.read(tmp_path) is None


@as_root
def test_another_user_cannot_read_the_secret(data_dir: Path) -> None:
    ensure_running(data_dir)
    for folder in (data_dir, *data_dir.parents[:3]):
        folder.chmod(0o755)  # as where the user chose a directory that all can look into
    script = f"import os; os.setgid({STRANGER}); os.setuid({STRANGER}); open({str(data_dir / 'emulator.json')!r})"
    refused = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert "PermissionError" in refused.stderr
