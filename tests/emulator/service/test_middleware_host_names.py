from __future__ import annotations

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.emulator.service.management_client import ask


@pytest.mark.parametrize("name", ["evil.example", "evil.example:5300", "127.0.0.1.evil.example", "localhost.evil.com."])
@pytest.mark.parametrize(("method", "path"), [("GET", "/entities"), ("GET", "/"), ("POST", "/faults")])
def test_requests_under_a_public_host_name_are_refused(
    emulator: RunningEmulator, name: str, method: str, path: str
) -> None:
    status, answer = ask(emulator, method, path, "{}", Host=name)
    assert status == 403
    assert "Ask for localhost or 127.0.0.1, and not for" in answer


@pytest.mark.parametrize(
    "name",
    ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:5300", "emulator:5300", "host.docker.internal", "mac.local"],
)
def test_requests_under_a_local_host_name_are_answered(emulator: RunningEmulator, name: str) -> None:
    assert ask(emulator, "GET", "/health", Host=name)[0] == 200
