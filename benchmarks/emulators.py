"""An emulator in a process of its own, as a service is: what it does takes no time from those that are measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

__all__ = ["QUEUE", "Emulator", "emulator"]

QUEUE = "bench"
"""The queue that it has."""


class Emulator(NamedTuple):
    """A running emulator.

    Args:
        connection_string: how to reach it.
        pid: of its process.
    """

    connection_string: str
    pid: int

    def cpu_time(self) -> float:
        """Return the seconds of CPU time that it has used."""
        return time.clock_gettime((~self.pid) << 3 | 2)  # the clock of a process, as Linux numbers them

    def set_faults(self, **values: int) -> None:
        """Set faults, such as ``accept_delay_ms``."""
        host = self.connection_string.split("//")[1].partition(";")[0].strip("/")
        request = Request(f"http://{host}/faults", json.dumps(values).encode(), {"Content-Type": "application/json"})
        urlopen(request).close()  # noqa: S310 (this machine)


@contextmanager
def emulator(data_dir: Path | None = None, tier: str = "premium") -> Generator[Emulator]:
    """Start an emulator that is killed at the end.

    Args:
        data_dir: where it keeps messages; None for in memory, so that the disk does not influence the result.
        tier: what its namespace has and allows.
    """
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0", "--queue", QUEUE, "--tier", tier]
    options = ["--in-memory"] if data_dir is None else ["--data-dir", str(data_dir)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Emulator(process.stdout.readline().strip() if process.stdout else "", process.pid)
        finally:
            process.kill()
