"""A namespace as Config.json, read again by the emulator."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sbnotebook.amqp import Long
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions, TopicOptions, running
from sbnotebook.emulator.entities.rules.rule import (
    FALSE_FILTER,
    TRUE_FILTER,
    Rule,
    SqlAction,
    correlation_filter,
    sql_filter,
)
from sbnotebook.settlement import Connection, Journal


def fill(emulator: RunningEmulator) -> None:
    emulator.create_queue("parked", QueueOptions(default_time_to_live=90_000, max_delivery_count=3))
    emulator.create_queue("orders", QueueOptions(requires_session=True, forward_dead_letters_to="parked"))
    emulator.create_queue("once", QueueOptions(requires_duplicate_detection=True, lock_duration=30_000))
    emulator.create_topic("events", TopicOptions(default_time_to_live=86_400_000 * 2))
    rules = {
        "all": [Rule("$Default", TRUE_FILTER)],
        "none": [Rule("never", FALSE_FILTER)],
        "no-rules": [],
        "sql": [Rule("r", sql_filter("size > 5 AND y = 'it''s'")), Rule("p", sql_filter("size > @n", {"@n": Long(5)}))],
        "changed": [Rule("r", TRUE_FILTER, SqlAction("SET seen = 'yes'"))],
        "correlated": [Rule("r", correlation_filter(subject="order", properties={"region": "eu", "n": Long(3)}))],
    }
    for name, each in rules.items():
        emulator.create_subscription("events", name, SubscriptionOptions(forward_to=""), rules=each)


def config_of(emulator: RunningEmulator, folder: Path) -> tuple[dict[str, Any], list[str]]:
    import warnings

    target = Target(Connection(emulator.connection_string), "a test")
    with (
        Namespace(target, journal=Journal(folder / "journal.sqlite")) as namespace,
        warnings.catch_warnings(record=True) as notes,
    ):
        warnings.simplefilter("always")
        found = namespace.config()
    return found, [str(note.message) for note in notes if note.category is UserWarning]


def test_a_namespace_is_the_same_after_its_config_was_read(tmp_path: Path) -> None:
    with running() as emulator:
        fill(emulator)
        before, notes = config_of(emulator, tmp_path)
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(before))
    with running() as again:
        again.configure(json.loads(file.read_text()))
        after, _ = config_of(again, tmp_path)
    assert json.dumps(after, indent=1, sort_keys=True) == json.dumps(before, indent=1, sort_keys=True)
    text = file.read_text()
    assert "size > 5 AND y = 'it''s'" in text
    left_out = "The rule p of events/subscriptions/sql is left out: Config.json has no place for its parameters."
    assert left_out in " ".join(notes)
    assert "SharedAccess" not in text
    assert [note for note in notes if "1 hour" in note] == [
        "events: messages live for over 1 hour, the most in Microsoft's emulator."
    ]
    (namespace,) = before["UserConfig"]["Namespaces"]
    assert namespace["Name"] == "sbemulatorns"
    (topic,) = namespace["Topics"]
    rules = {each["Name"]: each.get("Rules") for each in topic["Subscriptions"]}
    assert rules["all"] is None
    assert [rule["Properties"]["SqlFilter"]["SqlExpression"] for rule in rules["no-rules"]] == ["1=0"]
    (orders,) = [each for each in namespace["Queues"] if each["Name"] == "orders"]
    assert orders["Properties"]["ForwardDeadLetteredMessagesTo"] == "parked"


def test_limits_of_microsofts_emulator_are_named(tmp_path: Path) -> None:
    with running() as emulator:
        for number in range(51):
            emulator.create_queue(f"q{number}", QueueOptions(max_delivery_count=11 if not number else 10))
        emulator.create_queue("last")
        _, notes = config_of(emulator, tmp_path)
    said = set(re.findall("MaxDeliveryCount|52 queues", " ".join(notes)))
    assert said == {"52 queues", "MaxDeliveryCount"}


def test_the_command_prints_a_config(tmp_path: Path) -> None:
    with running() as emulator:
        emulator.create_queue("orders")
        environment = {"MINE": emulator.connection_string, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        command = [str(Path(sys.executable).with_name("sbnotebook")), "config", "env:MINE"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    (namespace,) = json.loads(done.stdout)["UserConfig"]["Namespaces"]
    assert [queue["Name"] for queue in namespace["Queues"]] == ["orders"]
