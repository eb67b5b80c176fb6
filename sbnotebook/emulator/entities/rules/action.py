"""The action of a rule: what it changes in the copies of messages that its subscription gets.

Source: Service Bus documentation, "Subscription rule SQL action syntax".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.model.amqp import AmqpValue

__all__ = ["SqlAction"]


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Sets and removes properties of a message.

    Attributes:
        expression: ``SET property = value`` and ``REMOVE property``, one after the other, with or
            without semicolons; at most 1,024 characters and 32 statements.
        parameters: the values of ``@name`` in it, by name with or without the sign.

    Raises:
        ConfigurationError: the expression cannot be read, or uses what Service Bus does not have.

    Example:
        >>> subject = RuleSubject(bytes.fromhex("005375a000"))
        >>> SqlAction("SET quantity = 7 / 2; SET sys.Label = 'half'").apply(subject)
        >>> subject.user("quantity"), subject.system("Label")
        (3, 'half')
    """

    expression: str
    parameters: Mapping[str, AmqpValue] = field(default_factory=dict[str, AmqpValue])
    _statements: tuple[Callable[[RuleSubject], None], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Here, because sqlglot takes a while to import, and most emulators have no SQL.
        from sbnotebook.emulator.entities.rules.statements import statements

        object.__setattr__(self, "_statements", statements(self.expression, self.parameters))

    def apply(self, subject: RuleSubject) -> None:
        """Carry out the statements in order; each sees what those before it did.

        Raises:
            FilterError: a statement cannot be carried out on this message, which may be changed in part.
        """
        for statement in self._statements:
            statement(subject)
