"""The magics in a real IPython shell and in a real kernel, against the real emulator."""

from __future__ import annotations

import atexit
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from sbnotebook.emulator import RunningEmulator, running
from tests.kernels import running_kernel

TIMEOUT = 30
OUTPUTS = ("stream", "display_data", "execute_result", "error")
# Only a slow machine shows one, and what it drew is gone when the cell ends.
PROGRESS_BAR = re.compile(r"\r[^\n]*\r")


@pytest.fixture(scope="session", autouse=True)
def _journal_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """A journal and an archive that no other run has written to; kernels have the environment of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    """An emulator of the module's own: two modules may name their queues alike."""
    with running() as server:
        yield server


@dataclass
class Ran:
    """What a cell printed, on which stream, and gave; progress bars are left out."""

    out: str
    err: str
    value: Any


class Shell:
    """An IPython shell in this process."""

    def __init__(self) -> None:
        self.ipython: Any = InteractiveShell(config=Config(HistoryManager={"hist_file": ":memory:"}))
        self.ipython.run_line_magic("load_ext", "sbnotebook")

    @property
    def variables(self) -> dict[str, Any]:
        return self.ipython.user_ns

    def run(self, code: str) -> Ran:
        captured: Any
        with capture_output() as captured:
            result = self.ipython.run_cell(code, store_history=True)
        return Ran(captured.stdout, PROGRESS_BAR.sub("", captured.stderr), result.result)

    def close(self) -> None:
        """End the connection, and do what a shell does when its process ends."""
        self.run("%sb_connect env:NOT_SET")
        atexit.unregister(self.ipython.atexit_operations)
        self.ipython.atexit_operations()

    def error(self, code: str) -> str:
        """The one line that a cell ends with; a traceback has more."""
        ran = self.run(code)
        assert ran.err.startswith("UsageError: "), ran
        return ran.err.removeprefix("UsageError: ").rstrip("\n")


@pytest.fixture
def unconnected() -> Iterator[Shell]:
    shell = Shell()
    yield shell
    shell.close()


@pytest.fixture(scope="module")
def shell(emulator: RunningEmulator) -> Iterator[Shell]:
    """A shell that is connected to the emulator; what it holds stays held from test to test."""
    shell = Shell()
    shell.variables["connection_string"] = emulator.connection_string
    shell.run("%sb_connect {connection_string} --into namespace")
    yield shell
    shell.close()


@dataclass
class Executed:
    """A kernel's answers to one cell, its output, and its prompts."""

    reply: dict[str, Any]
    outputs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    prompts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def text(self) -> str:
        streams = [output["text"] for output in self.outputs if "text" in output]
        data = [output["data"].get("text/plain", "") for output in self.outputs if "data" in output]
        return "\n".join(streams + data)

    @property
    def html(self) -> str:
        return "\n".join(output["data"].get("text/html", "") for output in self.outputs if "data" in output)


class Kernel:
    """A kernel in its own process, as a notebook has one."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client

    def run(self, code: str, answer: str | None = None, into: Executed | None = None) -> Executed:
        """Run a cell and answer its prompts; without an answer, the kernel cannot prompt."""
        executed = into or Executed({})

        def give_answer(message: dict[str, Any]) -> None:
            executed.prompts.append(message["content"])
            self.client.input(answer)

        def note(message: dict[str, Any]) -> None:
            if message["msg_type"] in OUTPUTS:
                executed.outputs.append(message["content"])

        reply = self.client.execute_interactive(
            code, allow_stdin=answer is not None, stdin_hook=give_answer, output_hook=note, timeout=TIMEOUT
        )
        executed.reply = reply["content"]
        return executed

    def run_until(self, code: str, condition: Callable[[Executed], object]) -> Executed:
        """Run a cell, and press the stop button when something has happened; until then there are its outputs."""
        executed = Executed({})

        def interrupt() -> None:
            end = time.monotonic() + TIMEOUT
            while not condition(executed) and time.monotonic() < end:
                time.sleep(0.02)
            self.manager.interrupt_kernel()

        watching = threading.Thread(target=interrupt)
        watching.start()
        self.run(code, into=executed)
        watching.join()
        return executed

    def complete(self, code: str) -> list[str]:
        """The whole line with each completion at its end."""
        content = self.client.complete(code, len(code), reply=True, timeout=TIMEOUT)["content"]
        return [code[: content["cursor_start"]] + match for match in content["matches"]]


@pytest.fixture(scope="session")
def kernel() -> Iterator[Kernel]:
    with running_kernel() as (manager, client):
        kernel = Kernel(manager, client)
        assert kernel.run("%load_ext sbnotebook").reply["status"] == "ok"
        yield kernel
