"""The commands of the README and of the start page, typed by a reader who knows nothing else."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


DEMO, LAB = (
    line.partition("#")[0].strip() for line in README.split("```console\n", 1)[1].split("```", 1)[0].splitlines()
)
JUPYTER = "c.ServerApp.allow_root = True\nc.ServerApp.open_browser = False\nc.ServerApp.port = 0\n"


@pytest.mark.thorough
def test_make_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    result = subprocess.run(
        shlex.split(DEMO), cwd=ROOT, env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=540,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert unseen(result.stdout, README.split("```text\n", 1)[1].split("```", 1)[0]) == [], result.stdout


@pytest.mark.thorough
def test_the_second_command_opens_the_tutorials(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "jupyter_server_config.py").write_text(JUPYTER)
    variables = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path)}
    lab = subprocess.Popen(
        shlex.split(LAB), cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert lab.stderr is not None
    served = next(line for line in lab.stderr if "Serving notebooks from local directory" in line)
    os.killpg(lab.pid, signal.SIGKILL)
    lab.communicate(timeout=30)
    (folder,) = tmp_path.glob("sbnotebook-*")
    assert served.rstrip().endswith(str(folder))
    assert len([*folder.glob("*.ipynb")]) == len([*(ROOT / "notebooks").glob("*.ipynb")])


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
