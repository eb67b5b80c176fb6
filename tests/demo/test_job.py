from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.demo.flights import flight_messages, load_flights
from sbnotebook.model import Message, OutcomeStatus, Report
from sbnotebook.settlement import Connection, Journal


def start_emulator(data_dir: Path, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", str(port), "--data-dir", str(data_dir)]
    process = subprocess.Popen([*command, "--queue", "flights"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def open_namespace(connection_string: str, tmp_path: Path) -> Namespace:
    return Namespace(Target(Connection(connection_string), "a test"), journal=Journal(tmp_path / "journal.sqlite"))


def test_a_killed_emulator_loses_no_flight_that_was_confirmed(tmp_path: Path) -> None:
    flights = load_flights(6_000)
    process, connection_string = start_emulator(tmp_path / "emulator")
    half_way = threading.Event()

    def kill_half_way() -> None:
        half_way.wait()
        os.kill(process.pid, signal.SIGKILL)

    def messages() -> Iterator[Message]:
        for number, message in enumerate(flight_messages(flights)):
            if number == 3_000:
                half_way.set()
            yield message

    killer = threading.Thread(target=kill_half_way)
    killer.start()
    namespace = open_namespace(connection_string, tmp_path)
    report: Report = namespace.entity("flights").send(messages(), max_in_flight=10, batch_size=20)
    killer.join()
    process.communicate()
    namespace.close()

    assert report.counts.keys() > {OutcomeStatus.SETTLED}, "the emulator died too late to test anything"
    process, connection_string = start_emulator(tmp_path / "emulator")
    try:
        with open_namespace(connection_string, tmp_path) as namespace:
            stored = Counter(message.message_id for message in namespace.entity("flights").peek())
    finally:
        process.terminate()
        process.communicate()
    confirmed = {outcome.message_id for outcome in report if outcome.ok}
    refused = {outcome.message_id for outcome in report if outcome.status is OutcomeStatus.FAILED}
    assert confirmed
    assert confirmed <= stored.keys()
    assert not refused & stored.keys(), "what is said not to have been sent must not be there"
    assert set(stored.values()) == {1}


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
