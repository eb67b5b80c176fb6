"""The sentence about an option that does not exist: its near match, or our name for the option of another source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import SequenceMatcher
from typing import Final

from sbnotebook.errors import near_match

__all__ = ["sentence_about"]

_SHOWN: Final = 40
_SUBSCRIPTION: Final = ", where a subscription is TOPIC/subscriptions/NAME"
_FOREIGN: Final[Mapping[str, tuple[str, ...]]] = {
    # The entity.
    "subscribe": ("entity",),
    "subscribePattern": ("entity",),
    "assign": ("entity",),
    "topic": ("entity",),
    "topicName": ("entity",),
    "queue": ("entity",),
    "queueName": ("entity",),
    "entityPath": ("entity",),
    "table": ("entity",),
    "eventhubs.name": ("entity",),
    "subscription": ("entity",),
    "subscriptionName": ("entity",),
    "consumerGroup": ("entity",),
    "eventhubs.consumerGroup": ("entity",),
    "kafka.group.id": ("entity",),
    "groupIdPrefix": ("entity",),
    # The namespace.
    "namespace": ("fullyQualifiedNamespace",),
    "host": ("fullyQualifiedNamespace",),
    "hostname": ("fullyQualifiedNamespace",),
    "endpoint": ("fullyQualifiedNamespace",),
    "kafka.bootstrap.servers": ("fullyQualifiedNamespace",),
    "connection": ("connectionString",),
    "eventhubs.connectionString": ("connectionString",),
    "servicebus.connectionString": ("connectionString",),
    # Where to begin and to end.
    "startingOffsets": ("fromSequenceNumber",),
    "startingOffset": ("fromSequenceNumber",),
    "startingPosition": ("fromSequenceNumber",),
    "startingPositions": ("fromSequenceNumber",),
    "startingTimestamp": ("fromSequenceNumber",),
    "startingVersion": ("fromSequenceNumber",),
    "initialPosition": ("fromSequenceNumber",),
    "eventhubs.startingPosition": ("fromSequenceNumber",),
    "endingOffsets": ("toSequenceNumber",),
    "endingPosition": ("toSequenceNumber",),
    "endingTimestamp": ("toSequenceNumber",),
    "eventhubs.endingPosition": ("toSequenceNumber",),
    # How much at once.
    "maxOffsetsPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "maxEventsPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "maxRowsPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "maxFilesPerTrigger": ("maxMessagesPerTrigger", "maxMessages"),
    "rowsPerBatch": ("maxMessagesPerTrigger", "maxMessages"),
    "limit": ("maxMessages", "maxMessagesPerTrigger"),
    "minPartitions": ("partitions",),
    "numPartitions": ("partitions",),
    "receiveMode": ("mode",),
    "readMode": ("mode",),
    "concurrency": ("maxInFlight",),
}
"""Options of Kafka, Event Hubs, Kinesis, Delta Lake and of the Service Bus SDKs, with the names of ours, best first."""
_SPELLED: Final = {name.lower(): name for name in _FOREIGN}
_READS_A_SUBSCRIPTION: Final = frozenset(
    ("subscription", "subscriptionName", "consumerGroup", "eventhubs.consumerGroup", "kafka.group.id", "groupIdPrefix")
)


def sentence_about(name: str, here: str, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    """Return a sentence about an option that does not exist here, and about what to use instead.

    Spark hands on the names of options in lower case. The sentence spells them as the user most likely did.

    Args:
        name: of the option, in lower case.
        here: where it was given, such as ``spark.read``.
        known: the options that exist here.
        elsewhere: options by where they exist.

    Example:
        >>> sentence_about("startingoffsets", "spark.read", ["entity", "fromSequenceNumber"], {})
        "There is no option 'startingOffsets' in spark.read; use fromSequenceNumber."
        >>> sentence_about("mode", "spark.read", ["entity"], {"spark.readStream": ["mode"]})
        'mode is an option of spark.readStream, and this is spark.read: use spark.readStream, or leave it out.'
    """
    for place, names in elsewhere.items():
        for each in names:
            if each.lower() == name:
                return f"{each} is an option of {place}, and this is {here}: use {place}, or leave it out."
    if name in _SPELLED:
        return _about_foreign(_SPELLED[name], here, known, elsewhere)
    near = near_match(name, known)
    if near is None:
        return f"There is no option {name[:_SHOWN]!r} in {here}; there are {', '.join(known)}."
    return f"There is no option {_spelled_like(name, near)[:_SHOWN]!r} in {here}; did you mean {near}?"


def _about_foreign(name: str, here: str, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    ours = _FOREIGN[name]
    note = _SUBSCRIPTION if name in _READS_A_SUBSCRIPTION else ""
    if (use := next((each for each in ours if each in known), None)) is not None:
        return f"There is no option {name!r} in {here}; use {use}{note}."
    use = " or ".join(f"{each} of {place}" for place, names in elsewhere.items() for each in ours if each in names)
    return (
        f"There is no option {name!r} in {here}; there is {use}." if use else f"There is no option {name!r} in {here}."
    )


def _spelled_like(name: str, near: str) -> str:
    """Return a lower-case name with the capitals of a similar one.

    Example:
        >>> _spelled_like("maxmesages", "maxMessages")
        'maxMesages'
    """
    spelled = list(name)
    for block in SequenceMatcher(None, name, near.lower(), autojunk=False).get_matching_blocks():
        spelled[block.a : block.a + block.size] = near[block.b : block.b + block.size]
    return "".join(spelled)
