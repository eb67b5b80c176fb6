"""The steps of the demo, from send to resubmit, and the reconciliation: every message exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from sbnotebook.client import Messages, Namespace
from sbnotebook.demo.flights import (
    check_flight,
    flight_messages,
    is_repairable,
    load_flights,
    repair_air_time,
    route_minutes,
)
from sbnotebook.model import PeekedMessage, ReceivedMessage, Report
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Generator

    import pandas as pd
    from rich.console import Console

FLIGHTS: Final = "flights"
DEAD_LETTERS: Final = "flights/$dlq"
SUMMARY: Final = "summary"
IN_FLIGHT: Final = 10


@dataclass(slots=True)
class Reconciliation:
    """A record of the messages that went in, and where each ended.

    Args:
        expected: how many messages were to be sent.
        sent: message ids whose sending was confirmed.
        stored: message id by sequence number, as the queue held them before anything was consumed.
        completed: sequence numbers whose completion was confirmed.
        dead_lettered: by message id, the sequence number in the original queue of each message in the dead-letter queue
            at the end.
        resubmitted: sequence numbers whose clone was confirmed and whose original was completed.
        clones_completed: original message ids of the clones whose completion was confirmed.
        left_over: messages still in the queue at the end.
    """

    expected: int = 0
    sent: list[str] = field(default_factory=list[str])
    stored: dict[int, str] = field(default_factory=dict[int, str])
    stored_count: int = 0
    completed: list[int] = field(default_factory=list[int])
    dead_lettered: list[int] = field(default_factory=list[int])
    resubmitted: list[int] = field(default_factory=list[int])
    clones_completed: list[str] = field(default_factory=list[str])
    left_over: int = 0

    def note_stored(self, messages: Iterable[ReceivedMessage]) -> None:
        """Record the messages that the queue holds after the sending."""
        for message in messages:
            self.stored[message.sequence_number] = message.message_id or ""
            self.stored_count += 1

    def note_completed(self, report: Report) -> None:
        """Record the completions that the service confirmed."""
        self.completed += [o.sequence_number or 0 for o in report if o.ok and o.verb == "complete"]

    def problems(self) -> list[str]:
        """Return what does not add up, in words; nothing when every message is accounted for exactly once."""
        # Every stored message has exactly one end.
        ends = Counter([*self.completed, *self.dead_lettered, *self.resubmitted])
        found = {
            "confirmed sends that the queue did not hold": set(self.sent) - set(self.stored.values()),
            "messages in the queue that the demo did not send": set(self.stored.values()) - set(self.sent),
            "message ids that the queue held twice": _repeated(self.stored.values()),
            "messages that ended nowhere": self.stored.keys() - ends.keys(),
            "messages that ended twice": {number for number, count in ends.items() if count > 1},
            "ends of messages that were never stored": ends.keys() - self.stored.keys(),
            "clones that were not completed": self._resubmitted_ids() - set(self.clones_completed),
            "clones that were completed twice": _repeated(self.clones_completed),
            "completed clones of messages that were not resubmitted": set(self.clones_completed)
            - self._resubmitted_ids(),
        }
        problems = [f"{len(which):,} {what}" for what, which in found.items() if which]
        if len(self.sent) != self.expected:
            problems.append(f"{self.expected - len(self.sent):,} messages whose sending was not confirmed")
        if self.left_over:
            problems.append(f"{self.left_over:,} messages left in the queue")
        if self.stored_count != len(self.stored):
            problems.append(f"{self.stored_count - len(self.stored):,} sequence numbers that occur twice")
        return problems

    def _resubmitted_ids(self) -> set[str]:
        return {self.stored[number] for number in self.resubmitted if number in self.stored}


def _repeated(values: Iterable[str]) -> set[str]:
    return {value for value, count in Counter(values).items() if count > 1}


@dataclass
class DemoJob:
    """The demo on one namespace that holds nothing else.

    Args:
        namespace: where the queues are made.
        console: where the steps are printed.
        messages: how many flights, in time order.
    """

    namespace: Namespace
    console: Console
    messages: int
    books: Reconciliation = field(default_factory=Reconciliation)

    def run(self) -> bool:
        """Run all steps; return False when a message was lost or doubled."""
        for queue in (FLIGHTS, SUMMARY):
            self.namespace.create_queue(queue)
        everything = load_flights()
        flights = everything.head(self.messages)
        self.send(flights)
        self.consume()
        letters = self.triage()
        self.analyse(letters)
        self.repair(letters, route_minutes(everything))
        self.summarise(flights)
        return self.reconcile()

    def send(self, flights: pd.DataFrame) -> None:
        """Send each flight as a message, and show what the queue holds."""
        self._title(f"Send {len(flights):,} flights to {FLIGHTS}, {IN_FLIGHT} transfers in flight")
        queue = self.namespace.entity(FLIGHTS)
        report = queue.send(flight_messages(flights), max_in_flight=IN_FLIGHT)
        self._report(report)
        self.books.expected = len(flights)
        self.books.sent = [outcome.message_id or "" for outcome in report if outcome.ok]
        self.books.note_stored(queue.peek())
        self.console.print(f"The queue holds {len(self.books.stored):,} messages; the first ones:")
        self._print(repr(queue.peek(3)))

    def consume(self) -> None:
        """Let a consumer with a rule settle them."""
        self._title("Consume: complete valid flights, dead-letter the others with a reason")
        report = self.namespace.entity(FLIGHTS).process(check_flight, max_in_flight=IN_FLIGHT)
        self._report(report)
        self.books.note_completed(report)

    def triage(self) -> Messages:
        """Peek the dead-letter queue and group it by cause."""
        self._title(f"Triage: peek {DEAD_LETTERS} and group it by cause")
        letters = self.namespace.entity(DEAD_LETTERS).peek()
        rows = [(group.count, group.reason, group.cause) for group in letters.groups(by=("reason", "description"))]
        self._table(("messages", "reason", "cause"), rows)
        return letters

    def analyse(self, letters: Messages) -> None:
        """Load the dead letters into Spark and find where the causes concentrate."""
        self._title("Analyse in Spark: where do the causes concentrate?")
        if not letters:
            self.console.print("There are no dead letters to analyse.")
            return
        with self._spark_session() as spark:
            frame: Any = self._read(spark, DEAD_LETTERS)
            frame.createOrReplaceTempView("letters")
            found: Any = spark.sql(
                "SELECT dead_letter_reason AS reason, subject AS carrier, application_properties['origin'] AS origin,"
                " count(*) AS messages, round(100 * count(*) / sum(count(*)) OVER (PARTITION BY dead_letter_reason), 1)"
                " AS percent_of_reason FROM letters GROUP BY 1, 2, 3 ORDER BY messages DESC, 1, 2, 3 LIMIT 8"
            )
            self._table(tuple(found.columns), [tuple(row) for row in found.collect()])

    def repair(self, letters: Messages, minutes: dict[tuple[str, str], int]) -> None:
        """Set an estimated air time in the flights that landed, and resubmit them."""
        chosen = [letter for letter in letters if is_repairable(letter, minutes)]
        self._title(f"Repair {len(chosen):,} flights that landed, and resubmit them with {IN_FLIGHT} in flight")
        plan = self.namespace.entity(DEAD_LETTERS).resubmit(
            chosen, to=FLIGHTS, edit=repair_air_time(minutes), max_resubmits=5
        )
        self._print(str(plan.preview(1)))
        # Resubmit, and note the originals that are completed.
        report = plan.apply(max_in_flight=IN_FLIGHT)
        self._report(report)
        own_number = {letter.sequence_number: _first_number(letter) for letter in letters}
        self.books.resubmitted = [own_number[o.sequence_number or 0] for o in report if o.ok]
        # Let the consumer settle the clones.
        clones = {
            message.sequence_number: str(message.application_properties.get(ORIGINAL_MESSAGE_ID))
            for message in self.namespace.entity(FLIGHTS).peek()
        }
        again = self.namespace.entity(FLIGHTS).process(check_flight, max_in_flight=IN_FLIGHT)
        self._report(again)
        done = (o.sequence_number or 0 for o in again if o.ok and o.verb == "complete")
        self.books.clones_completed = [clones.get(number, f"unknown #{number}") for number in done]

    def summarise(self, flights: pd.DataFrame) -> None:
        """Send a summary for each carrier from Spark."""
        self._title(f"Push a summary for each carrier from Spark to {SUMMARY}")
        flown = pa.Table.from_pandas(flights[["carrier", "dep_delay", "air_time"]], preserve_index=False)
        with self._spark_session() as spark:
            spark.createDataFrame(flown).createOrReplaceTempView("flown")
            summary: Any = spark.sql(
                "SELECT carrier AS subject, concat('summary-', carrier) AS message_id, carrier, count(*) AS flights,"
                " count_if(dep_delay IS NULL) AS not_departed, round(avg(dep_delay), 1) AS mean_delay_minutes"
                " FROM flown GROUP BY carrier ORDER BY carrier"
            )
            writer = summary.write.format("servicebus").mode("append").option("entity", SUMMARY)
            writer.option("connectionString", self.namespace.connection_string).save()
        sent = self.namespace.entity(SUMMARY).peek()
        self.console.print(f"{SUMMARY} holds {len(sent)} messages.")
        self._print(sent[0].body_text or "" if sent else "")

    def reconcile(self) -> bool:
        """Read back from the emulator and account for every message."""
        self._title("Reconcile: every message exactly once, by sequence number and message id")
        left = self.namespace.entity(DEAD_LETTERS).peek()
        self.books.dead_lettered = [_first_number(letter) for letter in left]
        self.books.left_over = len(self.namespace.entity(FLIGHTS).peek())
        rows = [
            ("sent and confirmed", len(self.books.sent)),
            ("completed", len(self.books.completed)),
            ("dead-lettered, still there", len(self.books.dead_lettered)),
            ("repaired, resubmitted and completed", len(self.books.clones_completed)),
        ]
        self._table(("what", "messages"), rows)
        problems = self.books.problems()
        for problem in problems:
            self.console.print(Text(f"✗ {problem}", style="bold red"))
        if not problems:
            self.console.print(Text("✓ Nothing is lost and nothing is doubled.", style="bold green"))
        return not problems

    # ---------------------------------------------------------------- printing and Spark

    @contextmanager
    def _spark_session(self) -> Generator[Any]:
        from sbnotebook.spark import session

        with self.console.status("Starting Spark …"):
            spark = session()
        yield spark

    def _read(self, spark: Any, entity: str) -> Any:
        reader = spark.read.format("servicebus").option("entity", entity)
        return reader.option("connectionString", self.namespace.connection_string).load()

    def _title(self, text: str) -> None:
        self.console.rule(Text(text, style="bold"), align="left")

    def _report(self, report: Report) -> None:
        self.console.print(Text(str(report)))
        for failure in report.failures[:3]:
            self.console.print(Text(f"  {failure.status}: {failure.description}", style="red"))

    def _print(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def _table(self, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = Table(*headers)
        for row in rows:
            table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
        self.console.print(table)


def _first_number(letter: PeekedMessage) -> int:
    """Return the number that a dead letter had in the queue to which it was sent."""
    return letter.enqueued_sequence_number or letter.sequence_number
