from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from sbnotebook.doctor import Finding, State, examine, java_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY = "c2VjcmV0LWtleQ"


def finding(subject: str, environment: Mapping[str, str] | None = None) -> Finding:
    return next(each for each in examine(environment or {}) if each.subject == subject)


def connection_string(host: str, port: int) -> str:
    return f"Endpoint=sb://{host}:{port}/;SharedAccessKeyName=Root;SharedAccessKey={KEY};UseDevelopmentEmulator=true;"


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def java_home(folder: Path, version: str) -> str:
    """A JAVA_HOME whose java only tells its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2024-01-16' >&2\n""")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("subject", ["Python", "sbnotebook", "PySpark", "Java", "Widgets", "Connection"])
def test_everything_is_good_on_a_machine_that_is_set_up(subject: str) -> None:
    assert finding(subject).state is State.GOOD
    assert not finding(subject).remedy


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("21-ea", 21), ("25", 25)]
)
def test_java_tells_its_major_version(tmp_path: Path, version: str, major: int) -> None:
    assert java_version(java_home(tmp_path, version)) == major


def test_no_java_is_version_zero(tmp_path: Path) -> None:
    assert java_version(str(tmp_path)) == 0


def test_an_old_java_is_missing_where_pyspark_is_installed(tmp_path: Path) -> None:
    found = finding("Java", {"JAVA_HOME": java_home(tmp_path, "11.0.2")})
    assert (found.state, found.found) == (State.MISSING, "11")
    assert "Java 17 or newer" in found.remedy
    assert str(tmp_path) in found.remedy


def test_without_a_connection_it_is_the_emulator() -> None:
    assert "emulator" in finding("Connection").found


def test_a_namespace_that_answers_is_good() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        found = finding("Connection", {"SBNOTEBOOK_CONNECTION": connection_string("127.0.0.1", port)})
    assert (found.state, found.found) == (State.GOOD, f"127.0.0.1:{port} answers")


def test_a_namespace_that_does_not_answer_is_missing() -> None:
    port = closed_port()
    found = finding("Connection", {"SERVICEBUS_CONNECTION_STRING": connection_string("127.0.0.1", port)})
    assert found.state is State.MISSING
    assert found.found.startswith(f"127.0.0.1:{port} cannot be reached: ")


def test_a_variable_can_name_another() -> None:
    port = closed_port()
    environment = {"SBNOTEBOOK_CONNECTION": "env:OTHER", "OTHER": connection_string("127.0.0.1", port)}
    assert f"127.0.0.1:{port}" in finding("Connection", environment).found


def test_a_secret_is_looked_up_only_when_connecting() -> None:
    assert finding("Connection", {"SBNOTEBOOK_CONNECTION": "secret:scope/key"}).state is State.GOOD


@pytest.mark.parametrize(
    "target", [f"SharedAccessKey={KEY}", f"Endpoint=sb://;SharedAccessKey={KEY}", f"no host {KEY}"]
)
def test_a_target_that_cannot_be_read_is_never_shown(target: str) -> None:
    found = finding("Connection", {"SBNOTEBOOK_CONNECTION": target})
    assert found.state is State.MISSING
    assert found.found == "SBNOTEBOOK_CONNECTION cannot be read"
    assert KEY not in repr(found)


def test_the_key_of_a_connection_is_never_shown() -> None:
    environment = {"SBNOTEBOOK_CONNECTION": connection_string("127.0.0.1", closed_port())}
    assert KEY not in repr(examine(environment))
