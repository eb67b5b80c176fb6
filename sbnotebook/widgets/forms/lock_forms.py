"""What the lock board asks before it settles: one form for each thing that can be done with held messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import ipywidgets as widgets

from sbnotebook.client import Plan
from sbnotebook.client.coercions import duration
from sbnotebook.client.messages import Messages
from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, EntityAddress, Release, SubQueue
from sbnotebook.widgets.forms.triage_forms import Action, PlanForm, Proposal

__all__ = ["Planner", "lock_actions"]

_STYLE: Final = {"description_width": "120px"}

Planner = Callable[[Decision, Messages], Plan]
"""Makes a plan for selected messages of the board."""


def lock_actions(address: EntityAddress, plan: Planner) -> list[Action]:
    """What can be done with messages that are held.

    Args:
        address: where they stand.
        plan: makes a plan of a decision.
    """
    forms = _Forms(address, plan)
    dead_letter = Action(
        "Dead-letter…", "Move them to the dead-letter queue, with a reason", forms.dead_letter, icon="ban"
    )
    return [
        Action("Complete…", "Remove them: they are done with", forms.complete, icon="check"),
        Action("Abandon…", "Give them back to be delivered again, counted", forms.abandon, icon="undo"),
        *([] if address.sub_queue is SubQueue.DEAD_LETTER else [dead_letter]),
        Action("Defer…", "Set them aside, to be received by their numbers only", forms.defer, icon="clock-o"),
        Action("Release…", "Give them back as if they had not been delivered", forms.release, icon="unlock"),
    ]


class _Forms:
    """Makes the forms."""

    def __init__(self, address: EntityAddress, plan: Planner) -> None:
        self._address = address
        self._plan = plan

    def complete(self) -> PlanForm:
        words = "The messages are done with: the service removes them."
        return PlanForm("Complete", words, (), lambda: self._proposal(Complete()))

    def abandon(self) -> PlanForm:
        delay = _text("After", "such as 2m; empty for at once")

        def read() -> Proposal:
            return self._proposal(Abandon(duration(delay.value.strip()) if delay.value.strip() else None))

        words = (
            "The messages are delivered again, with a delivery count one higher: when it is too high, they are "
            "dead-lettered. Until the delay is over they are held here, with their locks renewed."
        )
        return PlanForm("Abandon", words, (delay,), read)

    def dead_letter(self) -> PlanForm:
        reason = _text("Reason", "short, and the same for the same cause")
        description = _text("Description", "what happened to these messages")

        def read() -> Proposal:
            if not reason.value.strip():
                raise DecisionError("Give a reason: dead letters are found and grouped by it.")
            return self._proposal(DeadLetter(reason.value.strip(), description.value.strip() or None))

        letters = EntityAddress(self._address.name, self._address.subscription, SubQueue.DEAD_LETTER)
        return PlanForm("Dead-letter", f"The messages move to {letters}, with a reason.", (reason, description), read)

    def defer(self) -> PlanForm:
        after = _text("Wake up after", "such as 2h; empty for no wake-up message")
        to = _text("Wake-up goes to", "a queue or topic")
        # A sub-queue cannot be sent to, and of a topic all subscriptions would get the wake-up.
        is_sent_to = self._address == self._address.sends_to

        def read() -> Proposal:
            wake_after = duration(after.value.strip()) if after.value.strip() else None
            wake_to = EntityAddress.parse(to.value.strip()) if to.value.strip() else None
            if wake_after is not None and wake_to is None and not is_sent_to:
                raise DecisionError(
                    f"Name a queue for the wake-up message: it cannot be sent to {self._address} itself."
                )
            return self._proposal(Defer(wake_after, wake_to))

        words = (
            "The messages stay in their entity, and nobody receives them but by their sequence numbers, which the "
            "journal keeps. A wake-up message, if you want one, tells these numbers when the time has come."
        )
        return PlanForm("Defer", words, (after, to), read)

    def release(self) -> PlanForm:
        words = "The messages are given back as if they had not been delivered: their delivery count stays."
        return PlanForm("Release", words, (), lambda: self._proposal(Release()))

    def _proposal(self, decision: Decision) -> Proposal:
        return Proposal(lambda messages: self._plan(decision, messages))


def _text(name: str, placeholder: str) -> widgets.Text:
    return widgets.Text(description=name, placeholder=placeholder, style=_STYLE, layout={"width": "560px"})
