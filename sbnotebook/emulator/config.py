"""Microsoft's emulator's ``Config.json``.

Source: Service Bus documentation, "Test locally with the Service Bus emulator", "Config.json".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

from sbnotebook.emulator.entities import QueueOptions
from sbnotebook.emulator.entities.durations import parse_duration
from sbnotebook.errors import ConfigurationError

__all__ = ["read_config"]

_UNSUPPORTED: Final = ("RequiresSession", "RequiresDuplicateDetection", "ForwardTo", "ForwardDeadLetteredMessagesTo")


def read_config(path: Path) -> dict[str, QueueOptions]:
    """Read the queues of all namespaces of a configuration file.

    Expiry is not there yet: ``DefaultMessageTimeToLive`` and what belongs to it are passed over.

    Args:
        path: the file.

    Returns:
        The options by the queue's name.

    Raises:
        ConfigurationError: the file cannot be read, or asks for what the emulator does not have.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The configuration {path} cannot be read: {error}.") from None
    queues: dict[str, QueueOptions] = {}
    for namespace in _items(_object(document, "the file").get("UserConfig"), "Namespaces"):
        if _items(namespace, "Topics"):
            raise ConfigurationError(f"The emulator does not have topics yet: take them out of {path}.")
        for queue in _items(namespace, "Queues"):
            name = str(queue.get("Name", ""))
            queues[name] = _options(name, _object(queue.get("Properties") or {}, f"Properties of {name}"))
    return queues


def _options(name: str, properties: dict[str, Any]) -> QueueOptions:
    asked = [key for key in _UNSUPPORTED if properties.get(key)]
    if asked:
        raise ConfigurationError(f"The emulator does not have {', '.join(asked)} yet: take it out of the queue {name}.")
    known = QueueOptions()
    duration = properties.get("LockDuration")
    count = properties.get("MaxDeliveryCount", known.max_delivery_count)
    if not isinstance(count, int):
        raise ConfigurationError(f"MaxDeliveryCount of the queue {name} must be a number.")
    return QueueOptions(known.lock_duration if duration is None else parse_duration(str(duration)), count)


def _items(parent: Any, key: str) -> list[dict[str, Any]]:
    items: Any = _object(parent or {}, f"what holds {key}").get(key) or []
    if not isinstance(items, list):
        raise ConfigurationError(f"{key} must be a list.")
    return [_object(item, f"an item of {key}") for item in cast("list[Any]", items)]


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"In the configuration, {what} must be an object.")
    return cast("dict[str, Any]", value)
