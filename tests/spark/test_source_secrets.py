"""A planted secret is looked for in every byte that Spark shows and writes, and is nowhere."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from tests.spark import secrets_run
from tests.spark.planted_secrets import TOKEN, files, forms, places

pytestmark = pytest.mark.thorough

# The first has characters that are others in a URL; the second can be the name of an entity.
PLANTED = "cGxhbnRlZC+wbGFudGVk/XBsYW50ZWQ+cGxhbnQ="
WRONG = "d3Jvbmd3cm9uZ3dyb25nd3Jvbmd3cm9uZ3dyb24="
CONTROL = "Y29udHJvbC9jb250cm9sK2NvbnRyb2wvY29udHI="
FAILURES = (
    "an option",
    "an entity",
    "a value",
    "the planner",
    "a read",
    "a write",
    "a write to nowhere",
    "a decision",
    "to browse",
    "to consume",
    "a stream's sink",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All that was said, shown and written, by its place."""
    folder = tmp_path_factory.mktemp("secrets")
    command = [sys.executable, "-m", secrets_run.__name__, str(folder), PLANTED, WRONG, CONTROL]
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        result = subprocess.run(command, stdout=out, stderr=err, check=False, timeout=540)
    assert result.returncode == 0, (folder / "stderr").read_text()[-5000:]
    return files(folder)


def test_secret_search_finds_it_in_each_place(found: dict[str, bytes]) -> None:
    told = places([CONTROL], found)
    for place in ("said.txt", "stderr", "checkpoints/control/told", "shown/resource sql", "shown/page jobs"):
        assert place in told
    assert any(place.startswith("events/") for place in told)


def test_it_all_happened(found: dict[str, bytes]) -> None:
    said = found["said.txt"].decode()
    assert [what for what in FAILURES if f"FAILED {what}: " not in said] == []
    assert said.count("sbnotebook.errors.SbNotebookError: ServiceBusAuthenticationError: ") >= 5
    assert "servicebus" in found["stdout"].decode()
    assert {"browsed", "consumed"} <= {place.split("/")[1] for place in found if place.startswith("checkpoints/")}


def test_no_secret_is_shown_or_written(found: dict[str, bytes]) -> None:
    assert places([PLANTED, WRONG], found) == {}


def test_secret_is_known_in_all_its_forms() -> None:
    key = "c2VjcmV0K3NlY3JldC9zZWNyZXQ="
    assert key.rstrip("=").encode() in forms(key)
    assert b"a%2Bb%2Fc" in forms("a+b/c")
    for shift in ("", "x", "xy"):
        encoded = base64.b64encode(f"{shift}{key}tail".encode())
        assert any(form in encoded for form in forms(key)), shift
    assert TOKEN.search(b"SharedAccessSignature sr=x&sig=" + b"a" * 43)
