"""Everything that touches the private side of azure-servicebus, written for version 7.15.

:mod:`~sbnotebook.settlement.sdk.private` imports the private names, and says where in the SDK the others are.
:func:`check_version` refuses any other version.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from azure.servicebus import __version__

from sbnotebook.errors import ConfigurationError

_MINOR: Final = "7.15"
ANY_VERSION: Final = "SBNOTEBOOK_ANY_SDK"
"""The environment variable that turns the check into a line in the log, for tests with a newer version."""
_LOGGER: Final = logging.getLogger(__name__)


def check_version(installed: str = __version__) -> None:
    """Refuse a version of azure-servicebus other than the minor version that sbnotebook is written for."""
    if installed.split(".")[:2] == _MINOR.split("."):
        return
    sentence = (
        f"sbnotebook works with azure-servicebus {_MINOR} only, and {installed} is installed: "
        "run pip install 'azure-servicebus>=7.15,<7.16'."
    )
    if not os.environ.get(ANY_VERSION):
        raise ConfigurationError(sentence)
    _LOGGER.warning(sentence)
