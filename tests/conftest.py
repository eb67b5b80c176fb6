"""Settings for the whole run; fixtures belong beside the tests that use them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from tests.chances import IS_THOROUGH

# What a script starts in the background ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On two busy cores, single examples are sometimes slow, which is not a failure.
settings.register_profile("plain", deadline=None, print_blob=True, max_examples=25, derandomize=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=150)
settings.load_profile("thorough" if IS_THOROUGH else "plain")


# Runs pytest itself, for the tests of the fixtures for users of pytest.
pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run tests marked anyio on asyncio, the only loop that the SDK has."""
    return "asyncio"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets: pytest's own paths come near to the longest that a socket may have."""
    with TemporaryDirectory(prefix="sb") as folder:
        yield Path(folder)
