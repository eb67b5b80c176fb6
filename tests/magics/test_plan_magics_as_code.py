"""Plans as code: the code makes the same plan again, in a real shell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import Float, Timestamp, UInt
from sbnotebook.analysis.frames import messages_from
from sbnotebook.client import Namespace, Plan, connect
from sbnotebook.emulator import running
from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    Message,
    ReceivedMessage,
    Release,
    Resubmit,
)
from tests.filled_queues import dead_letter_queue, filled_client_queue
from tests.magics.conftest import Shell

HOSTILE = "{__import__('os').system('false')} $reason \"'\n%sb_purge x"


def letters_in(shell: Shell, queue: str) -> Any:
    return dead_letter_queue(shell.run("namespace").value, queue, [Message(body=b"x") for _ in range(6)])


def changed(message: ReceivedMessage) -> Message:
    return message.with_changes(body=b"y")


def again(shell: Shell, code: str) -> Plan:
    """Run code, up to its plan."""
    if code.lstrip("# ").startswith("%"):
        return shell.run(f"{code.rstrip()} --dry-run").value
    steps = code.replace("sbnotebook.connect(write=True)", "namespace").split("print(plan")[0]
    shell.variables.pop("plan", None)
    shell.run(steps)
    return shell.variables["plan"]


def test_code_of_a_first_message_makes_the_same_plan(shell: Shell) -> None:
    plan = letters_in(shell, "coded-ramp").resubmit([1, 2, 3]).with_ramp("2,1", watch="90s", stop_at=0.02)
    assert "--ramp 2,1 --watch 1m30s --stop-at 0.02 --rate 5\n" in plan.as_cell(rate=5)
    for code in (plan.as_cell(), plan.as_python()):
        found = again(shell, code)
        assert same(found, plan)
        assert found.ramp == plan.ramp
        assert "Ramp: 2, then 1, each watched for 1m30s at most." in repr(found)


def test_code_of_held_messages_locks_them_again(shell: Shell) -> None:
    letters = letters_in(shell, "coded-held")
    with letters.lock(3) as batch:
        plan = batch.plan(Complete())
        assert plan.as_cell() == (
            "# Release the messages first: this plan was made while a kernel held them, and locks them again.\n"
            "%sb_pick coded-held/$dlq --messages 1-3 --complete\n"
        )
        moved = batch.plan(Resubmit(to=EntityAddress("coded-held")))
        assert "%sb_resubmit coded-held/$dlq --messages 1-3 --to coded-held" in moved.as_cell()
    assert same(again(shell, plan.as_cell().splitlines()[1]), plan)
    assert same(again(shell, plan.as_python()), plan)


def test_code_of_a_send_makes_the_same_messages(shell: Shell) -> None:
    namespace: Namespace = shell.run("namespace").value
    namespace.create_queue("coded-send")
    sent = [
        Message(body="héllo {name}\n'\"".encode(), subject=HOSTILE, time_to_live=timedelta(hours=1)),
        Message(body="x".encode("utf-16-le"), content_type="text/plain; charset=utf-16le"),
        Message(
            body=b"\xff\x00",
            session_id="s",
            application_properties={
                "n": UInt(7), "when": Timestamp(1_704_067_200_000), "f": Float(1.5), "b": True, "none": None,
                "u": UUID(int=5),
            },
            extras={"durable": True},
        ),
        Message.of_value({"a": [1, 2.5]}),
    ]  # fmt: skip
    moments: tuple[dict[str, Any], ...] = ({}, {"delay": "90s"}, {"at": datetime(2050, 1, 31, 7, 30, tzinfo=UTC)})
    for options in moments:
        plan = namespace.entity("coded-send").plan_send(sent, **options)
        assert plan.as_cell() == plan.as_python()
        found = again(shell, plan.as_python())
        assert [*messages_from(shell.variables["messages"])] == sent
        assert found.decision == plan.decision
        assert repr(found) == repr(plan)
    letters = letters_in(shell, "coded-again")
    plan = namespace.entity("coded-send").plan_send(letters.peek(1))
    again(shell, plan.as_python())
    assert [message.body for message in messages_from(shell.variables["messages"])] == [b"x"]


def test_code_of_an_undo_finds_the_same_messages(shell: Shell) -> None:
    namespace: Namespace = shell.run("namespace").value
    letters = letters_in(shell, "coded-undo")
    report = letters.pick([1, 2, 3, 5], Complete(), show_progress=False).apply()
    plan = namespace.undo(report, to="coded-undo", new_ids=True)
    found = again(shell, plan.as_python())
    assert same(found, plan)
    assert repr(found) == repr(plan)
    assert "'coded-undo/$dlq': [*range(1, 4), 5]," in plan.as_cell()
    assert found.apply().settled == 4


def test_code_of_a_move_connects_to_the_other_namespace(shell: Shell) -> None:
    letters = letters_in(shell, "coded-move")
    with running(queues=["arrives"]) as emulator, connect(emulator.connection_string) as other:
        plan = letters.resubmit([1, 2], to=other.entity("arrives"))
        lines = plan.as_cell().splitlines()
        assert lines == [
            "import sbnotebook",
            "elsewhere = sbnotebook.connect('emulator').entity('arrives')",
            "%sb_resubmit coded-move/$dlq --messages 1-2 --to-entity elsewhere",
        ]
        assert "plan = entity.resubmit(messages, to=elsewhere)" in plan.as_python()
        shell.variables["elsewhere"] = other.entity("arrives")
        assert same(again(shell, lines[2]), plan)
        assert same(again(shell, plan.as_python().replace(lines[1], "")), plan)


def same(one: Plan, other: Plan) -> bool:
    numbers = [[each.sequence_number for each in plan.messages] for plan in (one, other)]
    options = [plan.inner.options for plan in (one, other)]
    return (
        numbers[0] == numbers[1]
        and options[0] == options[1]
        and one.decision == other.decision
        and one.entity == other.entity
    )


def assert_made_again(shell: Shell, plan: Plan) -> None:
    for code in (plan.as_cell(), plan.as_python()):
        assert same(again(shell, code), plan)


def test_code_of_a_resubmit_makes_the_same_plan(shell: Shell) -> None:
    letters = letters_in(shell, "coded")
    plan = letters.resubmit([1, 2, 3, 5], to="coded", delay="90s", max_resubmits=None)
    assert plan.as_cell(rate=5) == (
        "%sb_resubmit coded/$dlq --messages 1-3,5 --to coded --delay 1m30s --max-resubmits none --rate 5\n"
    )
    assert_made_again(shell, plan)
    assert_made_again(shell, letters.resubmit([1], max_resubmits=1, resend_unknown=True))
    assert "sbnotebook.connect('shop.servicebus.windows.net', write=True)" in plan.as_python(
        target="shop.servicebus.windows.net"
    )
    assert "messages = [*range(1, 4), 5]" in plan.as_python()


@pytest.mark.parametrize(
    ("decision", "is_magic"),
    [
        (Complete(), True),
        (Defer(), True),
        (Abandon(), True),
        (DeadLetter("Too late", "no carrier"), True),
        (DeadLetter(HOSTILE, "--yes"), False),
        (Defer(wake_after=timedelta(minutes=5)), False),
    ],
)
def test_code_of_a_pick_makes_the_same_plan(shell: Shell, decision: Decision, is_magic: bool) -> None:
    namespace: Namespace = shell.run("namespace").value
    queue = f"picked-{abs(hash(decision)) % 10**8}"
    plan = filled_client_queue(namespace, queue, 4).pick([2, 4], decision, show_progress=False)
    assert plan.as_cell().startswith("%sb_pick") is is_magic
    assert_made_again(shell, plan)


@pytest.mark.parametrize(
    ("decision", "options"),
    [
        (Complete(), {"archived": False}),
        (Complete(), {"abandon_rest": True, "max_held": 50}),
        (Defer(), {"max_held": 50}),
        (Resubmit(EntityAddress("pick-options"), timedelta(minutes=1)), {"abandon_rest": True, "max_held": 50}),
    ],
)
def test_code_of_a_pick_says_how_it_is_carried_out(shell: Shell, decision: Decision, options: dict[str, Any]) -> None:
    namespace: Namespace = shell.run("namespace").value
    if "pick-options" not in {str(each.address) for each in namespace.entities()}:
        namespace.create_queue("pick-options")
        namespace.entity("pick-options").send(["x"] * 4, show_progress=False).raise_for_failures()
    plan = namespace.entity("pick-options").pick([2, 4], decision, show_progress=False, **options)
    assert plan.inner.options == options
    assert_made_again(shell, plan)


def test_code_of_a_purge_names_its_messages(shell: Shell) -> None:
    letters = letters_in(shell, "purged-by-code")
    plan = letters.purge(where="sequence_number <> 3", show_progress=False)
    assert plan.as_cell() == (
        '%sb_purge purged-by-code/$dlq --where "sequence_number between 1 and 2 or sequence_number between 4 and 6"\n'
    )
    assert_made_again(shell, plan)
    for_good = letters.purge(archived=False, show_progress=False)
    assert "--no-archive" in for_good.as_cell()
    assert_made_again(shell, for_good)


def test_an_edit_is_named_and_plans_without_code_say_why(shell: Shell) -> None:
    letters = letters_in(shell, "no-code")
    edited = letters.resubmit([1], edit=changed)
    assert edited.as_cell().startswith("# Define the function edit(message) first")
    assert "--edit edit" in edited.as_cell()
    assert "edit=edit" in edited.as_python()
    queue = shell.run("namespace").value.entity("no-code")
    with pytest.raises(DecisionError, match="more than 100 messages has no code"):
        queue.plan_send(["a"] * 101).as_cell()
    with pytest.raises(DecisionError, match="too large for code"):
        queue.plan_send(["a" * 60_000] * 2).as_cell()
    with letters.lock(1) as batch, pytest.raises(DecisionError, match="A plan to release has no code"):
        batch.plan(Release()).as_python()
    with pytest.raises(DecisionError, match="The plan has no messages"):
        letters.resubmit([]).as_cell()
