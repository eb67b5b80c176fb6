"""The synchronous client against the real emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator, running
from tests.namespaces import opened


@pytest.fixture(scope="module")
def shared_emulator() -> Iterator[RunningEmulator]:
    with running() as server:
        yield server


@pytest.fixture
def namespace(shared_emulator: RunningEmulator, tmp_path: Path) -> Iterator[Namespace]:
    with opened(shared_emulator.connection_string, tmp_path) as namespace:
        yield namespace
