"""What the triage asks before it acts: one form for each thing that can be done with the selected messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import ipywidgets as widgets

from sbnotebook.client import Entity, Plan
from sbnotebook.client.coercions import duration
from sbnotebook.client.messages import Messages
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, DeadLetter, Decision, Defer, EntityAddress, SubQueue
from sbnotebook.settlement.locking.ahead import DEFAULT_MAX_HELD
from sbnotebook.settlement.plan import Edit
from sbnotebook.settlement.terms import DEFAULT_MAX_IN_FLIGHT
from sbnotebook.widgets.forms.edit_form import EditForm
from sbnotebook.widgets.forms.resubmit_form import ResubmitForm, ResubmitOptions
from sbnotebook.widgets.panel import row

__all__ = [
    "Action",
    "Form",
    "PlanForm",
    "Proposal",
    "TaskForm",
    "complete_form",
    "dead_letter_form",
    "defer_form",
    "edit_form",
    "export_form",
    "resubmit_form",
    "select_form",
]

_DESCRIPTION: Final = {"description_width": "120px"}
_WIDE: Final = "560px"
_KEPT: Final = "They are kept in the archive on this machine first, so that this can be undone."
_LOST: Final = "There is no archive, so nobody can have them back."


@dataclass(frozen=True, slots=True)
class Proposal:
    """What makes a plan, and how fast that is to be carried out.

    Args:
        make: makes it for the selected messages; this may take a while.
        max_in_flight: transfers or settlements that wait for their answer at once.
        rate: messages a second at most, None for no limit.
    """

    make: Callable[[Messages], Plan]
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """What is asked before something is done with messages.

    Args:
        title: what will be done.
        words: what that means for the messages.
        fields: what is asked for.
    """

    title: str
    words: str
    fields: tuple[widgets.Widget, ...]


@dataclass(frozen=True, slots=True)
class PlanForm(Form):
    """A form for something that needs a plan.

    Args:
        read: takes what was written in the fields; raises an error of ours where it cannot be.
    """

    read: Callable[[], Proposal] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TaskForm(Form):
    """A form for something that changes nothing in the namespace, and is done at once.

    Args:
        read: takes what was written in the fields, as for a plan; what it gives does it, and says what was done.
        submit: the button that goes on.
        on_all: whether it is about all messages, and not only the selected ones.
    """

    read: Callable[[], Callable[[Messages], str]] = field(repr=False)
    submit: str
    on_all: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done with messages.

    Args:
        name: what is on its button.
        tooltip: what a click does, in a sentence.
        form: makes the form that asks how.
        icon: a name of Font Awesome's.
        kind: of button.
    """

    name: str
    tooltip: str
    form: Callable[[], PlanForm | TaskForm]
    icon: str = ""
    kind: str = ""


def complete_form(entity: Entity, *, is_archived: bool) -> PlanForm:
    """Removes the selected messages from where they stand.

    Args:
        entity: where they stand.
        is_archived: whether they are kept before.
    """
    held = _held()

    def read() -> Proposal:
        return _picking(entity, Complete(), held.value)

    words = "The messages are done with: they are removed from here, and nothing is sent."
    return PlanForm("Complete", f"{words} {_KEPT if is_archived else _LOST}", (held,), read)


def resubmit_form(entity: Entity) -> PlanForm:
    """Sends the selected messages again.

    Args:
        entity: where they stand.
    """
    options = ResubmitForm(entity.address)

    def read() -> Proposal:
        return _resubmitting(entity, options.read())

    return PlanForm("Resubmit", _resubmit_words(entity.address), (options,), read)


def edit_form(entity: Entity, selected: Callable[[], Messages]) -> PlanForm:
    """Changes the selected messages, and sends them again.

    Args:
        entity: where they stand.
        selected: gives them, to show what changes.
    """
    changes, options = EditForm(selected), ResubmitForm(entity.address)
    changes.add_step()

    def read() -> Proposal:
        edit = changes.edit
        if edit is None:
            raise DecisionError("Nothing is changed: add a change, or choose Resubmit to send them as they are.")
        return _resubmitting(entity, options.read(), edit)

    return PlanForm("Edit and resubmit", _resubmit_words(entity.address), (changes, options), read)


def dead_letter_form(entity: Entity) -> PlanForm:
    """Moves the selected messages to the dead-letter queue, where there is one.

    Args:
        entity: where they stand, no sub-queue.
    """
    reason = _text("Reason", "short, and the same for the same cause")
    description = _text("Description", "what happened to these messages")
    held = _held()

    def read() -> Proposal:
        if not reason.value.strip():
            raise DecisionError("Give a reason: dead letters are found and grouped by it.")
        return _picking(entity, DeadLetter(reason.value.strip(), description.value.strip() or None), held.value)

    letters = EntityAddress(entity.address.name, entity.address.subscription, SubQueue.DEAD_LETTER)
    words = f"The messages move to {letters}, with a reason."
    return PlanForm("Dead-letter", words, (reason, description, held), read)


def defer_form(entity: Entity) -> PlanForm:
    """Sets the selected messages aside.

    Args:
        entity: where they stand.
    """
    after = _text("Wake up after", "such as 2h; empty for no wake-up message")
    to = _text("Wake-up goes to", "a queue")
    held = _held()
    # A sub-queue cannot be sent to, and of a topic all subscriptions would get the wake-up.
    is_sent_to = entity.address == entity.address.sends_to

    def read() -> Proposal:
        wake_after = duration(after.value.strip()) if after.value.strip() else None
        wake_to = EntityAddress.parse(to.value.strip()) if to.value.strip() else None
        if wake_after is not None and wake_to is None and not is_sent_to:
            raise DecisionError(f"Name a queue for the wake-up message: it cannot be sent to {entity.address} itself.")
        return _picking(entity, Defer(wake_after, wake_to), held.value)

    words = (
        "The messages stay here, and nobody receives them but by their sequence numbers, which the journal keeps. A "
        "wake-up message, if you want one, tells these numbers to its receiver when the time has come."
    )
    return PlanForm("Defer", words, (after, to, held), read)


def export_form(entity: Entity) -> TaskForm:
    """Writes the selected messages to a file.

    Args:
        entity: where they stand.
    """
    name = str(entity.address).replace("/$", "-").replace("/", "-")
    path = _text("File", "a path that ends with .parquet, .jsonl or .csv", f"{name}.parquet")
    overwrite = widgets.Checkbox(description="replace it if it exists", indent=False)

    def read() -> Callable[[Messages], str]:
        place, is_replaced = path.value.strip(), overwrite.value

        def export(messages: Messages) -> str:
            written = messages.export(place, overwrite=is_replaced).resolve()
            count = len(messages)
            return f"{count:,} {'message is' if count == 1 else 'messages are'} in {written}, which only you can read."

        return export

    words = (
        "A copy in a file; the messages stay where they are. Parquet and JSON lines keep everything, types included; "
        "CSV is for a spreadsheet."
    )
    return TaskForm("Export", words, (row(path, overwrite),), read, "Write the file")


def select_form(select: Callable[[Messages], object]) -> TaskForm:
    """Selects messages by an expression.

    Args:
        select: is given those for which it is true.
    """
    where = _text("Where", "subject = 'order' and body_json->>'$.carrier' = 'UA'")

    def read() -> Callable[[Messages], str]:
        expression = where.value.strip()
        if not expression:
            raise DecisionError("Write an expression, such as delivery_count > 3.")

        def choose(messages: Messages) -> str:
            found = messages.where(expression)
            select(found)
            return f"The expression is true for {len(found):,} of {len(messages):,} messages, which are selected now."

        return choose

    words = "A SQL expression over the message columns; body_json reaches into bodies that are JSON."
    return TaskForm("Select by an expression", words, (where,), read, "Select", on_all=True)


def _resubmit_words(address: EntityAddress) -> str:
    words = "A copy of each message is sent; when it is confirmed to have arrived, the original is removed from here."
    if address.sub_queue is None:
        return (
            f"{words} Where an entity requires sessions, messages cannot be resubmitted before they are dead-lettered."
        )
    return f"{words} Copies go back to {address.sends_to}, or to the queue or topic that you name."


def _resubmitting(entity: Entity, options: ResubmitOptions, edit: Edit | None = None) -> Proposal:
    limits = options.limits
    return Proposal(lambda messages: options.plan(entity, messages, edit), limits.max_in_flight, limits.rate)


def _picking(entity: Entity, decision: Decision, max_held: int) -> Proposal:
    return Proposal(lambda messages: entity.pick(messages, decision, show_progress=False, max_held=max_held))


def _held() -> widgets.BoundedIntText:
    """How many messages may be locked on the way to the selected ones."""
    return widgets.BoundedIntText(
        DEFAULT_MAX_HELD,
        min=1,
        max=10_000_000,
        description="Lock at most",
        tooltip="What stands before the selected messages is locked for a while and given back as it was: at most so "
        "many messages, each of which takes about a kilobyte here.",
        style=_DESCRIPTION,
        layout=widgets.Layout(width="260px"),
    )


def _text(name: str, placeholder: str, value: str = "") -> widgets.Text:
    return widgets.Text(
        value, description=name, placeholder=placeholder, style=_DESCRIPTION, layout=widgets.Layout(width=_WIDE)
    )
