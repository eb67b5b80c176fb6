"""Plans are shown and confirmed, in a real kernel."""

from __future__ import annotations

import re

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.azure import HOST
from tests.magics.conftest import Kernel

IN_AZURE = """
from tests.azure import take_place
take_place({!r})
%sb_connect {} --write --into namespace
"""


@pytest.fixture
def connected(kernel: Kernel, emulator: RunningEmulator) -> Kernel:
    """A kernel on the emulator, where nothing is asked."""
    kernel.run(f"%sb_connect {emulator.connection_string} --into namespace")
    return kernel


@pytest.fixture
def outside(kernel: Kernel, emulator: RunningEmulator) -> Kernel:
    """A kernel on a namespace that is not an emulator."""
    assert f"{HOST} (Azure" in kernel.run(IN_AZURE.format(emulator.connection_string, HOST)).text
    return kernel


def test_the_plan_is_shown_before_the_report(connected: Kernel) -> None:
    connected.run("namespace.create_queue('plans')")
    ran = connected.run("%sb_send plans '<b>text</b>'")
    plan, report = [output["data"]["text/html"] for output in ran.outputs if "data" in output]
    assert "Plan: send 1 message to plans." in plan
    assert "&lt;b&gt;text&lt;/b&gt;" in plan
    assert report == '<p class="mathjax_ignore tex2jax_ignore">Sent 1 message</p>'
    assert ran.prompts == []
    assert re.search(r"Not asked, because [\w.:]+ is an emulator\.\n", ran.text)


def test_outside_the_emulator_it_asks_and_no_means_no(outside: Kernel) -> None:
    ran = outside.run("%sb_send orders 'text'", answer="n")
    assert [prompt["prompt"] for prompt in ran.prompts] == ["Send 1 message to orders on contoso? [y/N] "]
    assert "Nothing was done: the plan was not confirmed." in ran.text


def test_plan_without_an_answer_is_not_carried_out(outside: Kernel) -> None:
    ran = outside.run("%sb_send orders 'text'")
    assert "This kernel cannot ask, so nothing was done: check the plan and add --yes." in ran.text
    assert ran.reply["status"] == "error"


def test_dry_run_does_not_ask(outside: Kernel) -> None:
    ran = outside.run("%sb_send orders 'text' --dry-run", answer="y")
    assert ran.prompts == []
    assert "Plan: send 1 message to orders on contoso." in ran.text


@pytest.mark.parametrize(("line", "answer"), [("%sb_send orders 'text'", "y"), ("%sb_send orders 'text' --yes", None)])
def test_confirmed_it_is_done_and_what_failed_is_said(outside: Kernel, line: str, answer: str | None) -> None:
    ran = outside.run(line, answer=answer)
    assert "Nothing was done" not in ran.text
    assert "There is no queue or topic 'orders'" in ran.text, "it was tried"


def test_python_warns_of_failures_when_the_cell_ends(kernel: Kernel, emulator: RunningEmulator) -> None:
    kernel.run(f"from sbnotebook import Complete, connect\nns = connect({emulator.connection_string!r})")
    kernel.run("ns.create_queue('unseen'); queue = ns.entity('unseen')")
    unseen = kernel.run("report = queue.pick([4711], Complete()).apply()\nprint('the end')")
    assert "Completed 0 of 1 message: 1 not found" in unseen.text.partition("the end")[2]
    assert "Not every message" not in kernel.run("queue.pick([4711], Complete()).apply()").text
    assert "Not every message" not in kernel.run("1 + 1").text
    by_magic = kernel.run(
        f"%sb_connect {emulator.connection_string}\n%sb_pick unseen --messages 4711 --complete --into r"
    )
    assert by_magic.text.count("Completed 0 of 1 message") == 1
