from __future__ import annotations

from collections.abc import Iterable, Mapping

from sbnotebook.client import Namespace
from sbnotebook.model import Complete, Message
from sbnotebook.settlement import Limits
from sbnotebook.widgets.plan_run import PlanEnd, PlanRun, Speed
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.rows import MessageKey


class RecordedTable(MessageTable):
    """Records its calls."""

    def __init__(self, *, is_closed: bool = False) -> None:
        super().__init__()
        self.is_closed = is_closed
        self.patched: dict[MessageKey, Mapping[str, object]] = {}
        self.gone: list[MessageKey] = []

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> None:
        if self.is_closed:
            raise RuntimeError("It is closed.")
        self.patched |= values

    def remove(self, keys: Iterable[MessageKey]) -> None:
        self.gone += keys


def carried_out(namespace: Namespace, name: str, table: RecordedTable) -> PlanEnd:
    namespace.create_queue(name)
    queue = namespace.entity(name)
    queue.send([Message(message_id=str(n)) for n in range(5)], batch_size=5)
    plan = queue.pick([1, 2, 99], Complete(), show_progress=False)
    ends: list[PlanEnd] = []
    ticks: list[float] = []
    work = PlanRun(
        plan, table=table, ticked=lambda work: ticks.append(work.running.done), ended=ends.append, limits=Limits()
    )
    work.thread.join(60)
    assert ticks
    (ended,) = ends
    return ended


def test_plan_run_marks_rows_and_removes_settled_ones(namespace: Namespace) -> None:
    table = RecordedTable()
    ended = carried_out(namespace, "outcomes", table)
    assert (ended.report.settled, ended.problem, ended.table_problem) == (2, None, None)
    assert table.patched == {
        ("outcomes", 1): {"outcome": "settled"},
        ("outcomes", 2): {"outcome": "settled"},
        ("outcomes", 99): {
            "outcome": "not found: It is not there any more: it was settled, or it has expired.",
        },
    }
    assert table.gone == [("outcomes", 1), ("outcomes", 2)]


def test_a_table_that_fails_does_not_hide_how_it_ended(namespace: Namespace) -> None:
    ended = carried_out(namespace, "closed-table", RecordedTable(is_closed=True))
    assert ended.report.settled == 2
    assert "It is closed." in (ended.table_problem or "")


def test_speed_measures_the_last_seconds() -> None:
    speed = Speed()
    speed.note(0.0, 0)
    speed.note(0.5, 100)
    assert (speed.a_second, speed.seconds_for(10)) == (None, None)
    for second in range(1, 20):
        speed.note(float(second), 100 + 10 * second)
    assert (speed.a_second, speed.seconds_for(20)) == (10.0, 2.0)
    speed.forget()
    assert speed.a_second is None
    speed.note(30.0, 300)
    speed.note(32.0, 300)
    assert (speed.a_second, speed.seconds_for(10)) == (0.0, None)
