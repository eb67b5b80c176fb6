"""Show a plan, ask for confirmation, carry it out, and report: what every magic does that sends or settles."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from IPython.core.error import StdinNotImplementedError
from IPython.core.magic import Magics
from IPython.display import display

from sbnotebook.errors import ConfigurationError, DecisionError, ReadOnlyError
from sbnotebook.magics.display import say
from sbnotebook.model import Message, ReceivedMessage, Report
from sbnotebook.settlement.plan import Edit

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.arguments import MagicArguments
    from sbnotebook.magics.current import Current

__all__ = ["Applicable", "ApplyOptions", "PlanMagics", "edit_function", "variable", "warn_of_failures"]


class ApplyOptions(TypedDict):
    """The speed at which a plan is applied."""

    max_in_flight: int
    rate: float | None


class Applicable(Protocol):
    """A plan that can be shown and applied."""

    def __len__(self) -> int:
        """Return the number of its messages."""
        ...

    def apply(self, *, max_in_flight: int = ..., rate: float | None = ...) -> Report:
        """Carry the plan out."""
        ...


class PlanMagics(Magics):
    """Magics that use the connection of a shell.

    Args:
        shell: the shell that runs them.
        current: its connection, its locked messages, and its settings.
    """

    def __init__(self, shell: InteractiveShell, current: Current) -> None:
        super().__init__(shell)
        self.current = current

    def carry_out(self, plan: Applicable, args: MagicArguments, *, asks: bool = True) -> Applicable | Report:
        """Show a plan, ask, and carry it out.

        Args:
            plan: the plan.
            args: holds ``dry_run``, ``yes``, and where the magic has them ``max_in_flight`` and ``rate``.
            asks: False for a plan that removes nothing, and so needs no confirmation.

        Returns:
            The plan itself for a dry run, otherwise the report.

        Raises:
            ReadOnlyError: the connection only looks; nothing was done.
            DecisionError: the plan was not confirmed, or there is no input to ask on; nothing was done.
        """
        if args.dry_run:
            return plan
        display(plan)
        self.confirm(len(plan), args, asks=asks)
        report = plan.apply(**self.apply_options(args))
        warn_of_failures(report)
        return report

    def confirm(self, count: int, args: MagicArguments, *, asks: bool = True) -> None:
        """Ask whether to carry out the plan that was shown, where the settings want that.

        Args:
            count: the number of its messages; for none there is no question.
            args: holds ``yes``.
            asks: as for :meth:`carry_out`.

        Raises:
            ReadOnlyError: the connection only looks.
            DecisionError: the plan was not confirmed.
        """
        namespace = self.current.namespace
        if namespace.read_only:
            raise ReadOnlyError(namespace.host)  # before a pointless question
        if asks and count and not args.yes and self.current.settings.asks(is_emulator=namespace.is_emulator):
            _ask()

    def apply_options(self, args: MagicArguments) -> ApplyOptions:
        """Return the keyword arguments with which a plan is applied.

        Args:
            args: holds ``max_in_flight`` and ``rate`` where the magic has them.
        """
        in_flight = getattr(args, "max_in_flight", None) or self.current.settings.max_in_flight
        return {"max_in_flight": in_flight, "rate": getattr(args, "rate", None)}


def warn_of_failures(report: Report) -> None:
    """Print a line when some messages were not settled: the report may be bound to a name and not shown."""
    if not report.ok:
        say(f"Not every message was settled: {report}.", file=sys.stderr)


def _ask() -> None:
    try:
        answer = input("Carry the plan out? [y/N] ")
    except (EOFError, StdinNotImplementedError):
        raise DecisionError("Nobody can be asked here, so nothing was done: check the plan and add --yes.") from None
    except KeyboardInterrupt:
        answer = "no"
    if answer.strip().lower() not in ("y", "yes"):
        raise DecisionError("Nothing was done: the plan was not confirmed.")


def variable(args: MagicArguments, name: str) -> Any:
    """Return the value of a user's variable.

    Args:
        args: holds the variables.
        name: the variable's name.

    Raises:
        ConfigurationError: there is no such variable.
    """
    if name not in args.variables:
        raise ConfigurationError(f"There is no variable {name[:40]!r}; a text to send stands in quotes.")
    return args.variables[name]


def edit_function(args: MagicArguments) -> Edit | None:
    """Return the function that ``--edit`` names; it raises DecisionError when its result is not a message.

    Args:
        args: holds ``edit`` and the variables.

    Raises:
        ConfigurationError: there is no such function.
    """
    if args.edit is None:
        return None
    function = args.variables.get(args.edit)
    if not callable(function):
        raise ConfigurationError(f"There is no function {args.edit[:40]!r}: define it first.")

    # Checked here, too, so that the error names the function.
    def edit(message: ReceivedMessage) -> Message:
        edited = function(message)
        if not isinstance(edited, Message):
            raise DecisionError(
                f"{args.edit} returned {type(edited).__name__}: it must return the message to send, "
                "such as message.with_changes(…)."
            )
        return edited

    return edit
