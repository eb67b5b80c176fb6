"""The first screen of the README, typed into a real kernel by a reader who knows nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.house.test_docs import ROOT
from tests.kernels import running_kernel

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

README = (ROOT / "README.md").read_text()
FIRST_SCREEN = 30  # lines, of which the picture is one
TIMEOUT = 60
SET_UP = "from tests.pages import namespace as _namespace; _filled = _namespace(); _emulator = _filled.__enter__()"


def typed(client: BlockingKernelClient, line: str) -> str:
    """Run a line, and return what its reader sees, as text."""
    seen: list[str] = []

    def see(message: dict[str, dict[str, object]]) -> None:
        content = message["content"]
        seen.append(str(content.get("text") or content.get("traceback") or content.get("data") or ""))

    reply = client.execute_interactive(line, timeout=TIMEOUT, output_hook=see)
    assert reply["content"]["status"] == "ok", seen
    return "".join(seen)


def test_five_commands_connect_show_causes_and_plan() -> None:
    before, commands = README.split("```ipython\n", 1)
    lines = commands.partition("```")[0].splitlines()
    assert (len(lines), before.count("\n") + len(lines) <= FIRST_SCREEN) == (5, True)
    with running_kernel(cwd=str(ROOT)) as (_, client):
        typed(client, SET_UP)
        _, connected, entities, causes, plan = (typed(client, line) for line in lines)
        after = typed(client, "print(_emulator.counts('orders').dead_letter)")
    assert "writing is off" in connected or "nothing can be changed" in connected
    assert re.search(r"orders.*12", entities)
    assert "CarrierAway" in causes
    assert "resubmit 5 messages" in plan
    assert after.strip() == "12"  # the dry run sent nothing
