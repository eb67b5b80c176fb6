"""How every magic that sends or settles acts: the plan is shown, confirmed, carried out, and reported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from IPython.core.error import StdinNotImplementedError
from IPython.core.magic import Magics
from IPython.display import display

from sbnotebook.errors import ConfigurationError, DecisionError, ReadOnlyError
from sbnotebook.magics.display import say
from sbnotebook.model import Message, ReceivedMessage, Report
from sbnotebook.settlement.plan import Edit

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.client import Namespace
    from sbnotebook.magics.arguments import Given
    from sbnotebook.magics.current import Current

__all__ = ["Acting", "Applicable", "edit_of", "variable"]


class Applicable(Protocol):
    """A plan: shows what it would do, and does it."""

    def __len__(self) -> int:
        """With how many messages."""
        ...

    def apply(self, *, max_in_flight: int = ..., rate: float | None = ...) -> Report:
        """Carry it out."""
        ...


class Acting(Magics):
    """Magics that work with what a shell is connected to.

    Args:
        shell: where they run.
        current: its connection, what it holds, and its settings.
    """

    def __init__(self, shell: InteractiveShell, current: Current) -> None:
        super().__init__(shell)
        self.current = current

    @property
    def namespace(self) -> Namespace:
        """The connection.

        Raises:
            ConfigurationError: there is none.
        """
        return self.current.namespace

    def carry_out(self, plan: Applicable, given: Given, *, asks: bool = True) -> Applicable | Report:
        """Show a plan, ask, and carry it out.

        Args:
            plan: what is to be done.
            given: holds ``dry_run``, ``yes``, and where the magic has them ``max_in_flight`` and ``rate``.
            asks: False where it takes nothing away from anybody, and so needs no confirmation.

        Returns:
            The plan itself for a dry run, otherwise the report.

        Raises:
            ReadOnlyError: the connection only looks; nothing was done.
            DecisionError: it was not confirmed, or nobody can be asked; nothing was done.
        """
        if given.dry_run:
            return plan
        display(plan)
        self.confirm(len(plan), given, asks=asks)
        return self.apply(plan, given)

    def confirm(self, count: int, given: Given, *, asks: bool = True) -> None:
        """Ask whether what was shown is to be done, where that is wanted.

        Args:
            count: messages that it is about; nothing is asked for none.
            given: holds ``yes``.
            asks: as for :meth:`carry_out`.
        """
        namespace = self.namespace
        if namespace.read_only:
            raise ReadOnlyError(namespace.host)  # before a question that would be in vain
        if asks and count and not given.yes and self.current.settings.asks(is_emulator=namespace.is_emulator):
            _ask()

    def apply(self, plan: Applicable, given: Given) -> Report:
        """Carry out a plan that was shown and confirmed.

        Args:
            plan: what is to be done.
            given: holds ``max_in_flight`` and ``rate`` where the magic has them.
        """
        in_flight = getattr(given, "max_in_flight", None) or self.current.settings.max_in_flight
        report = plan.apply(max_in_flight=in_flight, rate=getattr(given, "rate", None))
        if not report.ok:
            # Said at once, because the report may be bound to a name, or not be the last value of its cell.
            say(f"Not every message was settled: {report}.", file=sys.stderr)
        return report


def _ask() -> None:
    try:
        answer = input("Carry the plan out? [y/N] ")
    except (EOFError, StdinNotImplementedError):
        raise DecisionError("Nobody can be asked here, so nothing was done: check the plan and add --yes.") from None
    except KeyboardInterrupt:
        answer = "no"
    if answer.strip().lower() not in ("y", "yes"):
        raise DecisionError("Nothing was done: the plan was not confirmed.")


def variable(given: Given, name: str) -> Any:
    """The value of a user's variable.

    Args:
        given: holds the variables.
        name: which one.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if name not in given.variables:
        raise ConfigurationError(f"There is no variable {name[:40]!r}; a text to send stands in quotes.")
    return given.variables[name]


def edit_of(given: Given) -> Edit | None:
    """The function that ``--edit`` names, which says so when it does not give a message.

    Args:
        given: holds ``edit`` and the variables.

    Raises:
        ConfigurationError: there is no such function.
    """
    if given.edit is None:
        return None
    function = given.variables.get(given.edit)
    if not callable(function):
        raise ConfigurationError(f"There is no function {given.edit[:40]!r}: define it first.")

    def edit(message: ReceivedMessage) -> Message:
        edited = function(message)
        if not isinstance(edited, Message):
            raise DecisionError(
                f"{given.edit} returned {type(edited).__name__}: it must return the message to send, "
                "such as message.with_changes(…)."
            )
        return edited

    return edit
