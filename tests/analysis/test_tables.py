from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.analysis.tables import (
    html_table,
    messages_table,
    preview_html,
    preview_text,
    printable,
    report_html,
    report_text,
    text_table,
)
from sbnotebook.model import EntityAddress, Message, MessageState, Outcome, OutcomeStatus, PeekedMessage, Report
from sbnotebook.model.edits import EditChange
from sbnotebook.settlement import Preview
from sbnotebook.testing.strategies import peeked_messages

ORDERS = EntityAddress("orders")


def messages_text(messages: Sequence[Message], where_from: str = "") -> str:
    return text_table(*messages_table(messages, 20, where_from), one_line=True)


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></tr></table><iframe src=//x>",
    "&lt;b&gt; & <b>",
    "{{7*7}} ${7*7} %(x)s [red]markup[/red]",
    "\x1b[2J\x1b]0;title\x07\x00\x08",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "one\ntwo\tthree",
    "x" * 1_000_000,
]


class Page(HTMLParser):
    """What a browser would make of a text: its tags with their attributes, and the texts of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr" and not attrs:  # where a long name of a column may be broken; it has no end
            return
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.open.append(tag)
        if tag in ("td", "th", "caption"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th", "caption"):
            self.cells[-1] += data


TABLE = {
    ("table", ("class",)),
    ("thead", ()),
    ("tbody", ()),
    ("tr", ()),
    *((tag, ("style",)) for tag in ("caption", "th", "td")),
}


def messages_html(messages: Sequence[Message], where_from: str = "", max_rows: int = 50) -> str:
    return html_table(*messages_table(messages, max_rows, where_from))


def peeked(number: int = 1, **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=ORDERS, sequence_number=number, **fields)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_cells_are_text_and_nothing_else(text: str) -> None:
    page = Page(html_table(["a", text[:40]], [[text, 1], [None, text]], text[:40]))
    assert set(page.tags) == TABLE
    assert page.open == []
    shown = printable(text[:120], keep="\n\t")
    assert [cell.split("… (")[0] for cell in page.cells[3:]] == [shown, "1", "", shown]


@given(st.lists(st.lists(st.text(max_size=200), min_size=2, max_size=2), max_size=4))
def test_any_cell_is_text_and_nothing_else(rows: list[list[str]]) -> None:
    page = Page(html_table(["a", "b"], rows))
    assert set(page.tags) <= TABLE
    assert len(page.cells) == 2 + 2 * len(rows)


@given(st.lists(peeked_messages(), max_size=3))
def test_any_message_is_shown_as_text(messages: list[PeekedMessage]) -> None:
    page = Page(messages_html(messages, "orders"))
    assert set(page.tags) <= TABLE
    assert page.cells[0].startswith(f"orders: {len(messages)} message")
    assert not [line for line in messages_text(messages, "orders").splitlines() if not line.isprintable()]


def test_text_tables_fold_long_cells_and_keep_short_ones_whole() -> None:
    short = "2026-11-01 00:00:00Z"
    lines = text_table(["same", "same", "long"], [[short, "日本", "word " * 23], ["", "", "x" * 120]]).splitlines()
    assert sum(short in line for line in lines) == 1
    assert {len(line) + len(set(line) & set("日本")) for line in lines} == {len(lines[0])}  # each is two wide
    assert len(lines[0]) <= 140
    assert len(lines) == 4 + 2 + 2
    one_line = text_table(["a", "long"], [[short, "word " * 23], [short, "x" * 120]], one_line=True).splitlines()
    assert len(one_line) == 6
    assert len(one_line[0]) <= 140
    wide = text_table(["a", "long"], [[short, "日本" * 60], [short, "word " * 30]], one_line=True).splitlines()
    assert len(wide) == 6, "a line of characters that are two wide is longer, and stays one"


def test_long_values_are_cut_and_say_so() -> None:
    assert "x" * 120 + "… (1,000,000 characters)" in html_table(["a"], [["x" * 1_000_000]])
    assert "x" * 121 not in html_table(["a"], [["x" * 1_000_000]])
    assert Page(html_table(["a"], [["x" * 120]])).cells[1] == "x" * 120


def test_values_are_shown_as_people_read_them() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    cells = Page(html_table(["a"], [[moment], [OutcomeStatus.LOCK_LOST], [0], [False], [ORDERS.dead_letter]])).cells
    assert cells[1:] == ["2024-01-02 03:04:05Z", "lock lost", "0", "False", "orders/$dlq"]


def test_escaped_letters_in_json_bodies_are_readable() -> None:
    escaped = [peeked(1, body=rb'{"name": "Jos\u00e9"}', subject=r"Jos\u00e9")]
    for shown in (messages_html(escaped), messages_text(escaped)):
        assert "José" in shown
        assert r"Jos\u00e9" in shown
        assert shown.count("Jos") == 2


def test_table_may_be_empty() -> None:
    assert Page(html_table([], [])).cells == []
    assert Page(messages_html([])).cells == ["0 messages"]
    assert messages_text([]) == "0 messages"


def columns_of(page: str, messages: Sequence[Message]) -> list[str]:
    return Page(page).cells[1 : 1 + (len(Page(page).cells) - 1) // (len(messages) + 1)]


def test_only_columns_that_say_something_are_shown() -> None:
    messages = [peeked(1, body=b"a"), peeked(2, subject="s")]
    assert columns_of(messages_html(messages), messages) == ["sequence_number", "subject", "body_text"]
    messages.append(peeked(3, delivery_count=1, state=MessageState.DEFERRED))
    assert {"delivery_count", "state"} <= set(columns_of(messages_html(messages), messages))
    sent = [Message(subject="s")]
    assert columns_of(messages_html(sent), sent) == ["subject"]


def test_only_the_first_messages_are_shown() -> None:
    messages = [peeked(number) for number in range(1_000)]
    page = Page(messages_html(messages, "orders"))
    assert page.cells[0] == "orders: 1,000 messages, the first 50 shown"
    assert len([tag for tag, _ in page.tags if tag == "tr"]) == 51
    assert "1,000 messages, the first 20 shown" in messages_text(messages)
    assert Page(messages_html(messages[:1], max_rows=1)).cells[0] == "1 message"


def test_table_of_large_messages_is_small() -> None:
    messages = [peeked(number, body=b"<" * 262_144, subject="&" * 10_000) for number in range(50)]
    assert len(messages_html(messages)) < 100_000
    assert len(messages_text(messages)) < 100_000


PREVIEW = Preview(
    "resubmit 2 messages of <orders>.",
    (peeked(7, subject="<b>"),),
    (
        EditChange(7, "body.<i>", "a" * 500 + "old" + "b" * 500, "a" * 500 + "new" + "b" * 500),
        EditChange(7, "to", "", "\x1b[0m"),
    ),
)


def test_preview_is_shown_as_text() -> None:
    text = preview_html(PREVIEW)
    page = Page(text)
    assert set(page.tags) == TABLE | {("p", ("class",)), ("strong", ())}
    assert "<strong>Plan: resubmit 2 messages of &lt;orders&gt;.</strong>" in text
    assert {"<b>", "body.<i>", "·[0m", "The first messages", "What changes in them"} <= set(page.cells)
    assert preview_text(PREVIEW).replace("\n", "").isprintable()
    assert "Plan: resubmit 2 messages of <orders>." in preview_text(PREVIEW)


def test_change_in_a_long_value_is_visible() -> None:
    cells = Page(preview_html(PREVIEW)).cells
    assert f"…{'a' * 24}old{'b' * 24}…" in cells
    assert f"…{'a' * 24}new{'b' * 24}…" in cells


@given(st.text(max_size=300), st.text(max_size=300))
@example("a", "aa")
@example("same", "same")
def test_any_change_is_shown(before: str, after: str) -> None:
    page = Page(preview_html(Preview("a plan.", (), (EditChange(1, "f", before, after),))))
    assert set(page.tags) <= TABLE | {("p", ("class",)), ("strong", ())}
    assert len(page.cells) == 1 + 4 + 4


def outcome(status: OutcomeStatus, number: int, **fields: Any) -> Outcome:
    return Outcome(status, "complete", ORDERS, number, **fields)


def test_report_names_unsettled_messages() -> None:
    report = Report([
        outcome(OutcomeStatus.SETTLED, 1),
        outcome(OutcomeStatus.LOCK_LOST, 2, message_id="<m>", description="<script>\x1b[0m"),
    ])  # fmt: skip
    page = Page(report_html(report))
    assert set(page.tags) == TABLE | {("p", ("class",))}
    assert page.cells[0] == "Not settled: 1 of 2"
    assert page.cells[5:] == ["2", "<m>", "lock lost", "<script>·[0m"]
    assert report_html(report).partition("</p>")[0].endswith(">Completed 1 of 2 messages: 1 lock lost")
    assert report_text(report).startswith("Completed 1 of 2 messages: 1 lock lost\n")
    assert report_text(report).replace("\n", "").isprintable()


def test_report_of_successes_is_one_line() -> None:
    report = Report([outcome(OutcomeStatus.SETTLED, 1)])
    assert report_text(report) == "Completed 1 message"
    assert report_html(report) == '<p class="mathjax_ignore tex2jax_ignore">Completed 1 message</p>'


def test_report_of_a_long_run_shows_its_speed() -> None:
    report = Report(outcome(OutcomeStatus.SETTLED, number) for number in range(500)).timed(4.0, 40)
    shown = "Completed 500 messages (in 4s, 125 messages a second, at most 40 in flight)"
    assert report_text(report) == shown
    assert shown in report_html(report)


def test_report_shows_the_first_failures_only() -> None:
    report = Report(outcome(OutcomeStatus.FAILED, number) for number in range(1_000))
    assert Page(report_html(report)).cells[0] == "Not settled: 1,000 of 1,000, the first 20 shown"
    assert len(re.findall("<tr>", report_html(report))) == 21


@given(st.text())
def test_printable_keeps_printable_characters(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) == len(text)
    assert printable(text, keep=text) == text
    assert printable(shown) == shown


def test_messages_that_were_skipped_for_one_reason_are_a_sentence() -> None:
    why = "It was interrupted before the message was sent."
    skipped = [Outcome(OutcomeStatus.SKIPPED, "purge", ORDERS, number, description=why) for number in range(1, 1_001)]
    lost = Outcome(OutcomeStatus.LOCK_LOST, "purge", ORDERS, 4711)
    for shown in (report_text(Report([*skipped, lost])), report_html(Report([*skipped, lost]))):
        assert f"1,000 skipped: {why} Run it again to continue." in shown
        assert "4711" in shown
        assert ">17<" not in shown
        assert " 17 " not in shown
    assert "Run it again" not in report_text(Report([*skipped[:3], lost]))


@pytest.mark.parametrize(
    ("verb", "entity", "advice"),
    [
        ("send", "orders", " Running it again sends the settled ones again."),
        ("schedule", "orders", " Running it again sends the settled ones again."),
        ("complete", "orders", " Run it again to continue."),
        ("resubmit", "orders/$dlq", " Run it again to continue."),
        ("resubmit", "orders", ""),
        ("abandon", "orders", ""),
    ],
)
def test_advice_never_repeats_what_was_done(verb: str, entity: str, advice: str) -> None:
    why = "It was interrupted before."
    outcome = Outcome(OutcomeStatus.SKIPPED, verb, EntityAddress.parse(entity), 1, description=why)
    assert report_text(Report([outcome] * 4)).endswith(f"4 skipped: {why}{advice}")


def test_long_names_may_be_broken_between_their_words() -> None:
    name = "System.InvalidOperationException"
    shown = html_table(["cause"], [[f"{name}: it is <n> & PayPal has no/price"]])
    assert "System.<wbr>Invalid<wbr>Operation<wbr>Exception: it is &lt;n&gt; &amp; PayPal has no/price" in shown
    assert Page(shown).cells[1].startswith(name)
