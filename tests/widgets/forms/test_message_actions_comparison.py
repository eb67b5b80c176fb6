from __future__ import annotations

from sbnotebook.client import Namespace
from sbnotebook.model import Message
from sbnotebook.widgets.forms.message_actions import Finding, comparison
from tests.filled_queues import filled_client_queue
from tests.widgets.conftest import until


def words(view: Finding) -> str:
    until(lambda: "Comparing" not in repr(view))
    return repr(view)


def test_two_messages_are_compared_value_by_value(namespace: Namespace) -> None:
    sent = [
        Message(body=b'{"order": {"total": 5, "to": "Ann"}}', subject="order", message_id="a"),
        Message(body=b'{"order": {"total": null, "to": "Ann"}}', subject="order", message_id="b"),
        Message(body=b'{"order": {"total": 5, "to": "Ann"}}', subject="order", message_id="c"),
    ]
    queue = filled_client_queue(namespace, "compared", sent)
    found = queue.peek()
    said = words(comparison(found[:2], queue, queue))
    assert "compared #1 and compared #2 have 1 difference besides their places, ids and times." in said
    assert "body_json.order.total" in said
    assert "Ann" not in said
    alike = words(comparison(found.where("sequence_number <> 2"), queue, queue))
    assert alike == "compared #1 and compared #3 have no difference besides their places, ids and times."
    assert words(comparison(found, queue, queue)) == "Select two messages; 3 are selected."


def test_a_dead_letter_is_compared_with_the_last_good_message(namespace: Namespace) -> None:
    sent = [Message(body=b'{"total": %d}' % n, subject="order", message_id=f"m{n}") for n in range(3)]
    queue = filled_client_queue(namespace, "good", sent)
    with queue.lock(1) as batch:
        batch.dead_letter(reason="Late").raise_for_failures()
    letters = namespace.entity("good/$dlq")
    said = words(comparison(letters.peek(), letters, queue))
    assert "good/$dlq #1 and good #3 have 3 differences" in said
    assert "(absent)" in said, "the good one has no reason"
    nothing = words(comparison(letters.peek(where="false"), letters, queue))
    assert nothing == (
        "Select two messages, or one dead letter to compare it with the last good message; 0 are selected."
    )
