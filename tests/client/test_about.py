from __future__ import annotations

import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.client.about import About
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError

SECRET = "c2VjcmV0a2V5"
NOBODY_THERE = f"Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=reader;SharedAccessKey={SECRET}"


def test_about_shows_the_host_and_the_identity(namespace: Namespace) -> None:
    assert repr(namespace.about()).splitlines() == [
        f"Connected to  {namespace.host} (emulator, Premium)",
        "signed in as  the key RootManageSharedAccessKey",
        "found by      a test",
        "writing       on",
    ]


def test_read_only_is_said_with_the_way_to_write(shared_emulator: RunningEmulator) -> None:
    with connect(shared_emulator.connection_string, write=False) as namespace:
        assert "writing       off: nothing can be changed; %sb_connect --write turns it on" in repr(namespace.about())
        assert repr(namespace).endswith("found by a connection string, read-only>")


def test_about_an_emulator_that_does_not_run_says_so() -> None:
    with (
        connect(f"{NOBODY_THERE};UseDevelopmentEmulator=true") as namespace,
        pytest.raises(
            ConfigurationError, match=r"Nothing listens at 127\.0\.0\.1:1: start the emulator, or check its port"
        ),
    ):
        namespace.about()


def test_about_without_an_answer_shows_no_secret() -> None:
    with connect(NOBODY_THERE) as namespace:
        about = namespace.about()
    assert about == About("127.0.0.1:1", False, None, "the key reader", "a connection string", True)
    for shown in (repr(about), about._repr_html_()):  # pyright: ignore[reportPrivateUsage]
        assert "127.0.0.1:1 (Azure)" in shown
        assert SECRET not in shown
