"""Which messages users mean, in each form in which they give them, against the real emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sbnotebook.client import Messages, Namespace
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, Message
from tests.filled_queues import dead_letter_queue, filled_client_queue

FORMS: dict[str, Callable[[Messages], Any]] = {
    "a list of numbers": lambda found: [message.sequence_number for message in found],
    "a Series": lambda found: found.to_pandas()["sequence_number"],
    "a Series of numpy's integers": lambda found: found.to_pandas()["sequence_number"].astype("int64"),
    "a Series of floats": lambda found: found.to_pandas()["sequence_number"].astype("float64"),
    "an array": lambda found: found.to_pandas()["sequence_number"].to_numpy(np.int64),
    "texts": lambda found: [str(message.sequence_number) for message in found],
    "a frame": lambda found: found.to_pandas(),
    "a frame of one column": lambda found: found.to_pandas()[["sequence_number"]],
    "an Arrow table": lambda found: found.to_arrow(),
    "rows": lambda found: [row for _, row in found.to_pandas().iterrows()],
    "named tuples": lambda found: found.to_pandas().itertuples(),
    "dictionaries": lambda found: found.to_arrow().to_pylist(),
    "messages": lambda found: found,
    "a generator": lambda found: (message for message in found),
    "groups": lambda found: found.groups(),
    "the messages of a group": lambda found: found.groups()[0].messages,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_chooses_the_same_messages(namespace: Namespace, form: str) -> None:
    name = f"chosen-{list(FORMS).index(form)}"
    letters, queue = dead_letter_queue(namespace, name, 6), namespace.entity(name)
    meant = letters.peek(where="subject = 'odd'")
    assert len(meant) == 3

    picked = letters.pick(FORMS[form](meant), Complete())
    resubmitted = letters.resubmit(FORMS[form](meant), to=name)
    assert len(picked) == len(resubmitted) == 3
    assert resubmitted.apply().settled == 3

    assert [message.body for message in queue.peek()] == [b"1", b"3", b"5"]
    assert [message.message_id for message in letters.peek()] == ["m0", "m2", "m4"]


def test_one_message_row_number_or_group_is_enough(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "single", 6)
    with queue.lock(6) as batch:
        assert batch.complete(batch.messages[0]).settled == 1
        assert batch.dead_letter(batch.messages[0].sequence_number, reason="Bad").settled == 1
        assert batch.dead_letter(queue.peek().to_pandas().iloc[0], reason="Late").settled == 1
        assert batch.release().settled == 3
    letters = namespace.entity("single/$dlq")
    late = letters.peek().groups("reason")[1]
    report = letters.resubmit(late, to="single").apply()
    assert (report.settled, len(letters.peek()), len(queue.peek())) == (1, 1, 4)
    assert len(letters.pick(letters.peek()[0], Complete())) == 1
    assert len(letters.resubmit(report[0].sequence_number, to="single")) == 1


def test_messages_of_another_entity_are_refused(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "mine", 2)
    other = filled_client_queue(namespace, "theirs", 2).peek()
    for each in (other, other.to_pandas(), other.groups(), other.to_pandas().iloc[0], other.to_arrow().to_pylist()):
        with pytest.raises(DecisionError, match="theirs"):
            queue.resubmit(each)
    with queue.lock(2) as batch, pytest.raises(DecisionError, match="theirs"):
        batch.complete(other.to_pandas())


def test_deferred_and_scheduled_messages_are_chosen_alike(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "aside", 4)
    assert len(queue.defer_all(before="1h")) == 0
    assert queue.defer_all(where="body_text <> '3'").apply().settled == 3
    deferred = queue.deferred()
    assert deferred.complete(1).apply().settled == 1
    assert queue.deferred().dead_letter(deferred.to_pandas()["sequence_number"][1:2]).apply().settled == 1
    queue.schedule([Message(), Message(subject="late")], delay="1h")
    assert queue.cancel_scheduled(queue.scheduled().to_pandas().iloc[:1]).apply().settled == 1
    assert len(queue.scheduled(where="subject = 'late'")) == 1


def test_an_expression_chooses_active_messages(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "expressed", 4)
    queue.schedule(Message(subject="odd"), delay="1h")
    assert len(queue.resubmit(where="subject = 'odd'")) == 2
    assert queue.pick(None, Complete(), where="subject = 'odd'").apply().settled == 2


def test_one_lock_is_settled_by_its_token(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "token", 2)
    with queue.lock(2) as batch:
        one, other = batch.messages
        assert queue.settle_by_token(Complete(), one).apply().settled == 1
        assert queue.settle_by_token(Complete(), (other.sequence_number, other.lock_token)).apply().settled == 1
