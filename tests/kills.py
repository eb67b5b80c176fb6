"""The one harness for kills: processes that die without any clean-up, and a ledger of all messages, counted afterwards.

How often a test kills, and at which moments, comes from :mod:`tests.chances`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.request import Request, urlopen

import psutil

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE: Final = 600.0
"""Seconds after which something hangs."""
NOWHERE: Final = "nowhere"


# ---------------------------------------------------------------------- the ledger


@dataclass
class Entry:
    """One message: where it may be, and how often a client has seen it."""

    digest: str
    possible: set[str] = field(default_factory=lambda: {NOWHERE})
    seen: int = 0


@dataclass
class Ledger:
    """Where each message may be: at one place, or at two while a request to move it has no answer.

    A place is a queue, a sink, an archive, or any other name.
    """

    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])

    def enter(self, name: str, body: bytes = b"", place: str = NOWHERE) -> None:
        """Note a new message, whose name no other has."""
        assert name not in self.entries
        self.entries[name] = Entry(digest(body), {place})

    def begin(self, names: Iterable[str], place: str) -> None:
        """Note that messages may have moved to a place, or will."""
        for name in names:
            self.entries[name].possible.add(place)

    def confirm(self, names: Iterable[str], place: str) -> None:
        """Note that messages are at a place."""
        for name in names:
            self.entries[name].possible = {place}

    @contextmanager
    def moving(self, names: Sequence[str], place: str) -> Generator[None]:
        """Move messages: they may be at either place until the block has ended without an error."""
        self.begin(names, place)
        seen = [self.entries[name].seen for name in names]
        yield
        # A receiver may have been faster with the message than this answer.
        self.confirm(
            (name for name, earlier in zip(names, seen, strict=True) if self.entries[name].seen == earlier), place
        )

    def see(self, name: str, content: bytes | str, place: str) -> None:
        """Note that a client got a message from a place, and check that it may be there; a text is its digest."""
        entry = self.entries[name]
        assert (content if isinstance(content, str) else digest(content)) == entry.digest, f"{name} has changed"
        assert place in entry.possible, f"{name} came from {place}, and can be {entry.possible}"
        entry.possible = {place}
        entry.seen += 1

    def at(self, place: str) -> list[str]:
        """Return the messages that are surely at a place."""
        return [name for name, entry in self.entries.items() if entry.possible == {place}]

    def count(self, found: Mapping[str, Iterable[str]], may_repeat: Collection[str] = ()) -> None:
        """Hold all messages against those found by place: each is at one place where it may be, once.

        Args:
            found: the names of the messages at each place; those at none are nowhere.
            may_repeat: places where a message may be several times.
        """
        places: defaultdict[str, list[str]] = defaultdict(list)
        for place, names in found.items():
            for name in set(names) if place in may_repeat else names:
                places[name].append(place)
        assert not places.keys() - self.entries.keys(), "there are messages that no client sent"
        twice = {name: there for name, there in places.items() if len(there) > 1}
        assert not twice, f"{len(twice)} are there twice, such as {min(twice.items())}"
        lost = [name for name, entry in self.entries.items() if name not in places and NOWHERE not in entry.possible]
        assert not lost, f"{len(lost)} of {len(self.entries)} are lost, such as {min(lost)}"
        for name, entry in self.entries.items():
            (place,) = places.get(name, [NOWHERE])
            assert place in entry.possible, f"{name} is at {place}, and can be {entry.possible}"
            entry.possible = {place}


def digest(body: bytes) -> str:
    """Return a text that differs if a body does."""
    return hashlib.sha256(body).hexdigest()


# ---------------------------------------------------------------------- processes


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
    """Return all that a process has started, and what those have started: their ids and their commands."""
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


def environment() -> dict[str, str]:
    """Return the environment of processes: this folder's code in all of them."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def python(*command: str) -> Generator[subprocess.Popen[str]]:
    """Start Python; it is killed at the end of the block, if it still runs."""
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Emulator:
    """An emulator with a directory for its messages; it is always on the same port.

    Args:
        directory: its own; made if it is not there.
        queues: their properties as in a Config.json, by name.
        one_way_ms: to it, and as many back.

    Attributes:
        process: the one that runs, or ran last.
        connection_string: of the emulator, once it has started.
    """

    process: subprocess.Popen[str]

    def __init__(self, directory: Path, queues: Mapping[str, Mapping[str, object]], one_way_ms: int = 0) -> None:
        directory.mkdir(exist_ok=True)
        self._directory, self._one_way_ms, self._port = directory, one_way_ms, "0"
        self.connection_string = self.host = ""
        named = [{"Name": name, "Properties": properties} for name, properties in queues.items()]
        config = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": named}]}}
        (directory / "Config.json").write_text(json.dumps(config))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """All that it has complained about."""
        return (self._directory / "log").read_text()

    def spawn(self) -> None:
        """Start a process, and wait for nothing."""
        command = [sys.executable, "-m", "sbnotebook.emulator", "--port", self._port]
        files = ["--config", str(self._directory / "Config.json"), "--data-dir", str(self._directory / "data")]
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *files], stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment()
            )

    def start(self) -> Self:
        """Start, and wait until it can be used."""
        self.spawn()
        assert self.process.stdout is not None
        self.connection_string = self.process.stdout.readline().strip()
        assert self.connection_string, self.log
        self.host = self.connection_string.partition("//")[2].partition(";")[0].strip("/")
        self._port = self.host.rpartition(":")[2]
        if self._one_way_ms:
            faults = json.dumps({"network_delay_ms": self._one_way_ms}).encode()
            urlopen(Request(f"http://{self.host}/faults", faults, {"Content-Type": "application/json"})).close()
        return self

    def kill(self) -> None:
        """End it without any clean-up."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def counts(self) -> dict[str, int]:
        """Return how many messages its queues hold, by where they are; those that are none of them are left out."""
        with urlopen(f"http://{self.host}/entities", timeout=PATIENCE) as answer:
            queues = json.load(answer)["queues"]
        kinds = ("active", "locked", "deferred", "scheduled", "dead_letter", "transfer_dead_letter")
        sums = {kind: sum(queue[kind] for queue in queues) for kind in kinds}
        return {kind: count for kind, count in sums.items() if count}
