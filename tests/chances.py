"""How much a run of the tests tries, and with which random choices.

A plain run is always the same. With ``SBNOTEBOOK_THOROUGH=1``, as in ``make check-all``, tests marked ``thorough`` run,
too, every test tries more, and the choices are new. The run prints its seed: ``SBNOTEBOOK_SEED`` repeats it.
``SBNOTEBOOK_CRASHES`` asks for another number of rounds.
"""

from __future__ import annotations

import os
import random
from typing import Final

IS_THOROUGH: Final = bool(os.environ.get("SBNOTEBOOK_THOROUGH"))
# In the environment, so that all processes of a run have the same.
SEED: Final = int(
    os.environ.setdefault("SBNOTEBOOK_SEED", str(random.SystemRandom().getrandbits(32) if IS_THOROUGH else 1))
)


def rounds(few: int, many: int) -> int:
    """Return how often to try something random: ``few`` times, or ``many`` in a thorough run."""
    return int(os.environ.get("SBNOTEBOOK_CRASHES") or (many if IS_THOROUGH else few))


def chance(*purpose: object) -> random.Random:
    """Return a random generator for a purpose, such as a test's name and number, which the run's seed decides."""
    return random.Random(" ".join(map(str, (SEED, *purpose))))  # noqa: S311 - no secrets
