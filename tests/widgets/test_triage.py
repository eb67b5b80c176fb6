"""The triage without a browser: its buttons and texts, and the messages on the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbnotebook import read_messages
from sbnotebook.client import Entity, Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Message
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.triage import Triage
from tests.filled_queues import filled_client_queue
from tests.namespaces import opened
from tests.widgets.conftest import buttons, click, find, plain_blocks, said, until, write

SHOW = "Show the plan"


def letters_of(count: int, name: str, namespace: Namespace) -> Entity:
    """A dead-letter queue; every third message has another cause."""
    namespace.create_queue(name)
    queue = namespace.entity(name)
    queue.send(Message(message_id=f"m{n}", body=b'{"n": %d}' % n, subject="order") for n in range(count))
    with queue.lock(count) as batch:
        held = list(batch.messages)
        batch.dead_letter(held[::3], reason="Expired", description="too late")
        batch.dead_letter(reason="Invalid", description="no price")
    return namespace.entity(f"{name}/$dlq")


def triage_of(namespace: Namespace, entity: str, **options: Any) -> Triage:
    triage = Triage(namespace, entity, **options)
    assert triage.wait()
    return triage


def select(triage: Triage, *numbers: int) -> None:
    triage.table.select([(str(triage.table.messages[0].entity), number) for number in numbers])


def carry_out(triage: Triage) -> None:
    """Confirm the plan, and wait for its end."""
    until(lambda: "Carry out" in buttons(triage.actions), "the plan")
    before = triage.actions.report
    click(triage.actions, "Carry out")
    until(lambda: triage.actions.report is not before and not triage.actions.is_looking, "the report")


def ids(entity: Entity) -> list[str | None]:
    return [message.message_id for message in entity.peek()]


def test_it_works_with_plain_widgets_too(namespace: Namespace) -> None:
    letters = letters_of(6, "plain", namespace)
    triage = triage_of(namespace, "plain/$dlq")
    until(lambda: len(find(triage, "Cause", plain_blocks).options) == 3, "all, and the two")
    write(triage, "Cause", find(triage, "Cause", plain_blocks).options[2], plain_blocks)
    assert "1 to 2 of 2 found (6 in all)" in text_of(plain_blocks(triage))
    click(triage, "Select all of these", plain_blocks)
    assert "2 messages are selected." in said(triage)
    click(triage, "Complete…")
    click(triage, SHOW)
    carry_out(triage)
    assert ids(letters) == ["m1", "m2", "m4", "m5"]
    triage.close()


def test_nothing_is_planned_for_no_messages(namespace: Namespace) -> None:
    letters_of(1, "unchosen", namespace)
    triage = triage_of(namespace, "unchosen/$dlq")
    click(triage, "Complete…")
    click(triage, SHOW)
    assert said(triage).count("No message is selected.") == 2
    assert "Nothing is planned" in repr(triage.actions)
    click(triage, "Close")
    assert said(triage).count("No message is selected.") == 1
    assert SHOW not in buttons(triage)
    triage.close()


def test_live_messages_are_dead_lettered_and_deferred(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "live", 4)
    triage = triage_of(namespace, "live")
    select(triage, 2)
    click(triage, "Dead-letter…")
    click(triage, SHOW)
    assert "Give a reason" in said(triage)
    write(triage, "Reason", "Unwanted")
    click(triage, SHOW)
    until(lambda: "Dead-letter 1 message of live" in repr(triage.actions))
    carry_out(triage)
    assert [message.dead_letter_reason for message in namespace.entity("live/$dlq").peek()] == ["Unwanted"]

    select(triage, 3)
    click(triage, "Defer…")
    write(triage, "Wake up after", "soon")
    click(triage, SHOW)
    assert "'soon'" in said(triage)
    write(triage, "Wake up after", "2h")
    click(triage, SHOW)
    until(lambda: "Defer 1 message of live" in repr(triage.actions))
    carry_out(triage)
    assert [message.state for message in queue.peek(max_messages=3)] == ["active", "deferred", "active"]
    triage.close()


def test_an_empty_queue_is_said_to_be_empty(namespace: Namespace) -> None:
    namespace.create_queue("calm")
    triage = triage_of(namespace, "calm/$dlq")
    assert "Nothing is dead-lettered here: the queue is empty, and there is nothing to do." in said(triage)
    assert buttons(triage) == ["Refresh", "Load more"]
    triage.close()


def test_what_cannot_be_looked_into_is_said(namespace: Namespace) -> None:
    triage = triage_of(namespace, "nowhere/$dlq")
    assert "Peeking did not come to its end:" in said(triage)
    assert "nowhere" in said(triage).split("did not come to its end")[1]
    assert buttons(triage) == ["Refresh", "Load more"]
    assert "empty" not in said(triage)
    assert "peeked at" not in said(triage)
    triage.close()


def test_a_part_is_looked_at_first_and_the_rest_when_wanted(namespace: Namespace) -> None:
    letters_of(6, "parts", namespace)
    triage = triage_of(namespace, "parts/$dlq", max_messages=4)
    assert "4 messages (there may be more), peeked at" in said(triage)
    click(triage, "Load more")
    assert triage.wait()
    assert "6 messages, peeked at" in said(triage)
    assert [message.sequence_number for message in triage.table.messages] == [1, 2, 3, 4, 5, 6]
    triage.close()


def test_triage_refresh_keeps_the_selection(namespace: Namespace) -> None:
    letters = letters_of(4, "again", namespace)
    triage = triage_of(namespace, "again/$dlq")
    select(triage, 2, 3)
    letters.pick([1, 3], decision_of("Complete"), show_progress=False).apply(show_progress=False)
    click(triage, "Refresh")
    assert triage.wait()
    assert [message.sequence_number for message in triage.table.messages] == [2, 4]
    assert triage.table.selected_keys == (("again/$dlq", 2),)
    assert "1 message is selected." in said(triage)
    triage.close()


def decision_of(name: str) -> Any:
    import sbnotebook

    return getattr(sbnotebook, name)()


def test_looking_can_be_stopped(namespace: Namespace) -> None:
    filled_client_queue(namespace, "long", 1_500)
    triage = Triage(namespace, "long")
    until(lambda: triage.table.messages)
    triage.halt()
    assert triage.wait()
    assert len(triage.table.messages) in (250, 750, 1_500)
    triage.refresh()
    assert triage.wait()
    assert "1,500 messages, peeked at" in said(triage)
    triage.close()


def test_messages_are_selected_by_an_expression_and_exported(namespace: Namespace, tmp_path: Path) -> None:
    letters_of(6, "copied", namespace)
    triage = triage_of(namespace, "copied/$dlq")
    click(triage, "Select where…")
    write(triage, "Where", "subjet = 'order'")
    click(triage, "Select")
    until(lambda: "did you mean subject?" in said(triage))
    write(triage, "Where", "(body_json->>'$.n')::int >= 4")
    click(triage, "Select")
    until(lambda: "The expression is true for 2 of 6 messages" in said(triage))
    assert "2 messages are selected." in said(triage)

    click(triage, "Export…")
    path = tmp_path / "letters.parquet"
    write(triage, "File", str(tmp_path / "letters.xlsx"))
    click(triage, "Write the file")
    until(lambda: "not written as '.xlsx'" in said(triage))
    write(triage, "File", str(path))
    click(triage, "Write the file")
    until(lambda: f"2 messages are in {path}, which only you can read." in said(triage))
    assert [message.message_id for message in read_messages(path)] == ["m4", "m5"]
    assert len(triage.table.messages) == 6
    triage.close()


def test_a_query_for_the_telemetry_of_messages_is_shown(namespace: Namespace) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    namespace.create_queue("traced")
    sent = [Message(application_properties={"traceparent": f"00-{trace}-b7ad6b7169203331-01"}), Message(body=b"other")]
    namespace.entity("traced").send(sent, max_in_flight=1).raise_for_failures()
    triage = triage_of(namespace, "traced")
    select(triage, 1)
    click(triage, "Copy KQL")
    until(lambda: f'let operations = dynamic(["{trace}"]);' in said(triage))
    select(triage, 2)
    click(triage, "Copy KQL")
    until(lambda: "None of these messages has a trace" in said(triage))
    triage.close()


def test_triage_finishes_interrupted_resubmits_after_restart(
    shared_emulator: RunningEmulator, namespace: Namespace, tmp_path: Path
) -> None:
    letters = letters_of(3, "cut", namespace)
    assert "did not end" not in said(triage_of(namespace, "cut/$dlq"))
    shared_emulator.faults.entity("cut").drop_after_nth = 1
    report = letters.resubmit(letters.peek(), to="cut").apply(max_in_flight=1, show_progress=False)
    assert not report.ok
    with opened(shared_emulator.connection_string, tmp_path) as restarted:
        triage = triage_of(restarted, "cut/$dlq")
        until(lambda: "from here, begun on" in said(triage))
        click(triage, "Look at the plan")
        until(lambda: "complete the original, whose clone was sent" in repr(triage.actions))
        carry_out(triage)
        until(lambda: "did not end" not in said(triage))
        triage.close()
    sent, left = namespace.entity("cut").peek(), ids(letters)
    assert len(sent) + len(left) == 3, "nothing is lost and nothing is there twice"
    assert len({message.body for message in sent}) == len(sent)


def test_resubmits_of_a_cause_are_known_after_a_restart(
    shared_emulator: RunningEmulator, namespace: Namespace, tmp_path: Path
) -> None:
    letters_of(9, "counted", namespace)
    triage = triage_of(namespace, "counted/$dlq")
    until(lambda: triage.table.find_causes() or triage.table.causes.every, "the causes")
    expired, invalid = triage.table.causes.fingerprints[:2]
    for numbers in ([1, 2, 3], [4]):
        select(triage, *numbers)
        click(triage.bar, "Resubmit…")
        click(triage, SHOW)
        carry_out(triage)
    until(lambda: namespace.counted_resubmits("counted/$dlq").get(expired, (0, 0))[1] == 2)
    known = namespace.counted_resubmits("counted/$dlq")
    triage.close()

    with opened(shared_emulator.connection_string, tmp_path) as restarted:
        triage = triage_of(restarted, "counted/$dlq")
        until(lambda: triage.table.resubmits == known, "the counts")
        triage.close()
    assert {cause: count for cause, (_, count) in known.items()} == {expired: 2, invalid: 2}


def test_in_a_terminal_it_is_a_text(namespace: Namespace) -> None:
    letters_of(3, "read", namespace)
    triage = Triage(namespace, "read/$dlq")
    text = triage.to_text()
    assert text.startswith(f"Triage of read/$dlq on {namespace.host} (the emulator)\n3 messages, peeked at ")
    assert "2 groups" in text
    assert "Invalid" in text
    assert "Continue with %sb_resubmit read/$dlq" in text
    assert "Tick" not in text, "there is nothing to click"
    assert "No message is selected." in repr(triage)
    triage.close()
