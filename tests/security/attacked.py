"""An emulator in a process of its own, whose memory and log can be looked at while it is attacked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["AttackedEmulator", "attacked"]

_MEGABYTE = 1_048_576


@dataclass
class AttackedEmulator:
    """A running emulator with the queue ``orders``."""

    connection_string: str
    log: Path
    process: psutil.Process

    @property
    def port(self) -> int:
        return int(self.connection_string.split(";", maxsplit=1)[0].rsplit(":", 1)[1])

    @property
    def megabytes(self) -> float:
        """Its memory now."""
        return self.process.memory_info().rss / _MEGABYTE

    @property
    def cpu_seconds(self) -> float:
        """The time that it has computed."""
        times = self.process.cpu_times()
        return times.user + times.system


@contextmanager
def attacked(folder: Path, *options: str, files: int | None = None) -> Generator[AttackedEmulator]:
    """Run an emulator; ``files`` limits its descriptors."""
    module = ["-m", "sbnotebook.emulator", "--port", "0", "--in-memory", "--queue", "orders", *options]
    command = [sys.executable, *module]
    if files is not None:
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}));"
        command = [sys.executable, "-c", f"{limit} import os, sys; os.execv(sys.executable, sys.argv[1:])", *command]
    log = folder / "emulator.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            assert line, log.read_text(encoding="utf-8")
            yield AttackedEmulator(line, log, psutil.Process(process.pid))
        finally:
            process.kill()
