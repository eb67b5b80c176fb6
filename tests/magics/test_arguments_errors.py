"""Interrupted work reports its progress, in a real kernel."""

from __future__ import annotations

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.magics.conftest import Executed, Kernel, Shell


@pytest.fixture(scope="module")
def ready(kernel: Kernel, emulator: RunningEmulator) -> Kernel:
    kernel.run(f"%sb_connect {emulator.connection_string}")
    kernel.run("rows = [str(n) for n in range(20_000)]")
    return kernel


def line_of(executed: Executed) -> str:
    """The one line that an interrupted cell ends with."""
    (error,) = [output for output in executed.outputs if "ename" in output]
    assert error["ename"] == "InterruptedMagic"
    (line,) = error["traceback"]
    assert executed.reply["status"] == "error", "so that Run All stops here"
    return line


def test_interrupted_send_leaves_its_report(ready: Kernel, emulator: RunningEmulator) -> None:
    emulator.create_queue("stopped")
    begun = ready.run_until("%sb_send stopped rows --rate 200", lambda _: emulator.counts("stopped").active > 100)
    line = line_of(begun)
    assert line.startswith("Interrupted: send: ")
    assert "settled" in line
    assert line.endswith(
        "skipped ones did not; sb_report has all outcomes. Running it again sends the settled ones again."
    )
    settled = int(ready.run("print(sb_report.settled)").text)
    unknown = int(
        ready.run("from sbnotebook import OutcomeStatus as S\nprint(sb_report.counts.get(S.UNCONFIRMED, 0))").text
    )
    there = emulator.counts("stopped").active
    assert 0 < settled <= there <= settled + unknown < 20_000
    assert ready.run("%sb_send stopped 'goes on'").reply["status"] == "ok"


def test_interrupted_purge_is_reported_and_undone(ready: Kernel, emulator: RunningEmulator) -> None:
    emulator.create_queue("half")
    ready.run("some = rows[:500]\n%sb_send half some")
    line = line_of(ready.run_until("%sb_purge half --rate 50", lambda _: emulator.counts("half").active < 500))
    assert "skipped" in line
    assert line.endswith("sb_report has all outcomes. Run it again to continue.")
    left = emulator.counts("half").active
    assert 0 < left < 500
    ready.run("%sb_undo")
    assert emulator.counts("half").active == 500


def test_interrupted_pick_says_that_its_limit_counts_anew(ready: Kernel, emulator: RunningEmulator) -> None:
    emulator.create_queue("limited")
    ready.run("some = rows[:500]\n%sb_send limited some")
    counted = "%sb_pick limited -n 400 --complete --rate 50"
    line = line_of(ready.run_until(counted, lambda _: emulator.counts("limited").active < 500))
    assert line.endswith("Run it again to continue. Then -n counts anew.")


def test_locked_messages_stay_held_after_an_interrupt(ready: Kernel, emulator: RunningEmulator) -> None:
    emulator.create_queue("waiting")
    ready.run("%sb_send waiting 'x'\n%sb_lock waiting --into batch")
    line = line_of(ready.run_until("%sb_abandon --delay 20m", lambda so_far: "Plan: abandon" in so_far.text))
    assert line.startswith("Interrupted: ")
    assert ready.run("print(len(batch))").text.strip() == "1"
    ready.run("%sb_release")


@pytest.mark.parametrize(
    ("interrupt", "line"),
    [
        ("KeyboardInterrupt()", "look how far it came before you do it once more."),
        ("with_report()", "nothing was sent or settled."),
    ],
)
def test_interrupt_never_claims_that_nothing_happened(shell: Shell, interrupt: str, line: str) -> None:
    """An interrupt may come when the work has just ended."""
    shell.run(
        "from sbnotebook import Report\ndef with_report():\n    k = KeyboardInterrupt(); k.report = Report(); return k"
    )
    shell.run("namespace.create_queue('interrupted')\n%sb_send interrupted 'x'")
    shell.run(f"def interrupts(message):\n    raise {interrupt}")
    ran = shell.run("%sb_resubmit interrupted --edit interrupts")
    assert f"Interrupted: {line}" in ran.out + ran.err
