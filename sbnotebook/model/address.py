"""Addresses of queues, topics, subscriptions and their sub-queues."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from sbnotebook.errors import InvalidEntityAddressError, near_match

# Service Bus takes letters, numbers, periods, hyphens and underscores at every place of a segment, and in some cases
# tildes (MassTransit issues 1267, 1929 and 4778). A segment of periods alone would be lost from a URL.
_SEGMENT: Final = r"(?!\.+(?:/|\Z))[\w.~-][\w.~$-]*"
_NAME: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_SUBSCRIPTION: Final = re.compile(_SEGMENT)
# A subscription of a topic, or a sub-queue.
_OTHER: Final = re.compile(
    r".*/subscriptions/[^/]*|(?:.*/)?\$(?:dlq|transfer|deadletterqueue)", re.IGNORECASE | re.DOTALL
)
_MAX_NAME: Final = 260
_MAX_SUBSCRIPTION: Final = 50
_HINT: Final = "Write QUEUE, TOPIC or TOPIC/subscriptions/NAME, with /$dlq or /$transfer behind it for a sub-queue"


class SubQueue(Enum):
    """A queue that the service keeps for an entity.

    ``short`` is its name as users type it after the entity's name, and ``path`` follows the entity's path on the wire.

    Source: Service Bus documentation, "Overview of dead-letter queues", "Path to the dead-letter queue".
    """

    DEAD_LETTER = ("$dlq", "$DeadLetterQueue")
    TRANSFER_DEAD_LETTER = ("$transfer", "$Transfer/$DeadLetterQueue")

    def __init__(self, short: str, path: str) -> None:
        self.short, self.path = short, path


_SUB_QUEUES: Final = {
    spelling.lower(): sub_queue for sub_queue in SubQueue for spelling in (sub_queue.short, sub_queue.path)
}


@dataclass(frozen=True, slots=True)
class EntityAddress:
    """A parsed entity path; two that differ only in upper and lower case are equal, as in Service Bus.

    Args:
        name: the queue's or topic's name.
        subscription: the subscription's name, for a subscription of the topic ``name``.
        sub_queue: which sub-queue is meant, None for the entity itself.

    Example:
        >>> address = EntityAddress.parse("orders/$dlq")
        >>> address.name, address.path
        ('orders', 'orders/$DeadLetterQueue')
        >>> address == EntityAddress.parse("Orders/$DeadLetterQueue")
        True
    """

    name: str
    subscription: str | None = None
    sub_queue: SubQueue | None = None

    def __post_init__(self) -> None:
        # A name that the service lists is taken as it is; what users type is checked by ``parse``.
        if not self.name or self.subscription == "" or _OTHER.fullmatch(self.name):
            raise InvalidEntityAddressError(f"{self.name[:80]!r} is not the name of a queue or topic. {_HINT}.")

    @classmethod
    def parse(cls, text: str | EntityAddress) -> EntityAddress:
        """Read an address as users type it or as the service writes it.

        Args:
            text: such as ``orders``, ``orders/$dlq``, ``events/subscriptions/audit/$DeadLetterQueue``; an
                address is returned as it is.

        Raises:
            InvalidEntityAddressError: the text is none of these.

        Sources: Azure Resource Manager documentation, "Naming rules and restrictions", Microsoft.ServiceBus; what the
        service says of other characters (Nimbus issue 10, azure-service-bus-dotnet issue 151).
        """
        if isinstance(text, EntityAddress):
            return text
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidEntityAddressError(f"An address is a text such as orders/$dlq, not {type(text).__name__}.")
        address = text.strip()
        if address.endswith("/"):  # taken as orders, it would open the live queue
            raise InvalidEntityAddressError(
                f"{address[:80]!r} ends with a slash: a shell cuts $dlq off unless you put the address into single "
                f"quotes, such as 'orders/$dlq'. {_HINT}."
            )
        path, sub_queue = _cut_sub_queue(address.strip("/"))
        parts = path.split("/")
        name, subscription = path, None
        if parts[2:] and parts[-2].lower() == "subscriptions":
            name, subscription = "/".join(parts[:-2]), parts[-1]
        if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
            raise InvalidEntityAddressError(f"{name[:80]!r} is not the name of a queue or topic. {_HINT}.")
        if subscription is not None and (
            not _SUBSCRIPTION.fullmatch(subscription) or len(subscription) > _MAX_SUBSCRIPTION
        ):
            raise InvalidEntityAddressError(f"{subscription[:80]!r} is not the name of a subscription. {_HINT}.")
        return cls(name, subscription, sub_queue)

    @property
    def path(self) -> str:
        """Return the canonical path, which names links and management nodes on the wire."""
        return self._joined("Subscriptions", self.sub_queue.path if self.sub_queue else None)

    @property
    def entity(self) -> EntityAddress:
        """Return the address of the entity itself, without the sub-queue."""
        return replace(self, sub_queue=None)

    @property
    def dead_letter(self) -> EntityAddress:
        """Return the address of the entity's dead-letter queue."""
        return replace(self, sub_queue=SubQueue.DEAD_LETTER)

    @property
    def sends_to(self) -> EntityAddress:
        """Return the address to which a message of this place is sent again: the queue, or the topic."""
        return EntityAddress(self.name)

    def __str__(self) -> str:
        return self._joined("subscriptions", self.sub_queue.short if self.sub_queue else None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EntityAddress):
            return False
        is_same = self.name == other.name and self.subscription == other.subscription
        return (is_same and self.sub_queue is other.sub_queue) or self.path.casefold() == other.path.casefold()

    def __hash__(self) -> int:
        return hash(self.path.casefold())

    def _joined(self, word: str, sub_queue: str | None) -> str:
        subscription = f"/{word}/{self.subscription}" if self.subscription else ""
        end = f"/{sub_queue}" if sub_queue else ""
        return f"{self.name}{subscription}{end}"


def _cut_sub_queue(path: str) -> tuple[str, SubQueue | None]:
    name, dollar, rest = path.partition("/$")
    if not dollar:
        return path, None
    sub_queue = _SUB_QUEUES.get(f"${rest}".lower())
    if sub_queue is None:
        near = near_match(f"${rest}", _SUB_QUEUES)
        advice = f": did you mean {name[:80]}/{_SUB_QUEUES[near].short}?" if near else f". {_HINT}."
        raise InvalidEntityAddressError(f"{path[:80]!r} names no known sub-queue{advice}")
    return name, sub_queue
