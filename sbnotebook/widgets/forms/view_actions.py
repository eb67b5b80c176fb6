"""What can be done with scheduled and with deferred messages, each by a plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import ipywidgets as widgets

from sbnotebook.client import Entity, Plan
from sbnotebook.client.messages import DeferredMessages, Messages
from sbnotebook.errors import DecisionError
from sbnotebook.widgets.forms.triage_forms import Action, PlanForm, Proposal

__all__ = ["deferred_actions", "scheduled_actions"]


def scheduled_actions(entity: Entity) -> list[Action]:
    """What can be done with messages that become active later.

    Args:
        entity: where they stand.
    """
    words = "The messages never become active: they are removed. Where there is an archive, this can be undone."
    cancel = partial(_form, "Cancel scheduled messages", words, entity.cancel_scheduled)
    return [Action("Cancel…", "Remove them before they become active", cancel, icon="trash")]


def deferred_actions(entity: Entity, deferred: DeferredMessages) -> list[Action]:
    """What can be done with messages that were set aside.

    Args:
        entity: where they stand.
        deferred: all that are deferred there.
    """
    complete = partial(
        _form, "Complete deferred messages", "The messages are done with: they are removed.", deferred.complete
    )
    words = "Clones of the messages are sent to where they stand, and the originals are completed."
    resubmit = partial(_form, "Resubmit deferred messages", words, entity.resubmit)
    actions = [
        Action("Complete…", "Remove them: they are done with", complete, icon="check"),
        Action("Resubmit…", "Send them again, as active messages", resubmit, icon="repeat"),
    ]
    if entity.address.sub_queue is None:
        dead_letter = partial(_dead_letter_form, deferred)
        actions.append(
            Action("Dead-letter…", "Move them to the dead-letter queue, with a reason", dead_letter, icon="ban")
        )
    return actions


def _form(title: str, words: str, make: Callable[[Messages], Plan]) -> PlanForm:
    return PlanForm(title, words, (), lambda: Proposal(make))


def _dead_letter_form(deferred: DeferredMessages) -> PlanForm:
    reason, description = (
        widgets.Text(description=name, style={"description_width": "120px"}, layout={"width": "560px"})
        for name in ("Reason", "Description")
    )

    def read() -> Proposal:
        why, more = reason.value.strip(), description.value.strip() or None
        if not why:
            raise DecisionError("Give a reason: dead letters are found and grouped by it.")
        return Proposal(lambda messages: deferred.dead_letter(messages, reason=why, description=more))

    words = "The messages move to the dead-letter queue, with a reason."
    return PlanForm("Dead-letter deferred messages", words, (reason, description), read)
