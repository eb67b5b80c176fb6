from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError
from ipywidgets import Widget

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.process import default_data_dir, stop
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import VERBS, Quoted, expanded, refuse_connection_string, split_words
from sbnotebook.model import Message
from tests.magics.conftest import Executed, Kernel, Shell


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("orders", ["orders"]),
        ("  orders   -n 5 ", ["orders", "-n", "5"]),
        ("""--where "subject = 'UA'" -n 5""", ["--where", "subject = 'UA'", "-n", "5"]),
        ("""--where='delivery_count > 1'""", ["--where=delivery_count > 1"]),
        ("""--where subject='UA'""", ["--where", "subject='UA'"]),
        ("""--where "body_json->>'$.a' = 'b'" """, ["--where", "body_json->>'$.a' = 'b'"]),
        ("""orders '{"a": 1}' """, ["orders", '{"a": 1}']),
        ('""', [""]),
    ],
)
def test_split_words_removes_quotes(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_word_in_quotes_is_known_as_one() -> None:
    plain, quoted = split_words("orders 'orders'")
    assert (isinstance(plain, Quoted), isinstance(quoted, Quoted)) == (False, True)


@given(st.lists(st.text(st.characters(exclude_characters="\"'", exclude_categories=["Cs"]), max_size=12)))
def test_whatever_stands_in_quotes_is_one_word(texts: list[str]) -> None:
    assert split_words(" ".join(f'"{text}"' for text in texts)) == texts


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("{queue}", "orders"),
        ("$queue/$dlq", "orders/$dlq"),
        ("{queue}/$DeadLetterQueue", "orders/$DeadLetterQueue"),
        ("{count + 1}", "3"),
        ("subject = '{queue}'", "subject = 'orders'"),
        ("body_json->>'$.queue' = 'x'", "body_json->>'$.queue' = 'x'"),
        ('{"queue": 1}', '{"queue": 1}'),
        ("$missing", "$missing"),
        ("{1 / 0}", "{1 / 0}"),
    ],
)
def test_variables_expand_and_addresses_stay(word: str, text: str) -> None:
    assert expanded(word, {"queue": "orders", "count": 2, "dlq": "not this one"}) == text


def test_the_value_of_a_variable_is_no_option() -> None:
    with pytest.raises(UsageError, match="begins with a dash"):
        expanded("{text}", {"text": "--yes"})


@pytest.mark.parametrize("line", ["%sb_peek --help", "%sb_peek -h", "%sb_peek orders -n 5 --help"])
def test_help_is_shown_and_nothing_else_happens(unconnected: Shell, line: str) -> None:
    ran = unconnected.run(line)
    assert ran.err == ""
    assert "%sb_peek [-n N]" in ran.out
    assert "body_json->>'$.carrier'" in ran.out, "the example"


@pytest.mark.parametrize(
    "line",
    [
        "%sb_delete orders",
        "%sb_purg orders",
        "%sb_remove orders",
        "%sb_compete",
        "%sb_pick orders -n 1 --delete",
        "%sb_pick orders -n 1 --compleet",
        "%sb_purge orders --force",
        "%sb_purge orders --noarchive",
        "%sb_connect --where",
    ],
)
def test_no_slip_leads_to_a_removal(unconnected: Shell, line: str) -> None:
    assert "did you mean" not in unconnected.error(line)


def test_local_variable_of_a_function_expands(shell: Shell) -> None:
    code = "def peek(queue):\n    get_ipython().run_line_magic('sb_peek', '{queue} --into found')\n"
    shell.run("namespace.create_queue('local-name')")
    shell.run(code + "peek('local-name')")
    assert len(shell.variables["found"]) == 0


LINE = "Endpoint=sb://HOST/;SharedAccessKeyName=root;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace("HOST", "shop.servicebus.windows.net"),
        LINE.replace("HOST", "sb-emulator:5672"),
        LINE.replace("HOST", "localhost").replace(";Use", ";EntityPath=Use"),
        LINE.replace("HOST", "localhost").replace("true", "false"),
        f"--into UseDevelopmentEmulator=true {LINE.replace('HOST', 'shop').rpartition(';')[0]}",
        LINE.replace("HOST", "localhost").replace(";Shared", "; Shared"),
    ],
    ids=["Azure", "another machine", "in another part", "false", "elsewhere in the line", "in two words"],
)
def test_a_key_is_typed_for_an_emulator_of_this_machine_only(line: str) -> None:
    with pytest.raises(ConfigurationError, match="would be kept in the notebook"):
        refuse_connection_string(line)


@pytest.mark.parametrize(
    "line", [LINE.replace("HOST", "127.0.0.1:5672"), f"'{LINE.replace('HOST', 'localhost')}' --write"]
)
def test_the_key_of_an_emulator_of_this_machine_may_be_typed(line: str) -> None:
    refuse_connection_string(line)


def test_a_message_with_a_word_of_secrets_may_be_typed() -> None:
    refuse_connection_string("orders 'password: swordfish'")


# ----------------------------------------------------------------


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
    assert line.startswith("Interrupted: Sent ")
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


# ----------------------------------------------------------------


ELSEWHERE = {
    "sb_spark": "starts Java: tests/spark and the tutorials run it",
    "sb_confirm": "confirms a plan of an assistant: test_connection_magics_assistant.py makes one",
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
def ready_examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
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


def test_examples_run(ready_examples: Shell) -> None:
    magics: dict[str, Any] = ready_examples.ipython.magics_manager.magics["line"]
    ran = 0
    # In the order of %sb: magics that look come before those that settle what the examples look at.
    for name in (f"sb_{verb}" for verb in VERBS if f"sb_{verb}" not in ELSEWHERE):
        for cell in cells(magics[name]):
            shown = ready_examples.run(cell)
            assert shown.err == "", (name, cell, shown.err)
            assert "Traceback" not in shown.out, (name, cell, shown.out)
            if isinstance(shown.value, Widget):
                shown.value.close()
            ran += 1
    assert ran >= len(magics) // 4
    assert ready_examples.variables["namespace"].read_only is False


def test_failing_example_is_noticed(ready_examples: Shell) -> None:
    assert ready_examples.run("%sb_peek no-such-queue").err != ""
