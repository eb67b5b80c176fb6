"""The record as HTML, without a notebook; `tests/browser/test_record.py` looks at saved notebooks."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from sbnotebook import EntityAddress, PeekedMessage
from sbnotebook.settlement import Resubmitted
from sbnotebook.widgets.blocks import Table, Text, Title
from sbnotebook.widgets.panel import Record
from sbnotebook.widgets.table.message_table import MessageTable, causes_block
from tests.widgets.conftest import until

SECRET = "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
ENTITY = EntityAddress.parse("o/$dlq")
IMAGE = "<img src=x onerror=alert(1)>"


def test_texts_of_messages_are_escaped_and_secrets_hidden() -> None:
    record = Record()
    record.show([Title(IMAGE), Text(SECRET), Table([IMAGE], [[IMAGE, 7], [SECRET, 8]], IMAGE)])
    html = record.as_html().replace("<wbr>", "")
    assert "<img" not in html
    assert "c2VjcmV0" not in html
    assert html.count("&lt;img") == 4
    assert html.count("SharedAccessKey=***") == 2


def test_a_record_needs_nothing_from_elsewhere() -> None:
    record = Record()
    record.show([Text("text")])
    assert re.findall(r"<(\w+)", record.as_html()) == ["div", "style", "p"]
    assert "http" not in record.as_html()


def test_a_long_record_is_cut() -> None:
    record = Record()
    record.show([Text(f"{number} {'x' * 900}") for number in range(1_000)])
    assert len(record.as_html()) < 310_000
    assert "The record is cut here." in record.as_html()


def test_causes_say_how_many_messages_are_left_and_came_back() -> None:
    def dead(number: int, reason: str, resubmits: int = 0) -> PeekedMessage:
        properties: dict[str, Any] = {"DeadLetterReason": reason, "ResubmitCount": resubmits}
        return PeekedMessage(entity=ENTITY, sequence_number=number, application_properties=properties)

    model = MessageTable([dead(1, "A"), dead(2, "B", 1), dead(3, "B", 3), dead(4, "B"), dead(5, "C")], causes=True)
    assert causes_block(model) is None
    model.find_causes()
    until(lambda: causes_block(model))
    model.remove([("o/$dlq", 3), ("o/$dlq", 5)])
    block: Any = causes_block(model)
    assert block.columns == ["count", "reason", "came back"]
    assert block.rows == [[2, "B", 1], [1, "A", None]]

    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    (cause, count) = model.count_causes([("o/$dlq", 3), ("o/$dlq", 99), ("o/$dlq", 4)]).popitem()
    assert count == 2
    model.set_notes({}, {cause: Resubmitted(noon, 3)})
    block = causes_block(model)
    assert block.columns == ["count", "reason", "resubmitted", "came back"]
    assert block.rows == [[2, "B", "3, 2026-11-20 12:00:00Z", 1], [1, "A", None, None]]


def test_clones_that_wait_in_a_queue_have_not_come_back() -> None:
    properties: dict[str, Any] = {"ResubmitCount": 1}
    address = EntityAddress.parse("o")
    clone = PeekedMessage(entity=address, sequence_number=1, subject="a", application_properties=properties)
    model = MessageTable([clone], causes=True)
    model.find_causes()
    until(lambda: causes_block(model))
    block: Any = causes_block(model)
    assert "came back" not in block.columns
    assert "resubmitted" not in block.columns


WITHOUT_PANDAS = """
import sys
from datetime import UTC, datetime
from sbnotebook import PeekedMessage
from sbnotebook.widgets.blocks import nodes_of
from sbnotebook.widgets.table.message_table import MessageTable, causes_block

times = [datetime(2026, 11, day, tzinfo=UTC) for day in (20, 22, 21)]
letters = [PeekedMessage(entity="o/$dlq", sequence_number=time.day, enqueued_time=time) for time in times]
model = MessageTable(letters, causes=True)
model.find_causes()
model.wait_for_causes(10)
print(nodes_of([causes_block(model)])["/table"][1]["rows"], "pandas" in sys.modules)
"""


def test_causes_have_their_first_and_last_time_without_pandas() -> None:
    # In a new kernel, the triage would wait for its import.
    done = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, check=True)
    row = [3, "(no reason)", "2026-11-20 00:00:00Z", "2026-11-22 00:00:00Z"]
    assert done.stdout.strip() == f"{[row]} False"
