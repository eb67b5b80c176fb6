"""The processes that are killed: an emulator that keeps its messages, and all that belongs to a driver of Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final
from urllib.request import urlopen

import psutil

from benchmarks import emulators
from tests.crash import stream_driver
from tests.crash.stream_driver import Job

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 600.0
"""Seconds after which something hangs."""


def wait_until(what: str, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait for a condition.

    Raises:
        AssertionError: it took too long.
    """
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.01)


def below(pid: int) -> list[tuple[int, str]]:
    """All that a process has started, and what those have started: their ids and their commands."""
    found: list[tuple[int, str]] = []
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has ended in the meantime
                found.append((process.pid, " ".join(process.cmdline())))
    return found


def kill(pids: Iterable[int]) -> None:
    """End processes without any clean-up."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Emulator:
    """An emulator with a directory for its messages; it is always on the same port.

    Args:
        directory: its own.
        queue: the queue that is streamed.
        properties: the queue's, as in a Config.json.
        one_way_ms: to it, and as many back.
    """

    def __init__(self, directory: Path, queue: str, properties: dict[str, object], one_way_ms: int = 0) -> None:
        directory.mkdir()
        self._directory, self._queue, self._one_way_ms = directory, queue, one_way_ms
        queues = [{"Name": queue, "Properties": properties}]
        config = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": queues}]}}
        (directory / "Config.json").write_text(json.dumps(config))
        self._port = "0"
        self._process = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Start, and wait until it can be used."""
        place = self._directory
        command = [sys.executable, "-m", "sbnotebook.emulator", "--port", self._port]
        files = ["--config", str(place / "Config.json"), "--data-dir", str(place / "data")]
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *files], stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment()
            )
        assert process.stdout is not None
        self.connection_string = process.stdout.readline().strip()
        assert self.connection_string, (place / "log").read_text()
        self.host = self.connection_string.partition("//")[2].partition(";")[0].strip("/")
        self._port = self.host.rpartition(":")[2]
        self._process = process
        emulators.Emulator(self.connection_string, process.pid).set_faults(network_delay_ms=self._one_way_ms)
        return process

    def kill(self) -> None:
        """End it without any clean-up."""
        self._process.kill()
        self._process.communicate()

    def counts(self) -> dict[str, int]:
        """How many messages the queue holds, by where they are; those that are none of them are left out."""
        with urlopen(f"http://{self.host}/entities", timeout=PATIENCE) as answer:
            (queue,) = json.load(answer)["queues"]
        kinds = ("active", "locked", "deferred", "scheduled", "dead_letter", "transfer_dead_letter")
        return {kind: queue[kind] for kind in kinds if queue[kind]}


class Driver:
    """A driver with its Java and its Python processes.

    Args:
        job: what it does.
        log: what its processes complain about goes there.
    """

    def __init__(self, job: Job, log: Path) -> None:
        self.said: list[dict[str, Any]] = []
        with log.open("ab") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, stream_driver.__file__, json.dumps(asdict(job))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                cwd=ROOT,
                env=environment(),
            )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            if line.startswith("{"):
                self.said.append(json.loads(line))

    def heard(self, what: str) -> list[str]:
        """The reasons of all that it said of this kind."""
        return [each["reason"] for each in self.said if each["what"] == what]

    @property
    def is_alive(self) -> bool:
        """Whether the process that began it runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the Python process that began it."""
        return self._process.pid

    def found(self, part: str) -> list[int]:
        """Its processes whose command has this in it."""
        return [pid for pid, command in below(self.pid) if part in command]

    def workers(self) -> list[int]:
        """Python processes that run tasks: those that the process has started which looks like them."""
        alike = self.found("pyspark.daemon")
        return [pid for daemon in alike for pid, _ in below(daemon) if pid in alike]

    def kill(self) -> None:
        """End all of it at once."""
        kill([*(pid for pid, _ in below(self.pid)), self.pid])
        self._process.communicate()

    def kill_only(self, pids: Iterable[int]) -> None:
        """End some of its processes, and wait until all others have ended by themselves."""
        others = psutil.Process(self.pid).children(recursive=True)
        kill(pids)
        self._process.communicate(timeout=PATIENCE)
        wait_until("processes of a dead driver to end", lambda: not [other for other in others if other.is_running()])

    def stop(self) -> None:
        """Let it stop its query, write the rows and end."""
        _, _ = self._process.communicate("stop\n", timeout=PATIENCE)
        assert self._process.returncode == 0


def environment() -> dict[str, str]:
    """Java light and quick to start; this folder's code in all Python processes."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {**os.environ, "JDK_JAVA_OPTIONS": options, "PYTHONPATH": str(ROOT)}
