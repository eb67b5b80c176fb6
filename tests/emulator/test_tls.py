"""TLS, by the SDK as it is: only the certificate is trusted."""

from __future__ import annotations

import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from cryptography import x509

from sbnotebook.emulator.server import EmulatorServer
from sbnotebook.emulator.tls import tls_context
from sbnotebook.errors import EmulatorStartError


class Started(NamedTuple):
    """The lines of a start."""

    plain: str
    encrypted: str
    certificate: Path

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.encrypted.partition(";")[0].removeprefix("Endpoint=sb://").partition(":")
        return host, int(port)


@contextmanager
def started(directory: Path, *options: str) -> Generator[Started]:
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0", "--tls", "--tls-port", "0"]
    command += ["--data-dir", str(directory), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        plain, encrypted, says = (process.stdout.readline().strip() for _ in range(3))
        try:
            yield Started(plain, encrypted, Path(says.removeprefix("Certificate to trust: ")))
        finally:
            process.terminate()


def test_the_sdk_works_unchanged_once_the_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path) as emulator:
        assert emulator.encrypted.startswith("Endpoint=sb://localhost:")
        assert "UseDevelopmentEmulator" not in emulator.encrypted
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(emulator.certificate))
        with ServiceBusAdministrationClient.from_connection_string(emulator.encrypted) as administration:
            administration.create_queue("orders")
            assert [queue.name for queue in administration.list_queues()] == ["orders"]
        # Over AMQP the SDK goes to 5671, unless it gets another endpoint.
        trusting = ServiceBusClient.from_connection_string(
            emulator.encrypted,
            retry_total=0,
            connection_verify=str(emulator.certificate),
            custom_endpoint_address=f"sb://localhost:{emulator.address[1]}",
        )
        with trusting as client, client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("x" * 200_000))
        # The port without TLS has the same namespace.
        with (
            ServiceBusClient.from_connection_string(emulator.plain, retry_total=0) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            assert [len(str(message)) for message in receiver.receive_messages(max_wait_time=5)] == [200_000]


def test_a_stranger_who_speaks_no_tls_disturbs_nobody(tmp_path: Path) -> None:
    with started(tmp_path) as emulator:
        with socket.create_connection(emulator.address, timeout=20) as plain:
            plain.sendall(b"AMQP\x00\x01\x00\x00")
            assert b"AMQP" not in plain.recv(100)
        context = ssl.create_default_context(cafile=emulator.certificate)
        with (
            socket.create_connection(emulator.address, timeout=20) as connection,
            context.wrap_socket(connection, server_hostname="localhost") as encrypted,
        ):
            encrypted.sendall(b"AMQP\x00\x01\x00\x00")
            assert encrypted.recv(8) == b"AMQP\x00\x01\x00\x00"


def test_a_certificate_stays_until_it_lacks_a_name(tmp_path: Path) -> None:
    _, path = tls_context(tmp_path)
    first = path.read_bytes()
    tls_context(tmp_path, ["LocalHost"])
    assert path.read_bytes() == first
    tls_context(tmp_path, ["broker"])
    renewed = x509.load_pem_x509_certificate(path.read_bytes())
    names = renewed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "broker"} <= {*names.get_values_for_type(x509.DNSName)}
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "certificate.key").stat().st_mode) == 0o600


@pytest.mark.anyio
async def test_a_damaged_certificate_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_text("damaged")
    with pytest.raises(EmulatorStartError, match=f"cannot use the certificate in {tmp_path}: .* Remove it"):
        async with EmulatorServer(tls_port=0, tls_dir=tmp_path):
            pass
