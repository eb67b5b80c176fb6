"""Every wrong input gets a sentence that says what to do: in a notebook and on the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from tests.answers import check_answers
from tests.kernels import running_kernel

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

_SETUP: Final = """
import os, sbnotebook
os.chdir({folder!r})
%load_ext sbnotebook
%sb_connect {target} --into namespace
orders = namespace.entity("orders")
orders.send([sbnotebook.Message(body=b'{{"total": 5}}', subject="a"), sbnotebook.Message(body=b"text")])
messages = orders.peek()
read_only = sbnotebook.connect({target!r}, write=False)
closed = orders.lock(0)
closed.close()
some, words = [1, 2], ["a", "b"]
"""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_FRAME: Final = re.compile(r"(?m)^(?:File|Cell) .*$")


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with running() as emulator:
        for name in ("orders", "payments"):
            emulator.create_queue(name)
        emulator.create_queue("sessions", QueueOptions(requires_session=True))
        emulator.create_topic("events")
        emulator.create_subscription("events", "audit")
        yield emulator


class Notebook:
    """A kernel that is connected, and what it answers."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client
        self.errors: list[str] = []
        self._shown: list[str] = []

    def answered(self, cell: str) -> str:
        """Run a cell, and return its error below the user's own frames, or else what it shows."""
        self.errors.clear()
        self._shown.clear()
        self._client.execute_interactive(cell, allow_stdin=False, output_hook=self._note, timeout=60)
        return "".join(map(_without_frames_of_the_user, self.errors)) or "".join(self._shown)

    def _note(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if "traceback" in content:
            self.errors.append(_COLOUR.sub("", "\n".join(content["traceback"])))
        elif message["msg_type"] == "stream":
            (self.errors if content["text"].startswith("UsageError") else self._shown).append(content["text"])
        elif message["msg_type"] in ("execute_result", "display_data"):
            self._shown.append(content["data"].get("text/plain", ""))


@pytest.fixture(scope="module")
def notebook(emulator: RunningEmulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with running_kernel() as (_, client):
        notebook = Notebook(client)
        folder = str(tmp_path_factory.mktemp("written"))
        notebook.answered(_SETUP.format(target=emulator.connection_string, folder=folder))
        assert not notebook.errors
        yield notebook


def test_notebook_answers_wrong_input_in_a_sentence(notebook: Notebook) -> None:
    check_answers("kernel.txt", notebook.answered)


def test_users_frames_stay_above_and_below_those_of_sbnotebook(notebook: Notebook) -> None:
    notebook.answered(
        "def texts():\n    yield sbnotebook.connect('no target')\n"
        "def send_all():\n    orders.send(texts(), show_progress=False)"
    )
    notebook.answered("send_all()")
    (shown,) = notebook.errors
    for frame in ("----> 1 send_all()", "in send_all()", "in texts()"):
        assert frame in shown
    assert "File " not in shown
    notebook.answered("try:\n    1 / 0\nexcept ZeroDivisionError:\n    sbnotebook.connect('no target')")
    (shown,) = notebook.errors
    assert "ZeroDivisionError: division by zero" in shown, "an error of the user that led to it"
    assert "File " not in shown


def test_verbose_tracebacks_have_all_frames(notebook: Notebook) -> None:
    notebook.answered("%xmode Verbose")
    try:
        notebook.answered("sbnotebook.connect('no target')")
        (shown,) = notebook.errors
        assert "in resolve(" in shown
    finally:
        notebook.answered("%xmode Context")


def _without_frames_of_the_user(traceback: str) -> str:
    """Return the text below the frames if all of these are cells; otherwise everything."""
    frames = _FRAME.findall(traceback)
    return traceback.rpartition("\n\n")[2] if all(frame.startswith("Cell In[") for frame in frames) else traceback


_COMMANDS: Final = """
import contextlib, io, json, shlex, sys
from sbnotebook.cli import main
for line in sys.stdin:
    sys.argv = shlex.split(line)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main()
    print(json.dumps(said.getvalue()), flush=True)
"""


def test_command_line_answers_wrong_input_in_a_sentence(emulator: RunningEmulator) -> None:
    environment = {**os.environ, "COLUMNS": "500", "TARGET": emulator.connection_string}
    command = [sys.executable, "-c", _COMMANDS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:

        def answered(line: str) -> str:
            assert process.stdin
            assert process.stdout
            process.stdin.write(line.replace(" TARGET", " env:TARGET").replace("$", "\\$") + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        check_answers("command_line.txt", answered)
        assert process.stdin
        process.stdin.close()
