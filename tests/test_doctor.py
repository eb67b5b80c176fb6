from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from sbnotebook.doctor import Finding, State, examine, java_version

if TYPE_CHECKING:
    from pathlib import Path

KEY = "c2VjcmV0LWtleQ"


def finding(subject: str) -> Finding:
    return next(each for each in examine() if each.subject == subject)


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


def test_everything_is_good_on_a_machine_that_is_set_up() -> None:
    findings = examine()
    assert [each.subject for each in findings] == ["Python", "sbnotebook", "PySpark", "Java", "Widgets", "Connection"]
    assert not [each for each in findings if each.state is not State.GOOD or each.remedy]


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("21-ea", 21), ("25", 25)]
)
def test_java_tells_its_major_version(tmp_path: Path, version: str, major: int) -> None:
    assert java_version(java_home(tmp_path, version)) == major


def test_no_java_is_version_zero(tmp_path: Path) -> None:
    assert java_version(str(tmp_path)) == 0


def test_an_old_java_is_missing_where_pyspark_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path, "11.0.2"))
    monkeypatch.setenv("SBNOTEBOOK_CONNECTION", connection_string("127.0.0.1", closed_port()))
    found = finding("Java")
    assert (found.state, found.found) == (State.MISSING, "11")
    assert "Java 17 or newer" in found.remedy
    assert str(tmp_path) in found.remedy


def test_no_java_at_all_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SBNOTEBOOK_CONNECTION", connection_string("127.0.0.1", closed_port()))
    found = finding("Java")
    assert (found.state, found.found) == (State.MISSING, "not found")
    assert found.remedy == "For Spark: install Java 17 or newer (Debian and Ubuntu: openjdk-17-jre-headless)."


def test_a_namespace_that_answers_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        monkeypatch.setenv("SBNOTEBOOK_CONNECTION", connection_string("127.0.0.1", port))
        found = finding("Connection")
    assert found.state is State.GOOD
    assert found.found == f"127.0.0.1:{port} answers (the environment variable SBNOTEBOOK_CONNECTION)"


def test_a_namespace_that_does_not_answer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    port = closed_port()
    monkeypatch.setenv("SERVICEBUS_CONNECTION_STRING", connection_string("127.0.0.1", port))
    found = finding("Connection")
    assert found.state is State.MISSING
    assert found.found.startswith(f"127.0.0.1:{port} cannot be reached: ")


def test_an_ipv6_address_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBNOTEBOOK_CONNECTION", connection_string("[::1]", closed_port()))
    assert finding("Connection").found.startswith(
        "The namespace is an IPv6 address, which azure-servicebus cannot read"
    )


@pytest.mark.parametrize("target", [f"SharedAccessKey={KEY}", f"Endpoint=sb://;SharedKey={KEY}", f"no host {KEY}"])
def test_a_target_that_cannot_be_read_is_never_shown(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBNOTEBOOK_CONNECTION", target)
    found = finding("Connection")
    assert found.state is State.MISSING
    assert "Unset SBNOTEBOOK_CONNECTION" in found.remedy
    assert KEY not in repr(found)


def test_the_key_of_a_connection_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBNOTEBOOK_CONNECTION", connection_string("127.0.0.1", closed_port()))
    assert KEY not in repr(examine())
