"""Plans as code: the code makes the same plan again, in a real shell."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sbnotebook.client import Namespace, Plan
from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, Message, ReceivedMessage
from tests.magics.conftest import Shell

HOSTILE = "{__import__('os').system('false')} $reason \"'\n%sb_purge x"


def letters_in(shell: Shell, queue: str) -> Any:
    namespace: Namespace = shell.run("namespace").value
    namespace.create_queue(queue)
    entity = namespace.entity(queue)
    entity.send([Message(body=b"x") for _ in range(6)], show_progress=False).raise_for_failures()
    with entity.lock(6) as batch:
        batch.dead_letter(reason="Late")
    return namespace.entity(f"{queue}/$dlq")


def changed(message: ReceivedMessage) -> Message:
    return message.with_changes(body=b"y")


def again(shell: Shell, code: str) -> Plan:
    """Run code, up to its plan."""
    if code.lstrip("# ").startswith("%"):
        return shell.run(f"{code.rstrip()} --dry-run").value
    steps = code.replace("sbnotebook.connect()", "namespace").split("print(plan")[0]
    shell.variables.pop("plan", None)
    shell.run(steps)
    return shell.variables["plan"]


def same(one: Plan, other: Plan) -> bool:
    numbers = [[each.sequence_number for each in plan.messages] for plan in (one, other)]
    return numbers[0] == numbers[1] and one.decision == other.decision and one.entity == other.entity


def test_code_of_a_resubmit_makes_the_same_plan(shell: Shell) -> None:
    letters = letters_in(shell, "coded")
    plan = letters.resubmit([1, 2, 3, 5], to="coded", delay="90s", max_resubmits=None)
    assert plan.as_cell(rate=5) == (
        "%sb_resubmit coded/$dlq --messages 1-3,5 --to coded --delay 90s --max-resubmits none --rate 5\n"
    )
    assert same(again(shell, plan.as_cell()), plan)
    assert same(again(shell, plan.as_python()), plan)
    assert "sbnotebook.connect('shop.servicebus.windows.net')" in plan.as_python(target="shop.servicebus.windows.net")
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
    namespace.create_queue(queue)
    entity = namespace.entity(queue)
    entity.send([Message(body=b"x") for _ in range(4)], show_progress=False).raise_for_failures()
    plan = entity.pick([2, 4], decision, show_progress=False)
    assert plan.as_cell().startswith("%sb_pick") is is_magic
    assert same(again(shell, plan.as_cell()), plan)
    assert same(again(shell, plan.as_python()), plan)


def test_code_of_a_purge_names_its_messages(shell: Shell) -> None:
    letters = letters_in(shell, "purged-by-code")
    plan = letters.purge(where="sequence_number <> 3", show_progress=False)
    assert plan.as_cell() == (
        '%sb_purge purged-by-code/$dlq --where "sequence_number between 1 and 2 or sequence_number between 4 and 6"\n'
    )
    assert same(again(shell, plan.as_cell()), plan)
    assert same(again(shell, plan.as_python()), plan)


def test_an_edit_is_named_and_plans_without_code_say_why(shell: Shell) -> None:
    letters = letters_in(shell, "no-code")
    edited = letters.resubmit([1], edit=changed)
    assert edited.as_cell().startswith("# Define the function edit(message) first")
    assert "--edit edit" in edited.as_cell()
    assert "edit=edit" in edited.as_python()
    sending = shell.run("namespace").value.entity("no-code").plan_send(["a"])
    with pytest.raises(DecisionError, match="A plan to send has no code"):
        sending.as_cell()
    with letters.lock(1) as batch, pytest.raises(DecisionError, match="A plan on held messages has no code"):
        batch.plan(Complete()).as_python()
    with pytest.raises(DecisionError, match="The plan has no messages"):
        letters.resubmit([]).as_cell()
