from __future__ import annotations

import json

import pandas as pd
import pyarrow as pa
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.client import SendPlan
from sbnotebook.model import Message, PeekedMessage
from tests.magics.conftest import Shell


@pytest.fixture(scope="module")
def orders(shell: Shell) -> str:
    shell.run("namespace.create_queue('orders')")
    return "orders"


def last(shell: Shell, queue: str) -> PeekedMessage:
    return shell.run(f"%sb_peek {queue} -n all").value[-1]


def test_a_text_in_quotes_is_sent(shell: Shell, orders: str) -> None:
    ran = shell.run(f"%sb_send {orders} 'two words' --subject greeting --message-id m1 --content-type text/x-own")
    assert f"Plan: send 1 message to {orders}." in ran.out
    sent = last(shell, orders)
    assert (sent.body, sent.subject, sent.message_id, sent.content_type) == (
        b"two words",
        "greeting",
        "m1",
        "text/x-own",
    )


def test_json_is_sent_as_it_is(shell: Shell, orders: str) -> None:
    shell.run("""%sb_send orders '{"a": {"b": 1}, "text": "it is $x"}' """)
    sent = last(shell, orders)
    assert (sent.body, sent.content_type) == (b'{"a": {"b": 1}, "text": "it is $x"}', "application/json")


def test_the_cell_is_the_body(shell: Shell, orders: str) -> None:
    assert shell.run('%%sb_send orders --subject UA\n{"a": "{x} $y"}\n').value.ok
    sent = last(shell, orders)
    assert (sent.body, sent.subject, sent.content_type) == (b'{"a": "{x} $y"}', "UA", "application/json")


@pytest.mark.parametrize(
    ("value", "bodies"),
    [
        ("a text", [b"a text"]),
        (b"\x00\xff", [b"\x00\xff"]),
        (Message(body=b"own", subject="s"), [b"own"]),
        ({"carrier": "UA"}, [b'{"carrier": "UA"}']),
        (["a", b"b", {"body": "c"}], [b"a", b"b", b"c"]),
    ],
)
@pytest.mark.usefixtures("orders")
def test_a_variable_is_sent(shell: Shell, value: object, bodies: list[bytes]) -> None:
    shell.variables["value"] = value
    assert shell.run("%sb_send orders value").value.settled == len(bodies)
    assert [message.body for message in shell.run("%sb_peek orders -n all").value[-len(bodies) :]] == bodies


def test_a_name_in_quotes_and_a_value_are_texts(shell: Shell, orders: str) -> None:
    shell.variables["name"] = "orders"
    shell.run("%sb_send orders 'name'")
    assert last(shell, orders).body == b"name"
    shell.run("%sb_send orders {name}")
    assert last(shell, orders).body == b"orders"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%sb_send orders no_such_name", "There is no variable 'no_such_name'; a text to send stands in quotes."),
        ("%sb_send orders", "Say what to send: a text in quotes, a variable, or %%sb_send with the text below."),
        ("%%sb_send orders name\ntext", "The cell is the message: leave the text or variable on the line out."),
        (
            "%sb_send orders pd --subject s",
            "--subject, --message-id, --content-type, --session-id and --lines are for a text, not a variable.",
        ),
        ("%sb_send orders/$dlq 'x'", "Messages cannot be sent to orders/$dlq: name a queue or a topic."),
        ("%sb_push no_frame orders", "There is no variable 'no_frame'; a text to send stands in quotes."),
        ("%sb_resubmit orders --edit no_such", "There is no function 'no_such': define it first."),
    ],
)
@pytest.mark.usefixtures("orders")
def test_what_cannot_be_sent_is_one_line(shell: Shell, line: str, sentence: str) -> None:
    shell.variables["pd"] = "a text"
    assert shell.error(line) == sentence


@pytest.mark.usefixtures("orders")
def test_what_is_no_message_is_refused_before_the_plan(shell: Shell) -> None:
    shell.variables["number"] = [1]
    assert "cannot be made of int" in shell.error("%sb_send orders number")


def test_a_dry_run_sends_nothing(shell: Shell, orders: str, emulator: RunningEmulator) -> None:
    before = emulator.counts(orders).active
    plan = shell.run("%sb_send orders 'later' --dry-run").value
    assert isinstance(plan, SendPlan)
    assert emulator.counts(orders).active == before
    assert plan.apply().settled == 1
    assert emulator.counts(orders).active == before + 1


@pytest.mark.usefixtures("orders")
def test_the_plan_is_escaped(shell: Shell) -> None:
    plan = shell.run("%sb_send orders '<script>alert(1)</script>' --dry-run").value
    assert "<script" not in plan._repr_html_()
    assert "&lt;script&gt;" in plan._repr_html_()


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
@pytest.mark.usefixtures("orders")
def test_push_sends_the_rows_of_a_frame(shell: Shell, kind: str) -> None:
    table = pa.table({"subject": ["UA", "DL"], "flights": [10, 20]})
    shell.variables["frame"] = table if kind == "arrow" else pd.DataFrame(table.to_pydict())
    ran = shell.run("%sb_push frame orders --max-in-flight 2 --rate 500")
    assert "Plan: send 2 messages to orders." in ran.out
    assert ran.value.settled == 2
    sent = shell.run("%sb_peek orders -n all").value[-2:]
    assert [(m.subject, json.loads(m.body)) for m in sent] == [("UA", {"flights": 10}), ("DL", {"flights": 20})]


def test_resubmit_repairs_and_shows_the_change(shell: Shell, emulator: RunningEmulator) -> None:
    shell.run("namespace.create_queue('repair')\nnamespace.create_queue('repaired')")
    shell.variables["rows"] = [{"subject": s, "body": f'{{"time": null, "s": "{s}"}}'} for s in ("a", "b", "c")]
    shell.run("%sb_send repair rows\n%sb_lock repair -n 3\n%sb_deadletter --reason NoTime")
    shell.run("def fix(message):\n    return message.with_changes(body=message.body.replace(b'null', b'150'))")

    line = """%sb_resubmit repair/$dlq --where "subject <> 'b'" --to repaired --edit fix --max-resubmits 5"""
    dry = shell.run(f"{line} --dry-run").value
    assert [(change.field, change.after) for change in dry.preview().changes] == [("body.time", "150")] * 2
    assert "body.time" in repr(dry)
    assert emulator.counts("repaired").active == 0

    ran = shell.run(line)
    assert "resubmit 2 messages of repair/$dlq to repaired, at most 5 times each (then left here), edited." in ran.out
    assert ran.value.settled == 2
    sent = shell.run("%sb_peek repaired").value
    assert [m.body for m in sent] == [b'{"time": 150, "s": "a"}', b'{"time": 150, "s": "c"}']
    assert [m.subject for m in shell.run("%sb_peek repair/$dlq").value] == ["b"]


def test_resubmit_takes_the_first_n(shell: Shell) -> None:
    shell.run("namespace.create_queue('some')\nrows = ['a', 'b', 'c']\n%sb_send some rows")
    shell.run("%sb_lock some -n 3\n%sb_deadletter --reason Bad")
    assert shell.run("%sb_resubmit some/$dlq -n 1 --delay 1h").value.settled == 1
    assert [m.body for m in shell.run("%sb_peek some --state scheduled").value] == [b"a"]
    assert [m.body for m in shell.run("%sb_peek some/$dlq").value] == [b"b", b"c"]


def test_an_edit_that_forgets_to_return_is_told_so(shell: Shell) -> None:
    shell.run("namespace.create_queue('forgot')\n%sb_send forgot 'a'\ndef forgets(message): pass")
    assert shell.error("%sb_resubmit forgot --edit forgets").startswith("forgets returned NoneType")
    assert len(shell.run("%sb_peek forgot").value) == 1
