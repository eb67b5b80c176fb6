from __future__ import annotations

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import DeadLetter, Message
from tests.filled_queues import filled_client_queue


def test_a_dead_letter_is_compared_with_the_last_good_message(namespace: Namespace) -> None:
    bodies = (b'{"sum": null, "to": "a"}', b'{"sum": 1, "to": "a"}', b'{"sum": 2, "to": "a"}', b'{"other": 1}')
    subjects = ("it's due", "it's due", "it's due", "other")
    sent = [Message(body=body, subject=subject) for body, subject in zip(bodies, subjects, strict=True)]
    filled_client_queue(namespace, "compared", sent)
    with namespace.entity("compared").lock(1) as batch:
        batch.dead_letter(reason="NoSum")

    found = namespace.diff("compared/$dlq", 1)

    assert found.other.sequence_number == 3
    values = {each.field: (each.one, each.other) for each in found}
    assert values["body_json.sum"] == ("null", "2")
    assert values["dead_letter_reason"] == ("NoSum", None)
    assert "body_json.to" not in values
    assert "compared/$dlq #1 and compared #3 have" in repr(found)
    assert "body_json.sum" in found.as_html()
    assert [each.field for each in namespace.diff("compared", 2, 3)] == ["body_json.sum"]
    assert namespace.diff("compared/$dlq", 1, 4, other_entity="compared").other.subject == "other"
    assert len(namespace.diff("compared", 2, 2)) == 0
    assert list(found.to_pandas().columns) == ["field", "one", "other"]
    namespace.entity("compared").pick([2, 3], DeadLetter("NoSum")).apply()
    with pytest.raises(ConfigurationError, match=r"no message with the subject .* in compared to compare with"):
        namespace.diff("compared/$dlq", 1)
