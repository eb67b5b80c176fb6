"""What ``%config SbMagics`` sets: the defaults of the magics."""

from __future__ import annotations

from traitlets import CaselessStrEnum, Int
from traitlets.config import Configurable

from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT

__all__ = ["SbMagics"]


class SbMagics(Configurable):
    """The defaults of the magics of one shell, set by ``%config SbMagics.NAME = VALUE`` or in IPython's configuration.

    Args:
        options: what every Configurable takes, such as ``parent``.
    """

    max_rows = Int(
        None, min=1, allow_none=True, help="Rows of messages that are shown; None is 50 in notebooks, 20 in terminals."
    ).tag(config=True)
    peek_count = Int(1_000, min=1, help="Messages that %sb_peek looks at where neither -n nor --where is given.").tag(
        config=True
    )
    lock_count = Int(10, min=1, help="Messages that %sb_lock locks where -n is not given.").tag(config=True)
    max_in_flight = Int(
        DEFAULT_MAX_IN_FLIGHT, min=1, help="Transfers without an answer at once, where --max-in-flight is not given."
    ).tag(config=True)
    confirm = CaselessStrEnum(
        ["always", "outside_emulator", "never"],
        "outside_emulator",
        help="When a plan that was shown is carried out only after a yes. --yes answers it beforehand.",
    ).tag(config=True)

    def asks(self, *, is_emulator: bool) -> bool:
        """Whether a plan is carried out only after a yes.

        Args:
            is_emulator: whether it would be carried out in an emulator.
        """
        return self.confirm == "always" or (self.confirm == "outside_emulator" and not is_emulator)
