"""Every example in the help texts runs unchanged, against the emulator that starts on demand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import pandas as pd
import pytest
from ipywidgets import Widget

from sbnotebook.emulator.process import default_data_dir, stop
from sbnotebook.model import Message
from tests.magics.conftest import Shell

ELSEWHERE = {
    "sb_spark": "starts Java: tests/spark and the tutorials run it",
    "sb_confirm": "confirms a plan of an assistant: test_assistant_magics.py makes one",
}
ELSEWHERE_USED = re.compile(" --(?:cause|decode) ")
EXAMPLE = re.compile(r"^Example::\n\n(?P<lines>(?: {4}.*\n|\s*\n)+)", re.MULTILINE)


def cells(magic: Any) -> list[str]:
    """Return the cells of an example, which empty lines separate."""
    match = EXAMPLE.search(magic.__doc__)
    assert match is not None, magic
    # A cause's fingerprint depends on the messages, and a decoder reads a file: other tests use both.
    lines = "".join(each for each in match["lines"].splitlines(keepends=True) if not ELSEWHERE_USED.search(each))
    return [cell for cell in dedent(lines).strip().split("\n\n") if cell]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell()
    try:
        shell.run("%sb_connect emulator --into namespace")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp("exports"))
            patch.setenv("SBNOTEBOOK_CONNECTION", shell.variables["namespace"].connection_string)
            shell.run("for name in ('orders', 'results'): namespace.create_queue(name)")
            shell.run("namespace.create_queue('trips', requires_session=True)")
            shell.run("other = namespace")
            frame = pd.DataFrame({"carrier": ["UA", "AA"] * 20, "flight": range(40)})
            shell.variables.update({"frame": frame, "messages": [Message(body=b"{}", subject="ok")]})
            trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
            shell.variables["traced"] = [Message(body=b"{}", application_properties=trace)]
            shell.run("%sb_send orders traced\n%sb_send orders frame\n%sb_lock orders -n 5")
            shell.run("%sb_dead_letter --reason Invalid\n%sb_release")
            yield shell
    finally:
        shell.close()
        stop(default_data_dir())


def test_examples_run(ready: Shell) -> None:
    magics: dict[str, Any] = ready.ipython.magics_manager.magics["line"]
    ran = 0
    for name, magic in magics.items():
        if not name.startswith("sb_") or name in ELSEWHERE:
            continue
        for cell in cells(magic):
            shown = ready.run(cell)
            assert shown.err == "", (name, cell, shown.err)
            assert "Traceback" not in shown.out, (name, cell, shown.out)
            if isinstance(shown.value, Widget):
                shown.value.close()
            ran += 1
    assert ran >= len(magics) // 4
    assert ready.variables["namespace"].read_only is False


def test_failing_example_is_noticed(ready: Shell) -> None:
    assert ready.run("%sb_peek no-such-queue").err != ""
