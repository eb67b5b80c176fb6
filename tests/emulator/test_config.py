from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sbnotebook.emulator import QueueOptions
from sbnotebook.emulator.config import read_config
from sbnotebook.errors import ConfigurationError

# As Microsoft's emulator is delivered with, without its topics.
DOCUMENT: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT2M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    },
                    {"Name": "plain"},
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(document))
    return path


def test_queues_are_read(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, DOCUMENT)) == {"queue.1": QueueOptions(120_000, 3), "plain": QueueOptions()}


@pytest.mark.parametrize(
    ("namespace", "match"),
    [
        ({"Topics": [{"Name": "t"}]}, "topics"),
        ({"Queues": [{"Name": "q", "Properties": {"RequiresSession": True}}]}, "RequiresSession"),
        ({"Queues": [{"Name": "q", "Properties": {"ForwardTo": "x"}}]}, "ForwardTo"),
        ({"Queues": [{"Name": "q", "Properties": {"LockDuration": "1 minute"}}]}, "is not a duration"),
        ({"Queues": [{"Name": "q", "Properties": {"MaxDeliveryCount": "3"}}]}, "MaxDeliveryCount"),
        ({"Queues": {}}, None),
        ({"Queues": "x"}, "Queues must be a list"),
        ({"Queues": ["x"]}, "must be an object"),
        ("x", "must be an object"),
    ],
)
def test_what_it_does_not_have_is_refused_with_its_name(tmp_path: Path, namespace: object, match: str | None) -> None:
    path = written(tmp_path, {"UserConfig": {"Namespaces": [namespace]}})
    if match is None:
        assert read_config(path) == {}
        return
    with pytest.raises(ConfigurationError, match=match):
        read_config(path)


def test_a_file_that_is_not_there_or_no_json_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read"):
        read_config(tmp_path / "missing")
    (tmp_path / "broken").write_text("{")
    with pytest.raises(ConfigurationError, match=r"cannot be read"):
        read_config(tmp_path / "broken")
