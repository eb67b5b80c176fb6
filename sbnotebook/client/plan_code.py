"""Plans as runnable text, so that clicks in a panel become a runbook: a cell with a magic, or Python.

Texts of a plan may come from messages, which are hostile input. A magic would evaluate ``{…}`` in them, so a magic gets
plain texts only, and Python gets all texts as literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final

from sbnotebook.client.targets import EMULATOR
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    BodyType,
    Complete,
    DeadLetter,
    Defer,
    EntityAddress,
    LockedMessage,
    Message,
    MessageState,
    Resubmit,
    Send,
    Undo,
)
from sbnotebook.model.decision import CancelScheduled, Purge
from sbnotebook.model.durations import duration_text
from sbnotebook.model.schema import SENT_COLUMNS, columns_of, message_from_row
from sbnotebook.settlement import Plan, Ramp

_PLAIN: Final = re.compile(r"(?!-)[\w .,:;/()@#%&+=!?-]{1,200}", re.ASCII)
"""A text that a magic takes as it is, in quotes."""
_LONGEST_CHOICE: Final = 15_000
"""Characters of an expression that chooses messages; an expression of 20,000 is refused."""
_MOST_SENT, _MOST_CHARACTERS = 100, 100_000
"""New messages in code, and their characters."""
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_PICKS: Final = (Complete, DeadLetter, Abandon, Defer)
_VERBS: Final[dict[type, str]] = {
    CancelScheduled: "entity.cancel_scheduled",
    Purge: "entity.purge",
    Resubmit: "entity.resubmit",
    Send: "entity.plan_send",
    Undo: "ns.undo",
}
_FLAGS: Final = {("archived", False): "--no-archive", ("atomic", "forward"): "--atomic-forward"}
_QUOTED: Final = ("where", "reason", "description")
_OTHER: Final = "elsewhere"
"""The variable of the entity in another namespace."""


class _Name(str):
    """A variable of the code."""

    __slots__ = ()
    __repr__ = str.__str__


def cell_of(plan: Plan, sent: Sequence[Message], rate: float | None, ramp: Ramp | None) -> str:
    """Return a plan as a cell with a magic; as Python where no magic says the same."""
    _check(plan, sent)
    words = _magic(plan)
    if words is None:
        return python_of(plan, sent, rate, ramp)
    paced = {} if rate is None else {"rate": f"{rate:g}"}
    before = ["import sbnotebook", *_elsewhere(plan)] if _elsewhere(plan) else []
    return "\n".join([*_remarks(plan), *before, " ".join([*words, *_options(_given_ramp(ramp) | paced)]), ""])


def python_of(
    plan: Plan, sent: Sequence[Message], rate: float | None, ramp: Ramp | None, target: str | None = None
) -> str:
    """Return a plan as Python that makes it again, shows it, and applies it; ``sent`` are the messages of a send."""
    _check(plan, sent)
    made = "\n".join([*_elsewhere(plan), *_messages(plan, sent), f"plan = {_call(plan)}{_ramp_call(ramp)}"])
    lines = [
        *(["import datetime", ""] if "datetime." in made else []),
        "import sbnotebook",
        "",
        *_remarks(plan),
        f"ns = {_connect(target)}",
        *([] if isinstance(plan.decision, Undo) else [f"entity = ns.entity({str(plan.entity)!r})"]),
        made,
        "print(plan.preview())",
        f"report = plan.apply({'' if rate is None else f'rate={rate!r}'})",
        "report.raise_for_failures()",
    ]
    return "\n".join(lines) + "\n"


def _connect(target: str | None) -> str:
    named = [] if target is None else [repr(target)]
    return f"sbnotebook.connect({', '.join([*named, *([] if target == EMULATOR else ['write=True'])])})"


def _check(plan: Plan, sent: Sequence[Message]) -> None:
    decision = plan.decision
    if not isinstance(decision, (*_PICKS, *_VERBS)):
        raise DecisionError(
            f"A plan to {decision.verb} has no code: it is on the locks of this kernel, or decides on each message."
        )
    is_by_age = isinstance(decision, Purge) and decision.before is not None
    if not (plan.messages or sent or is_by_age):
        raise DecisionError("The plan has no messages, so there is no code for it.")
    if len(sent) > _MOST_SENT:
        raise DecisionError(
            f"A plan to send more than {_MOST_SENT} messages has no code: send the frame or the file of the messages."
        )


def _remarks(plan: Plan) -> list[str]:
    said: list[str] = []
    if any(isinstance(message, LockedMessage) for message in plan.messages):
        said += ["# Release the messages first: this plan was made while a kernel held them, and locks them again."]
    if plan.edit is not None:
        said += ["# Define the function edit(message) first: it is not part of the plan."]
    return said


def _elsewhere(plan: Plan) -> list[str]:
    decision = plan.decision
    if not isinstance(decision, Resubmit) or decision.to_host is None:
        return []
    is_local = decision.to_host in _LOCAL or decision.to_host.rpartition(":")[0] in _LOCAL
    there = _connect(EMULATOR if is_local else decision.to_host)
    return [f"{_OTHER} = {there}.entity({str(decision.to or plan.entity.sends_to)!r})"]


# ---------------------------------------------------------------- the messages


def _messages(plan: Plan, sent: Sequence[Message]) -> list[str]:
    if isinstance(plan.decision, Undo):
        return _removed(plan)
    if not sent:
        return [f"messages = {_numbers_in_python(_numbers(plan))}"]
    made = [f"    {_row(message)!r}," for message in sent]
    if sum(map(len, made)) > _MOST_CHARACTERS:
        raise DecisionError("The messages of this plan are too large for code: send the frame or the file of them.")
    return ["messages = [", *made, "]"]


def _row(message: Message) -> dict[str, Any]:
    """Return a row of message columns that is sent as the same message."""
    values = {name: found[0] for name, found in columns_of([message]).items() if name in SENT_COLUMNS}
    row = {name: value for name, value in values.items() if value is not None and value != {}}
    if message.body_type is BodyType.DATA:
        del row["body_type"]
    as_text = {name: value for name, value in row.items() if name != "body"}
    with suppress(ConfigurationError):
        if message_from_row(as_text).body == message.body:
            return as_text
    row.pop("body_text", None)
    return row


def _removed(plan: Plan) -> list[str]:
    ordered = sorted(plan.messages, key=lambda message: (str(message.entity), message.sequence_number))
    places = [
        f"    {entity!r}: {_numbers_in_python([message.sequence_number for message in found])},"
        for entity, found in groupby(ordered, key=lambda message: str(message.entity))
    ]
    outcome = "sbnotebook.Outcome(settled, 'complete', sbnotebook.EntityAddress.parse(entity), number)"
    return [
        "settled = sbnotebook.OutcomeStatus.SETTLED",
        "removed = {",
        *places,
        "}",
        f"messages = [{outcome} for entity, numbers in removed.items() for number in numbers]",
    ]


def _numbers(plan: Plan) -> list[int]:
    return sorted(message.sequence_number for message in plan.messages)


def _ranges(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


def _numbers_in_python(numbers: Sequence[int]) -> str:
    said = [
        f"*range({first}, {last + 1})" if last > first + 1 else ", ".join(map(str, range(first, last + 1)))
        for first, last in _ranges(numbers)
    ]
    return f"[{', '.join(said)}]"


def _expression(plan: Plan) -> str:
    terms = [f"sequence_number between {first} and {last}" for first, last in _ranges(_numbers(plan))]
    text = " or ".join(terms)
    if len(text) > _LONGEST_CHOICE:
        raise DecisionError("The messages of this purge have too many gaps for code: purge by an expression.")
    return text


# ---------------------------------------------------------------- the arguments of verbs and of magics


def _given(plan: Plan) -> dict[str, Any]:
    """Return what the fields of a decision, and the messages of a purge, are as the arguments of its verb."""
    decision = plan.decision
    found = {each.name: (getattr(decision, each.name), each.default) for each in fields(decision)}
    given = {name: _typed(value) for name, (value, default) in found.items() if value != default}
    if given.pop("to_host", None) is not None:
        given["to"] = _Name(_OTHER)
    return {"where": _expression(plan)} if isinstance(decision, Purge) and not given else given


def _typed(value: Any) -> Any:
    match value:
        case EntityAddress():
            return str(value)
        case timedelta():
            return duration_text(value)
        case datetime():
            return value.isoformat()
        case _:
            return value


def _given_ramp(ramp: Ramp | None) -> dict[str, Any]:
    if ramp is None:
        return {}
    given = {"ramp": ",".join(map(str, ramp.batches)), "watch": duration_text(ramp.watch)}
    return given | ({"stop_at": ramp.stop_at} if ramp.stop_at else {})


def _are_deferred(plan: Plan) -> bool:
    return all(message.state is MessageState.DEFERRED for message in plan.messages)


def _magic(plan: Plan) -> list[str] | None:
    decision, given = plan.decision, _given(plan)
    is_purge = isinstance(decision, Purge)
    texts = [given[name] for name in ("reason", "description") if name in given]
    is_unusual = bool(plan.options.keys() - ({"archived"} if is_purge else set()))
    is_timed = isinstance(decision, Abandon | Defer) and bool(given)
    if isinstance(decision, (Send, Undo, CancelScheduled)) or is_unusual or is_timed:
        return None
    if not all(map(_PLAIN.fullmatch, texts)):
        return None
    chosen = ",".join(str(one) if one == last else f"{one}-{last}" for one, last in _ranges(_numbers(plan)))
    words = [str(plan.entity), *([] if is_purge else ["--messages", chosen])]
    if isinstance(decision, _PICKS):
        words = ["%sb_deferred" if _are_deferred(plan) else "%sb_pick", *words, f"--{decision.verb}"]
    else:
        words = [f"%sb_{decision.verb}", *words]
    return [*words, *_options(given | dict(plan.options)), *(["--edit", "edit"] if plan.edit else [])]


def _options(given: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in given.items():
        option = _FLAGS.get((name, value), f"--{'to-entity' if isinstance(value, _Name) else name.replace('_', '-')}")
        words.append(option)
        if value is not True and (name, value) not in _FLAGS:
            words.append(f'"{value}"' if name in _QUOTED else "none" if value is None else str(value))
    return words


def _call(plan: Plan) -> str:
    decision, options = plan.decision, dict[str, Any](plan.options)
    edit: dict[str, Any] = {"edit": _Name("edit")} if plan.edit else {}
    if isinstance(decision, _PICKS) or (isinstance(decision, Resubmit) and options and decision.to_host is None):
        values = {each.name: getattr(decision, each.name) for each in fields(decision)}
        own = {name: value for name, value in values.items() if value is not None}
        made = f"sbnotebook.{type(decision).__name__}({_named(own)})"
        if _are_deferred(plan) and not options:
            return f"entity.deferred().plan({made}, messages)"
        return f"entity.pick({', '.join(filter(None, ['messages', made, _named(edit | options)]))})"
    first = "" if isinstance(decision, Purge) else "messages"
    named = _named(_given(plan) | edit | (options if isinstance(decision, Purge) else {}))
    return f"{_VERBS[type(decision)]}({', '.join(filter(None, [first, named]))})"


def _ramp_call(ramp: Ramp | None) -> str:
    given = _given_ramp(ramp)
    if ramp is None:
        return ""
    sizes = _Name(given.pop("ramp")) if len(ramp.batches) == 1 else given.pop("ramp")
    return f".with_ramp({sizes!r}, {_named(given)})"


def _named(given: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}=sbnotebook.EntityAddress.parse({str(value)!r})"
        if isinstance(value, EntityAddress)
        else f"{name}={value!r}"
        for name, value in given.items()
    )
