from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbnotebook.analysis.groups import label
from sbnotebook.client import Messages
from sbnotebook.model import EntityAddress, PeekedMessage

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
HOSTILE = "<b onclick=alert(1)>late</b> & $\\href{javascript:alert(1)}{x}$"


def dead(number: int, reason: str, minutes: float = 0.0, entity: str = "orders/$dlq") -> PeekedMessage:
    return PeekedMessage(
        entity=EntityAddress.parse(entity),
        sequence_number=number,
        enqueued_time=START + timedelta(minutes=minutes),
        application_properties={"DeadLetterReason": reason},
    )


def traces(figure: Any) -> list[dict[str, Any]]:
    return figure.to_dict()["data"]


def test_messages_are_drawn_over_time_by_reason() -> None:
    messages = Messages([*(dead(n, "Late", n) for n in range(60)), dead(60, "Invalid", 30)])
    late, invalid = traces(messages.plot())
    assert (late["name"], sum(late["y"]), len(late["y"])) == ("Late", 60, 60)
    assert (invalid["name"], list(invalid["y"])) == ("Invalid", [1])
    assert late["x"][0] == START + timedelta(seconds=30), "the middle of the first minute"
    assert late["width"] == 60_000


def test_chart_tells_equal_numbers_of_two_entities_apart() -> None:
    messages = Messages([dead(1, "Late"), dead(1, "Invalid", entity="events/$dlq")])
    assert {trace["name"]: sum(trace["y"]) for trace in traces(messages.plot())} == {"Late": 1, "Invalid": 1}


def test_the_less_frequent_are_others() -> None:
    messages = Messages(dead(n, f"Reason {'x' * (n % 12)}") for n in range(120))
    drawn = traces(messages.plot(top=3))
    assert [trace["name"] for trace in drawn][-1] == "others"
    assert [sum(trace["y"]) for trace in drawn] == [10, 10, 10, 90]


def test_each_reason_is_counted_once() -> None:
    """A reason may be called as the rest is, or read like another one when it is cut."""
    reasons = ["others", "others", "others", "a", "a", "b", "x" * 80 + "1", "x" * 80 + "y"]
    messages = Messages(dead(n, reason) for n, reason in enumerate(reasons))
    drawn = [(trace["name"], sum(trace["y"])) for trace in traces(messages.plot(top=2))]
    assert drawn == [("others", 3), ("a", 2), ("others", 3)]
    assert [sum(trace["y"]) for trace in traces(messages.plot())] == [3, 2, 1, 1, 1]


@pytest.mark.parametrize("times", [[FIRST, START], [START, LAST], [FIRST, LAST], [LAST]], ids=range(4))
def test_any_time_is_drawn(times: list[datetime]) -> None:
    messages = Messages(replace(dead(n, "Late"), enqueued_time=time) for n, time in enumerate(times))
    (late,) = traces(messages.plot())
    assert sum(late["y"]) == len(times)


def test_chart_of_no_messages_is_empty() -> None:
    assert traces(Messages().plot()) == []
    assert list(traces(Messages().groups().plot())[0]["x"]) == []


def test_causes_are_drawn_by_count() -> None:
    groups = Messages([dead(1, "Late"), dead(2, "Late"), dead(3, "Invalid")]).groups()
    figure: Any = groups.plot()
    (bars,) = traces(figure)
    assert list(bars["x"]) == [2, 1]
    assert list(figure.to_dict()["layout"]["yaxis"]["ticktext"]) == ["Late", "Invalid"]


def test_label_escapes_what_plotly_reads() -> None:
    messages = Messages([dead(1, HOSTILE)])
    figures: list[Any] = [messages.plot(), messages.groups().plot()]
    drawn = str([figure.to_dict() for figure in figures])
    assert label(HOSTILE)[:20] in drawn
    assert "<b onclick" not in drawn
    assert "$" not in drawn
    assert "<b onclick" in str(figures[0].update_layout(title=HOSTILE).to_dict()), "a control: it would be seen"
