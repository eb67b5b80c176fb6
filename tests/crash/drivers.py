"""A driver of Spark, with all processes that belong to it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import psutil

from tests.crash import stream_driver
from tests.crash.stream_driver import Job
from tests.kills import PATIENCE, ROOT, below, environment, kill, wait_until


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
