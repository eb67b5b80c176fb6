"""From ``%load_ext sbnotebook`` to the first peeked table, in a kernel that has imported nothing yet.

The kernel and the emulator are processes of their own, as they are for users; the queue holds 100,000 messages, and a
first page of them is shown. It is measured from the request to run the cell until the table is with the client. The
packages are compiled, as they are where they were used before: a first kernel, which does that, is not counted.
"""

from __future__ import annotations

import os
import time
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from jupyter_client.manager import start_new_kernel

from benchmarks.emulators import emulator
from benchmarks.results import Result
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection

__all__ = ["measure"]

COUNT: Final = 100_000
ROUNDS: Final = 5
MOST: Final = 2.0
FIRST: Final = "%load_ext sbnotebook\n%sb_connect env:SBNOTEBOOK_CONNECTION\n%sb_peek bench"
AGAIN: Final = "%sb_peek bench"
TIMEOUT: Final = 60


def measure() -> list[Result]:
    """Measure in a new kernel each time, and once more in the same one."""
    first: list[float] = []
    again: list[float] = []
    with emulator() as (connection_string, _):
        with Namespace(Target(Connection(connection_string), ""), archive=False) as namespace:
            messages = (Message(body=b'{"carrier": "UA"}', subject="UA") for _ in range(COUNT))
            namespace.entity("bench").send(messages, show_progress=False).raise_for_failures()
        with TemporaryDirectory() as compiled:
            environment = {**os.environ, "SBNOTEBOOK_CONNECTION": connection_string, "PYTHONPYCACHEPREFIX": compiled}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            for _ in range(1 + ROUNDS):
                manager, client = start_new_kernel(env=environment)
                try:
                    first.append(_until_the_table(client, FIRST))
                    again.append(_until_the_table(client, AGAIN))
                finally:
                    client.stop_channels()
                    manager.shutdown_kernel(now=True)
    del first[0]
    return [
        Result(
            f"from %load_ext to the first page of {COUNT:,} messages on a warm emulator, in a new kernel",
            f"{median(first):.2f} s ({min(first):.2f} to {max(first):.2f} s); the next %sb_peek {median(again):.2f} s",
            f"at most {MOST:.0f} s",
            median(first) <= MOST,
        )
    ]


def _until_the_table(client: Any, code: str) -> float:
    arrived: list[float] = []

    def note(message: dict[str, Any]) -> None:
        if "text/html" in message["content"].get("data", {}) and message["msg_type"] == "execute_result":
            arrived.append(time.perf_counter())

    started = time.perf_counter()
    reply = client.execute_interactive(code, output_hook=note, timeout=TIMEOUT)
    if reply["content"]["status"] != "ok" or not arrived:
        raise RuntimeError(f"There was no table: {reply['content']}")
    return arrived[0] - started
