from __future__ import annotations

import logging
import tomllib
from pathlib import Path

import pytest

from sbnotebook.errors import ConfigurationError
from sbnotebook.settlement.sdk import ANY_VERSION, check_version

HERE = Path(__file__).parent


@pytest.mark.parametrize("installed", ["7.15.0", "7.15.12", "7.15.1b2"])
def test_version_that_works_is_accepted(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ANY_VERSION, raising=False)
    check_version(installed)


@pytest.mark.parametrize("installed", ["7.14.3", "7.16.0", "7.16.0b1", "7.150.0", "8.15.0", "7"])
def test_other_version_is_refused_in_one_sentence(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ANY_VERSION, raising=False)
    with pytest.raises(ConfigurationError) as caught:
        check_version(installed)
    assert str(caught.value) == (
        f"sbnotebook works with azure-servicebus 7.15 only, and {installed} is installed: "
        "run pip install 'azure-servicebus>=7.15,<7.16'."
    )


def test_other_version_is_logged_where_any_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ANY_VERSION, "1")
    with caplog.at_level(logging.WARNING):
        check_version("7.16.0")
    assert "7.16.0 is installed" in caplog.text


def test_version_is_bounded_as_the_text_says() -> None:
    project = tomllib.loads((HERE.parents[2] / "pyproject.toml").read_text())["project"]
    (bound,) = [each for each in project["dependencies"] if each.startswith("azure-servicebus")]
    assert bound == "azure-servicebus>=7.15,<7.16"
