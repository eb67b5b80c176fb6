"""The time of an assistant's call for the causes of 10,000 dead letters, compared with ``%sb_groups`` in the same run.

Both look at the same queue in turn, each after a first call that is not counted. The call goes through the client of
the official SDK to the server, in a process of its own.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, Final

import anyio
from IPython.core.interactiveshell import InteractiveShell
from mcp import Client, StdioServerParameters
from traitlets.config import Config

from benchmarks.emulators import emulator
from benchmarks.results import Result, show
from sbnotebook.client import connect
from sbnotebook.model import Message

__all__ = ["measure"]

COUNT: Final = 10_000
ROUNDS: Final = 5
TARGET: Final = 1.2
COMMAND: Final = ("-P", "-c", "from sbnotebook.cli import main; main()", "mcp", "env:TARGET")
LETTERS: Final = "bench-assisted/$dlq"


def measure() -> list[Result]:
    """Measure both, in turn."""
    with emulator() as (connection_string, _):
        with connect(connection_string, archive=False) as namespace:
            namespace.create_queue("bench-assisted")
            queue = namespace.entity("bench-assisted")
            queue.send([Message(body=b'{"order": %d}' % n) for n in range(COUNT)]).raise_for_failures()
            with queue.lock(COUNT) as batch:
                for number in range(5):
                    some = batch.messages[number::10]
                    batch.dead_letter(some, reason=f"Reason{number}", description=f"Order {number} has no price")
                batch.dead_letter(reason="Invalid", description="Order 7 has no price").raise_for_failures()
        shell: Any = InteractiveShell(config=Config(HistoryManager={"hist_file": ":memory:"}))
        shell.run_line_magic("load_ext", "sbnotebook")
        shell.user_ns["target"] = connection_string
        shell.run_cell("%sb_connect {target}", silent=True)
        magic, call = anyio.run(_both, shell, connection_string)
    ratio = call / magic
    said = f"{ratio:.2f} x the time of %sb_groups ({call:.2f} s, {magic:.2f} s)"
    return [Result(f"an assistant's call for the causes of {COUNT:,} letters", said, f"{TARGET} x", ratio <= TARGET)]


async def _both(shell: Any, connection_string: str) -> tuple[float, float]:
    server = StdioServerParameters(command=sys.executable, args=[*COMMAND], env={"TARGET": connection_string})
    magics: list[float] = []
    calls: list[float] = []
    async with Client(server) as client:
        for _ in range(ROUNDS + 1):
            started = time.perf_counter()
            groups: Any = await anyio.to_thread.run_sync(shell.run_cell, f"causes = %sb_groups {LETTERS}")
            magics.append(time.perf_counter() - started)
            started = time.perf_counter()
            result: Any = await client.call_tool("causes", {"entity": LETTERS})
            calls.append(time.perf_counter() - started)
            if not groups.success or f'"messages": {COUNT}' not in result.content[0].text:
                raise AssertionError(result)
    return statistics.median(magics[1:]), statistics.median(calls[1:])


if __name__ == "__main__":
    show(measure())
