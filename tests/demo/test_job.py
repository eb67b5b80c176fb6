from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.demo.flights import flight_messages, load_flights
from sbnotebook.model import Message, OutcomeStatus, Report
from sbnotebook.settlement import Connection, Journal
from tests.kills import NOWHERE, Emulator, Ledger

QUEUE = "flights"
COUNT = 1_000


def open_namespace(emulator: Emulator, tmp_path: Path) -> Namespace:
    return Namespace(
        Target(Connection(emulator.connection_string), "a test"), journal=Journal(tmp_path / "journal.sqlite")
    )


def test_a_killed_emulator_loses_no_flight_that_was_confirmed(tmp_path: Path) -> None:
    ledger = Ledger()

    def messages() -> Iterator[Message]:
        for number, message in enumerate(flight_messages(load_flights(COUNT))):
            if number == COUNT * 2 // 3:
                emulator.kill()
            ledger.enter(message.message_id or "")
            ledger.begin([message.message_id or ""], QUEUE)
            yield message

    with Emulator(tmp_path / "emulator", {QUEUE: {}}) as emulator:
        namespace = open_namespace(emulator, tmp_path)
        report: Report = namespace.entity(QUEUE).send(messages(), max_in_flight=10, batch_size=20)
        namespace.close()
    assert report.counts.keys() > {OutcomeStatus.SETTLED}, "the emulator died too late to test anything"
    ledger.confirm((outcome.message_id or "" for outcome in report if outcome.ok), QUEUE)
    refused = [outcome.message_id or "" for outcome in report if outcome.status is OutcomeStatus.FAILED]
    ledger.confirm(refused, NOWHERE)
    assert ledger.at(QUEUE)
    with emulator, open_namespace(emulator, tmp_path) as namespace:
        ledger.count({QUEUE: [message.message_id or "" for message in namespace.entity(QUEUE).peek()]})


def test_the_demo_accounts_for_every_message(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from sbnotebook.cli import main; main()",
        "demo",
        "--messages",
        "1500",
        "--data-dir",
        str(tmp_path / "d"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert ended.returncode == 0, ended.stdout[-3_000:] + ended.stderr[-3_000:]
    assert "Nothing is lost and nothing is doubled." in ended.stdout
    assert "SAS_KEY_VALUE" not in ended.stdout + ended.stderr
