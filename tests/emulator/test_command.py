"""The emulator as a process of its own: started, interrupted, killed, out of disk."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError
from typer.testing import CliRunner

from sbnotebook.emulator.command import app

COMMAND = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0"]
pytestmark = [
    pytest.mark.usefixtures("broken_connections"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to end a process with")


@contextmanager
def started(*options: str, command: list[str] | None = None) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The process and its connection string; killed at the end if it still runs."""
    with subprocess.Popen(
        [*(command or COMMAND), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def failed(*options: str) -> str:
    """What a start that fails says."""
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def received(connection_string: str) -> list[str]:
    """The bodies of all messages of ``orders``, which are removed."""
    bodies: list[str] = []
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        while got := receiver.receive_messages(5_000, max_wait_time=1):
            bodies += [str(message) for message in got]
    return bodies


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_command_prints_its_address_and_ends_on_a_signal(sign: signal.Signals, tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    topic = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}
    config.write_text(
        json.dumps({"UserConfig": {"Namespaces": [{"Queues": [{"Name": "configured"}], "Topics": [topic]}]}})
    )
    with started("--in-memory", "--tier", "standard", "--queue", "a", "--queue", "b", "--config", str(config)) as (
        process,
        where,
    ):
        assert where.startswith("Endpoint=sb://127.0.0.1:")
        assert where.endswith(";UseDevelopmentEmulator=true;")
        port = int(where.split(";", maxsplit=1)[0].rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/entities")
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert [queue["name"] for queue in answer["queues"]] == ["a", "b", "configured"]
        assert [topic["name"] for topic in answer["topics"]] == ["events"]
        assert [each["name"] for each in answer["topics"][0]["subscriptions"]] == ["audit"]
        assert answer["tier"] == "Standard"
        process.send_signal(sign)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")


def test_a_start_that_fails_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "emulator.sqlite3").write_bytes(b"something else")
    assert failed("--data-dir", str(tmp_path)).count("\n") == 1
    (tmp_path / "taken" / "emulator.json").mkdir(parents=True)
    for unusable in ("emulator.sqlite3", "taken"):
        answer = failed("--data-dir", str(tmp_path / unusable))
        assert answer.count("\n") == 1
        assert "data directory" in answer
    assert "either --in-memory or --data-dir" in failed("--in-memory", "--data-dir", str(tmp_path))
    assert "cannot be read" in failed("--config", str(tmp_path / "missing"))
    assert "'a b' is not the name" in failed("--in-memory", "--queue", "a b")


@pytest.mark.parametrize("option", ["--port", "--http-port"])
@pytest.mark.parametrize("port", ["-1", "65536"])
def test_an_invalid_port_is_refused(option: str, port: str) -> None:
    answer = CliRunner().invoke(app, ["--in-memory", option, port])
    assert answer.exit_code == 2
    assert "than or equal to" in answer.output


@pytest.mark.parametrize(
    ("host", "reached", "is_warned"),
    [
        ("0.0.0.0", "127.0.0.1", True),  # noqa: S104
        ("127.0.0.1", "127.0.0.1", False),
        ("localhost", "localhost", False),
    ],
)
def test_command_warns_when_others_can_reach_it(host: str, reached: str, is_warned: bool) -> None:
    with started("--in-memory", "--host", host) as (process, where):
        assert where.startswith(f"Endpoint=sb://{reached}:")
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert ("everyone who reaches" in err) == is_warned
    assert err.count("\n") == is_warned


def test_an_allowed_host_name_is_answered_over_http() -> None:
    with started("--in-memory", "--allow-host", "broker", "--allow-host", "other") as (_, where):
        place = where.removeprefix("Endpoint=sb://").partition(";")[0]
        for name, status in (("broker", 200), ("OTHER:5300", 200), ("unknown", 403)):
            with closing(http.client.HTTPConnection(place, timeout=20)) as connection:
                connection.request("GET", "/health", headers={"Host": name})
                assert connection.getresponse().status == status


def test_a_configuration_that_the_tier_does_not_have_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Topics": [{"Name": "events"}]}]}}))
    answer = failed("--in-memory", "--tier", "Basic", "--config", str(config))
    assert answer.count("\n") == 1
    assert "tier Basic does not have topics" in answer


def send_to_the_end(connection_string: str) -> list[str]:
    """Send numbered messages until the emulator is gone; the confirmed ones."""
    confirmed: list[str] = []
    with (
        suppress(ServiceBusError),
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        while True:
            body = f"{'x' * 10_000} {len(confirmed)}"
            sender.send_messages(ServiceBusMessage(body))
            confirmed.append(body)
    return confirmed


@needs_signals
def test_a_full_disk_ends_it_without_a_confirmation(tmp_path: Path) -> None:
    limited = ["bash", "-c", 'ulimit -f 400; exec "$@"', "bash", *COMMAND]
    options = ("--data-dir", str(tmp_path), "--queue", "orders")
    with started(*options, command=limited) as (process, where):
        confirmed = send_to_the_end(where)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "its data could not be kept" in err
    assert len(confirmed) > 10
    with started(*options) as (_, where):
        assert received(where) == confirmed
