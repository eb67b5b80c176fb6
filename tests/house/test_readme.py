"""The commands of the README and of the start page, typed into a real kernel by a reader who knows nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.house.test_docs import ROOT
from tests.kernels import ran, running_kernel
from tests.pages import unseen

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

README = (ROOT / "README.md").read_text()
SET_UP = "from tests.pages import namespace as _namespace; _filled = _namespace(); _emulator = _filled.__enter__()"


def typed(client: BlockingKernelClient, line: str) -> str:
    """Run a line, and return what its reader sees, as text."""
    reply, shown = ran(client, line)
    assert reply["status"] == "ok", shown
    return "".join(f"{each.get('text') or each.get('data', {}).get('text/plain', '')}\n" for each in shown)


def test_five_commands_connect_show_causes_and_plan() -> None:
    commands, excerpts = README.split("```ipython\n", 1)[1].split("```\n", 1)
    lines = commands.splitlines()
    assert len(lines) == 5
    with running_kernel(cwd=str(ROOT)) as (_, client):
        typed(client, SET_UP)
        _, connected, entities, causes, plan = (typed(client, line) for line in lines)
        after = typed(client, "print(_emulator.counts('orders').dead_letter)")
    assert "writing is off" in connected or "nothing can be changed" in connected
    assert re.search(r"orders.*12", entities)
    assert unseen(causes, excerpts.split("```text\n", 1)[1].split("```", 1)[0]) == []
    assert "resubmit 5 messages" in plan
    assert after.strip() == "12"  # the dry run sent nothing


def test_the_start_page_shows_what_its_blocks_print(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorials/start.md").read_text()
    blocks = re.findall(
        r"^(?:```(ipython|python|text)|<!-- (hidden))\n(.*?)^(?:```|-->)$", page, re.MULTILINE | re.DOTALL
    )
    shown = ""
    with running_kernel(cwd=str(tmp_path)) as (_, client):
        for language, _, text in blocks:
            if language == "text":
                assert unseen(shown, text) == []
            else:
                shown = typed(client, text)
    assert sum(language == "text" for language, _, _ in blocks) == 3
