from __future__ import annotations

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.magics.conftest import Kernel


@pytest.fixture(scope="module")
def ready(kernel: Kernel, emulator: RunningEmulator) -> Kernel:
    for queue in ("tab-orders", "tab-results"):
        emulator.create_queue(queue)
    kernel.run(f"%sb_connect {emulator.connection_string}")
    kernel.run("import pandas\nframe = pandas.DataFrame({'a': [1]})\ndef fix(message): return message\ntext = 'x'")
    kernel.run("from sbnotebook import Report\nreport = Report()")
    return kernel


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("%sb_peek tab-o", ["%sb_peek tab-orders", "%sb_peek tab-orders/$dlq"]),
        ("%sb_peek tab-orders/$d", ["%sb_peek tab-orders/$dlq"]),
        ("%sb_peek TAB-ORDERS/", ["%sb_peek tab-orders/$dlq"]),
        ("x = %sb_peek tab-orders/", ["x = %sb_peek tab-orders/$dlq"]),
        ("a = 1\n%sb_lock tab-orders/", ["a = 1\n%sb_lock tab-orders/$dlq"]),
        ("%sb_send tab-o", ["%sb_send tab-orders"]),
        ("%%sb_send tab-o", ["%%sb_send tab-orders"]),
        ("%sb_resubmit tab-orders/$dlq --to tab-r", ["%sb_resubmit tab-orders/$dlq --to tab-results"]),
        ("%sb_resubmit tab-orders --ed", ["%sb_resubmit tab-orders --edit", "%sb_resubmit tab-orders --edit-json"]),
        ("%sb_resubmit tab-orders --dry-run --ma", [
            "%sb_resubmit tab-orders --dry-run --max-resubmits",
            "%sb_resubmit tab-orders --dry-run --max-in-flight",
        ]),
        ("%sb_resubmit tab-orders -e fi", ["%sb_resubmit tab-orders -e fix"]),
        ("%sb_peek tab-orders --state d", ["%sb_peek tab-orders --state deferred"]),
        ("%sb_send tab-r", ["%sb_send tab-results"]),
        ("%sb send tab-r", ["%sb send tab-results"]),
        ("%sb dea", ["%sb dead_letter"]),
        ("%sb_send tab-orders te", ["%sb_send tab-orders text"]),
        ("%sb_connect emu", ["%sb_connect emulator"]),
        ("%sb_connect --re", ["%sb_connect --read-only"]),
        ("%sb_monitor tab-orders tab-results/", ["%sb_monitor tab-orders tab-results/$dlq"]),
        ("%sb_groups tab-orders --by fr", ["%sb_groups tab-orders --by frame"]),
        ("%sb_pick tab-orders --messages te", ["%sb_pick tab-orders --messages text"]),
        ("%%sb_sql tab-orders tab-r", ["%%sb_sql tab-orders tab-results", "%%sb_sql tab-orders tab-results/$dlq"]),
        ("%%sb_sql tab-orders tab-results tab-ord", ["%%sb_sql tab-orders tab-results tab-orders",
            "%%sb_sql tab-orders tab-results tab-orders/$dlq"]),
        ("%sb_undo repo", ["%sb_undo report"]),
        ("%sb_undo tab-r", ["%sb_undo tab-results", "%sb_undo tab-results/$dlq"]),
        ("%sb_resubmit tab-orders --delay 5", ["%sb_resubmit tab-orders --delay 5m"]),
        ("%sb_sample tab-orders --mask appl", ["%sb_sample tab-orders --mask application_properties."]),
        ("%sb_sample tab-orders --mask co", ["%sb_sample tab-orders --mask correlation_id"]),
        ("%sb_peek tab-orders --where 'body_j", ["%sb_peek tab-orders --where 'body_json"]),
        (
            """%sb_peek tab-orders --where "subject = 'a b' and (dead_letter_r""",
            ["""%sb_peek tab-orders --where "subject = 'a b' and (dead_letter_reason"""],
        ),
        (
            "%sb_peek tab-orders --where \"a = 'b c'\" --to-",
            ["%sb_peek tab-orders --where \"a = 'b c'\" --to-sequence-number"],
        ),
    ],
)  # fmt: skip
def test_tab_completes(ready: Kernel, line: str, completed: list[str]) -> None:
    assert ready.complete(line) == completed


def test_options_are_offered_where_nothing_else_can_follow(ready: Kernel) -> None:
    assert "%sb_complete --where" in ready.complete("%sb_complete ")
    assert "%sb_peek tab-orders --into" in ready.complete("%sb_peek tab-orders ")


def test_other_lines_complete_as_ever(ready: Kernel) -> None:
    ready.run("%config Completer.use_jedi = False")  # it reads all that was imported, which takes seconds
    assert "fix" in [line.strip() for line in ready.complete("fi")]
