"""Plans as runnable text, so that clicks in a panel become a runbook: a cell with a magic, or Python.

Texts of a plan may come from messages. A magic would evaluate ``{…}`` in them, so a magic gets plain texts only, and
Python gets all texts as literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Final

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    MessageState,
    Resubmit,
)
from sbnotebook.model.decision import AUTO, CancelScheduled, Purge
from sbnotebook.settlement.plan import Plan

__all__ = ["cell_of", "python_of"]

_PLAIN: Final = re.compile(r"[\w .,:;/()@#%&+=!?-]{1,200}", re.ASCII)
"""A text that a magic takes as it is, in quotes."""
_PICKS: Final = (Complete, DeadLetter, Abandon, Defer)
_LONGEST_CHOICE: Final = 15_000
"""Characters of an expression that chooses messages; an expression of 20,000 is refused."""


def cell_of(plan: Plan, *, rate: float | None = None) -> str:
    """Return a plan as a cell with a magic; as Python where no magic says the same.

    Args:
        plan: messages and a decision.
        rate: messages a second at most, None for no limit.

    Raises:
        DecisionError: no code can say the same.
    """
    _check(plan)
    words = _magic(plan)
    if words is None:
        return python_of(plan, rate=rate)
    comment = "# Define the function edit(message) first: it is not part of the plan.\n" if plan.edit else ""
    paced = [] if rate is None else ["--rate", f"{rate:g}"]
    return f"{comment}{' '.join([*words, *paced])}\n"


def python_of(plan: Plan, *, target: str | None = None, rate: float | None = None) -> str:
    """Return a plan as Python that makes it again, shows it, and applies it.

    Args:
        plan: messages and a decision.
        target: the host of the namespace, None for the one that the environment names.
        rate: messages a second at most, None for no limit.

    Raises:
        DecisionError: no code can say the same.
    """
    _check(plan)
    call = _call(plan)
    lines = [*(["from datetime import timedelta", ""] if "timedelta(" in call else []), "import sbnotebook", ""]
    if plan.edit is not None:
        lines += ["# Define the function edit(message) here: it is not part of the plan."]
    lines += [
        f"ns = sbnotebook.connect({'' if target is None else repr(target)})",
        f"entity = ns.entity({str(plan.entity)!r})",
        f"messages = {_numbers_in_python(plan)}",
        f"plan = {call}",
        "print(plan.preview())",
        f"report = plan.apply({'' if rate is None else f'rate={rate!r}'})",
        "report.raise_for_failures()",
    ]
    return "\n".join(lines) + "\n"


def _check(plan: Plan) -> None:
    decision, messages = plan.decision, plan.messages
    if isinstance(decision, Resubmit) and decision.to_host is not None:
        raise DecisionError("A resubmit to another namespace has no code here: connect to that namespace in Python.")
    if not isinstance(decision, (*_PICKS, Resubmit, Purge, CancelScheduled)):
        raise DecisionError(f"A plan to {decision.verb} has no code: its messages are not in an entity.")
    if not messages:
        raise DecisionError("The plan has no messages, so there is no code for it.")
    if any(isinstance(message, LockedMessage) for message in messages):
        raise DecisionError("A plan on held messages has no code: their locks end with this kernel.")


def _numbers(plan: Plan) -> list[int]:
    return sorted(message.sequence_number for message in plan.messages)


def _ranges(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Yield the first and last number of each run of consecutive numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _numbers_in_python(plan: Plan) -> str:
    parts = [f"*range({first}, {last + 1})" if last > first + 1 else None for first, last in _ranges(_numbers(plan))]
    said: list[str] = []
    for part, (first, last) in zip(parts, _ranges(_numbers(plan)), strict=True):
        said += [part] if part is not None else [str(number) for number in range(first, last + 1)]
    return f"[{', '.join(said)}]"


def _choice(plan: Plan) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _ranges(_numbers(plan)))


def _expression(plan: Plan) -> str:
    terms = [f"sequence_number between {first} and {last}" for first, last in _ranges(_numbers(plan))]
    text = " or ".join(terms)
    if len(text) > _LONGEST_CHOICE:
        raise DecisionError("The messages of this purge have too many gaps for code: purge by an expression.")
    return text


# ---------------------------------------------------------------- a magic


def _magic(plan: Plan) -> list[str] | None:
    """Return the words of a magic; None where no magic says the same."""
    entity, decision, chosen = str(plan.entity), plan.decision, ["--messages", _choice(plan)]
    match decision:
        case Resubmit():
            words = _resubmit_words(decision)
            return ["%sb_resubmit", entity, *chosen, *words, *(["--edit", "edit"] if plan.edit else [])]
        case Purge():
            return ["%sb_purge", entity, "--where", f'"{_expression(plan)}"']
        case CancelScheduled():
            return ["%sb_schedule", entity, "--cancel", *chosen]
        case Complete() | Abandon(delay=None) | Defer(wake_after=None):
            return [_picks(plan), entity, *chosen, f"--{decision.verb}"]
        case DeadLetter(reason, description):
            named = {"--reason": reason, "--description": description}
            texts = {name: text for name, text in named.items() if text is not None}
            if not all(_PLAIN.fullmatch(text) and not text.startswith("-") for text in texts.values()):
                return None
            quoted = [word for name, text in texts.items() for word in (name, f'"{text}"')]
            return [_picks(plan), entity, *chosen, "--dead-letter", *quoted]
        case _:
            return None


def _picks(plan: Plan) -> str:
    return "%sb_deferred" if _are_deferred(plan) else "%sb_pick"


def _are_deferred(plan: Plan) -> bool:
    return all(message.state is MessageState.DEFERRED for message in plan.messages)


def _resubmit_words(decision: Resubmit) -> list[str]:
    words: list[str] = []
    if decision.to is not None:
        words += ["--to", str(decision.to)]
    if decision.delay:
        words += ["--delay", _seconds(decision.delay)]
    if decision.max_resubmits != AUTO:
        words += ["--max-resubmits", str(decision.max_resubmits or "none")]
    if decision.resend_unknown:
        words.append("--resend-unknown")
    if decision.atomic:
        words.append("--atomic-forward" if decision.atomic == "forward" else "--atomic")
    return words


def _seconds(delay: timedelta) -> str:
    return f"{delay.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


# ---------------------------------------------------------------- Python


def _call(plan: Plan) -> str:
    decision = plan.decision
    if isinstance(decision, Purge):
        return f"entity.purge(where={_expression(plan)!r})"
    if isinstance(decision, CancelScheduled):
        return "entity.cancel_scheduled(messages)"
    if isinstance(decision, Resubmit):
        return f"entity.resubmit({', '.join(['messages', *_resubmit_options(plan, decision)])})"
    made = f"sbnotebook.{type(decision).__name__}({_fields(decision)})"
    return f"entity.deferred().plan({made}, messages)" if _are_deferred(plan) else f"entity.pick(messages, {made})"


def _resubmit_options(plan: Plan, decision: Resubmit) -> list[str]:
    given = {
        "to": None if decision.to is None else repr(str(decision.to)),
        "delay": repr(_seconds(decision.delay)) if decision.delay else None,
        "edit": "edit" if plan.edit else None,
        "max_resubmits": None if decision.max_resubmits == AUTO else repr(decision.max_resubmits),
        "resend_unknown": "True" if decision.resend_unknown else None,
        "atomic": repr(decision.atomic) if decision.atomic else None,
    }
    return [f"{name}={text}" for name, text in given.items() if text is not None]


def _fields(decision: Decision) -> str:
    """Return the arguments of a decision as literals."""
    given = {each.name: getattr(decision, each.name) for each in fields(decision)}
    return ", ".join(f"{name}={_literal(value)}" for name, value in given.items() if value is not None)


def _literal(value: object) -> str:
    if isinstance(value, timedelta):
        return f"timedelta(seconds={value.total_seconds()!r})"
    if isinstance(value, EntityAddress):
        return f"sbnotebook.EntityAddress.parse({str(value)!r})"
    return repr(value)
