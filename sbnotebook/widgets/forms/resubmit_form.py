"""How messages are resubmitted: where to, how much later, how often at most, and how fast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import ipywidgets as widgets

from sbnotebook.client import Entity
from sbnotebook.client.coercions import duration
from sbnotebook.client.plan import Plan
from sbnotebook.model import EntityAddress, ReceivedMessage, Resubmit
from sbnotebook.settlement.plan import Edit, Limits
from sbnotebook.settlement.terms import DEFAULT_MAX_IN_FLIGHT
from sbnotebook.widgets.forms.fields import Field, number, whole_number

__all__ = ["ResubmitForm", "ResubmitOptions"]


@dataclass(frozen=True, slots=True)
class ResubmitOptions:
    """What was chosen.

    Args:
        decision: where to, how much later, and how often at most.
        limits: how fast.
    """

    decision: Resubmit
    limits: Limits

    def plan(self, entity: Entity, messages: Iterable[ReceivedMessage], edit: Edit | None = None) -> Plan:
        """The plan to resubmit messages in this way.

        Args:
            entity: where they stand.
            messages: which ones.
            edit: gives the message to send for each of them, None for the same.
        """
        chosen = self.decision
        return entity.resubmit(
            messages, to=chosen.to, delay=chosen.delay, edit=edit, max_resubmits=chosen.max_resubmits
        )


class ResubmitForm(widgets.VBox):
    """Asks how messages are resubmitted; what cannot be is told at its field.

    Args:
        address: where the messages stand.

    Example:
        >>> form = ResubmitForm(EntityAddress.parse("orders/$dlq"))
        >>> form.delay.box.value = "5m"
        >>> form.read().decision
        Resubmit(to=None, delay=datetime.timedelta(seconds=300), max_resubmits=None, resend_unknown=False)
    """

    def __init__(self, address: EntityAddress) -> None:
        back = address.sends_to
        whom = ", where all of its subscriptions get them" if address.subscription else ""
        self.to = Field("To", _address, placeholder=f"{back}{whom}")
        self.delay = Field("Delay", _delay, placeholder="such as 5m or 2h: they become active that much later")
        self.cap = Field(
            "How often at most", whole_number, placeholder="such as 3: what came back more often is left out"
        )
        self.rate = Field("Rate, a second", number, placeholder="messages a second at most, such as 20")
        self.in_flight = Field(
            "In flight at once",
            whole_number,
            placeholder="transfers that wait for their answer",
            value=str(DEFAULT_MAX_IN_FLIGHT),
        )
        super().__init__([self.to, self.delay, self.cap, self.rate, self.in_flight])

    def read(self) -> ResubmitOptions:
        """What was chosen.

        Raises:
            SbNotebookError: a field has something that cannot be; it says so beside it, too.
        """
        decision = Resubmit(to=self.to.read(), delay=self.delay.read(), max_resubmits=self.cap.read())
        return ResubmitOptions(decision, Limits(self.in_flight.read() or DEFAULT_MAX_IN_FLIGHT, self.rate.read()))


def _address(value: str) -> EntityAddress | None:
    return Resubmit(to=EntityAddress.parse(value)).to if value else None


def _delay(value: str) -> timedelta | None:
    return Resubmit(delay=duration(value)).delay if value else None
