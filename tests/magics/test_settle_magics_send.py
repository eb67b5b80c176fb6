from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from sbnotebook.client import Plan
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Message, PeekedMessage
from tests.magics.conftest import Shell


@pytest.fixture(scope="module")
def orders(shell: Shell) -> str:
    shell.run("namespace.create_queue('orders')")
    return "orders"


def last(shell: Shell, queue: str) -> PeekedMessage:
    return shell.run(f"%sb_peek {queue} -n all").value[-1]


def test_send_of_a_text_in_quotes(shell: Shell, orders: str) -> None:
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
        (pd.DataFrame({"flights": [10, 20]}), [b'{"flights": 10}', b'{"flights": 20}']),
        (pa.table({"subject": ["UA"], "flights": [10]}), [b'{"flights": 10}']),
    ],
)
@pytest.mark.usefixtures("orders")
def test_send_of_a_variable(shell: Shell, value: object, bodies: list[bytes]) -> None:
    shell.variables["value"] = value
    assert shell.run("%sb_send orders value").value.settled == len(bodies)
    assert [message.body for message in shell.run("%sb_peek orders -n all").value[-len(bodies) :]] == bodies


def test_send_takes_quoted_names_and_values_as_texts(shell: Shell, orders: str) -> None:
    shell.variables["name"] = "orders"
    shell.run("%sb_send orders 'name'")
    assert last(shell, orders).body == b"name"
    shell.run("%sb_send orders {name}")
    assert last(shell, orders).body == b"orders"
    for text in ('{"a":1}', "order-17", "'f(x)'"):
        shell.run(f"%sb_send orders {text}")
        assert last(shell, orders).body == text.strip("'").encode()


def test_dry_run_sends_nothing(shell: Shell, orders: str, emulator: RunningEmulator) -> None:
    before = emulator.counts(orders).active
    plan = shell.run("%sb_send orders 'later' --dry-run").value
    assert isinstance(plan, Plan)
    assert emulator.counts(orders).active == before
    assert plan.apply().settled == 1
    assert emulator.counts(orders).active == before + 1


@pytest.mark.usefixtures("orders")
def test_lines_of_a_cell_are_messages(shell: Shell) -> None:
    assert shell.run('%%sb_send orders --lines --subject UA\n{"a": 1}\n\n{"a": 2}\nno json\n').value.settled == 3
    sent = shell.run("%sb_peek orders -n all").value[-3:]
    assert [(m.body, m.subject, m.content_type) for m in sent] == [
        (b'{"a": 1}', "UA", "application/json"),
        (b'{"a": 2}', "UA", "application/json"),
        (b"no json", "UA", None),
    ]
    assert "several must not have the same" in shell.error("%%sb_send orders --lines --message-id m\na\nb")


def test_session_message_is_sent_peeked_and_locked(shell: Shell) -> None:
    shell.run("namespace.create_queue('by-session', requires_session=True)")
    for session in ("a", "b", "a"):
        assert shell.run(f"%sb_send by-session 'of {session}' --session-id {session}").value.ok
    assert [m.body for m in shell.run("%sb_peek by-session --session a").value] == [b"of a", b"of a"]
    assert [m.body for m in shell.run("%sb_lock by-session --session b").value.messages] == [b"of b"]
    held = shell.run("%sb_lock by-session --next-session -n 1").value
    assert (held.session_id, len(held)) in {("a", 1), ("b", 1)}
    shell.run("%sb_release")
    assert (
        shell.error("%sb_lock by-session --session a --next-session") == "Give --session or --next-session, not both."
    )


def test_send_for_later_is_shown_and_purged(shell: Shell, emulator: RunningEmulator) -> None:
    shell.run("namespace.create_queue('for-later')")
    ran = shell.run("%sb_send for-later 'in an hour' --delay 1h --subject hour")
    assert "Plan: send 1 message to for-later, active 1h later." in ran.out
    assert shell.run("%%sb_send for-later --at 2050-01-02T03:04:05+00:00 --lines\na\nb\n").value.settled == 2
    shown = shell.run("%sb_peek for-later --state scheduled").value
    assert [m.body for m in shown] == [b"in an hour", b"a", b"b"]
    assert shown[1].scheduled_enqueue_time.isoformat() == "2050-01-02T03:04:05+00:00"
    assert shell.run("""%sb_purge for-later --state scheduled --where "subject = 'hour'" """).value.settled == 1
    assert emulator.counts("for-later").scheduled == 2


def test_send_takes_properties_with_their_types(shell: Shell, orders: str) -> None:
    shell.run(
        f"""%sb_send {orders} 'x' --property carrier=UA --property stops=2 --property 'code="2"' --property a=b=c"""
    )
    assert last(shell, orders).application_properties == {"carrier": "UA", "stops": 2, "code": "2", "a": "b=c"}
    assert "--property takes NAME=VALUE" in shell.error(f"%sb_send {orders} 'x' --property carrier")
