from __future__ import annotations

import socket

import aiohttp
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.server import EmulatorServer
from tests.emulator.service.management_client import ask

STRANGE = [
    "evil.example", "evil.example:5300", "127.0.0.1.evil.example", "localhost.evil.com.", "evil.local", "evil.internal",
    "emulator:5300", "evil", "xlocalhost", "servicebus.windows.net.evil.example", "evilservicebus.windows.net",
]  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize(("method", "path"), [("GET", "/entities"), ("GET", "/"), ("POST", "/faults")])
def test_requests_under_another_host_name_are_refused(
    emulator: RunningEmulator, name: str, method: str, path: str
) -> None:
    status, answer = ask(emulator, method, path, "{}", Host=name)
    assert status == 403
    assert "Ask for localhost or 127.0.0.1, and not for" in answer
    assert "--allow-host" in answer


@pytest.mark.parametrize(
    "name",
    [
        "localhost", "LOCALHOST.:80", "127.0.0.1", "[::1]:5300", "192.168.1.7", "a.localhost", "host.docker.internal",
        "shop.servicebus.windows.net", socket.gethostname().upper(),
    ],
)  # fmt: skip
def test_requests_under_a_name_of_the_machine_are_answered(emulator: RunningEmulator, name: str) -> None:
    assert ask(emulator, "GET", "/health", Host=name)[0] == 200


@pytest.mark.anyio
async def test_names_are_checked_on_every_interface_and_can_be_allowed() -> None:
    async with (
        EmulatorServer(host="0.0.0.0", host_names=["Emulator"]) as server,  # noqa: S104
        aiohttp.ClientSession(server.http_url) as http,
    ):
        for name, status in (("emulator:5300", 200), ("emulator.evil.example", 403), ("other", 403)):
            async with http.get("/health", headers={"Host": name}) as response:
                assert response.status == status


@pytest.mark.parametrize("name", ["localhost:x", "@", "\xff", "a" * 70 + ".b", ""])
def test_a_host_name_that_cannot_be_read_is_refused(
    emulator: RunningEmulator, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer = ask(emulator, "GET", "/health", Host=name)
    assert status in (400, 403), answer
    assert not caplog.records
