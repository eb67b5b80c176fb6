from __future__ import annotations

import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.client.targets import ENVIRONMENT_VARIABLES, NamespaceTarget, Target, resolve
from sbnotebook.emulator.process import default_data_dir, stop
from sbnotebook.errors import ConfigurationError
from tests.databricks import Credentials, DbUtils, JavaError, TaskCredentials

HOST = "shop.servicebus.windows.net"
KEY = "c2VjcmV0IGtleSB0aGF0IG5vYm9keSBtdXN0IHNlZQ=="
TEXT = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=root;SharedAccessKey={KEY}"


class Credential:
    async def get_token(self, *_: str, **__: Any) -> Any:
        raise AssertionError("nothing is asked of it here")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for variable in ENVIRONMENT_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def test_connection_string_is_a_target() -> None:
    target = resolve(f"  {TEXT}\n")
    assert (target.connection.host, target.connection.connection_string) == (HOST, TEXT)
    assert target.found_by == "a connection string"


def test_host_with_a_credential_is_a_target() -> None:
    credential = Credential()
    target = resolve(HOST, credential)
    assert target.connection.host_and_credential() == (HOST, credential)
    assert target.found_by == "Microsoft Entra ID"


def test_host_alone_has_azures_default_credential() -> None:
    host, credential = resolve(HOST.upper()).connection.host_and_credential()
    assert host == HOST
    assert credential is not None


@pytest.mark.parametrize("value", [TEXT, f" {TEXT} "])
def test_variable_is_a_target(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MY_BUS", value)
    target = resolve("env:MY_BUS")
    assert (target.connection.host, target.found_by) == (HOST, "the environment variable MY_BUS")


def test_variable_may_hold_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_BUS", HOST)
    credential = Credential()
    assert resolve("env:MY_BUS", credential).connection.host_and_credential() == (HOST, credential)


@pytest.mark.parametrize(("first", "second"), [(TEXT, "nonsense!"), ("", TEXT)], ids=["first", "second"])
def test_default_target_is_the_first_variable_that_is_set(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    for variable, value in zip(ENVIRONMENT_VARIABLES, (first, second), strict=True):
        monkeypatch.setenv(variable, value)
    target = resolve()
    assert target.connection.host == HOST
    assert target.found_by == f"the environment variable {ENVIRONMENT_VARIABLES[0 if first else 1]}"


@given(st.text().filter(lambda text: text.strip().lower() != "emulator"))
def test_any_text_is_a_target_or_refused_without_being_shown(text: str) -> None:
    try:
        found = resolve(text, Credential())
    except ConfigurationError as error:
        shown = str(error)
    else:
        shown = found.connection.host or ""
    assert shown
    assert shown.isprintable()


def test_no_secret_is_in_a_repr() -> None:
    target = resolve(TEXT)
    with Namespace(target) as namespace:
        things: list[object] = [target, target.connection, namespace, namespace.entity("orders"), [target]]
        for thing in things:
            assert KEY not in f"{thing!r} {thing}"
        assert repr(namespace) == f"<Namespace {HOST}, source: a connection string, read-only>"


# ------------------------------------------------------------------ Databricks


@pytest.fixture
def shell() -> Iterator[Any]:
    shell: Any = InteractiveShell.instance(config=Config({"HistoryManager": {"hist_file": ":memory:"}}))
    yield shell
    InteractiveShell.clear_instance()


def test_databricks_secret_is_a_target(shell: Any) -> None:
    with pytest.raises(ConfigurationError, match="There is no dbutils here"):
        resolve("secret:mine/bus")
    shell.user_ns["dbutils"] = DbUtils({("mine", "bus"): TEXT})
    target = resolve("secret:mine/bus")
    assert (target.connection.host, target.found_by) == (HOST, "a Databricks secret")


def test_missing_databricks_secret_is_one_sentence(shell: Any) -> None:
    shell.user_ns["dbutils"] = DbUtils({("mine", "bus"): TEXT})
    with pytest.raises(ConfigurationError, match=r"dbutils\.secrets\.list\(SCOPE\) shows") as caught:
        resolve("secret:mine/bux")
    assert isinstance(caught.value.__cause__, JavaError)
    assert TEXT not in str(caught.value)


# ------------------------------------------------------------------ service credentials of Unity Catalog


def token_of(target: Target) -> str:
    async def token() -> Any:
        return await target.connection.host_and_credential()[1].get_token("https://servicebus.azure.net/.default")

    return run(token).token


def test_service_credential_of_a_notebook_is_a_target(shell: Any) -> None:
    shell.user_ns["dbutils"] = dbutils = DbUtils({})
    dbutils.credentials = Credentials(["bus reader"])
    target = resolve(f"credential:bus reader@{HOST}")
    assert (target.connection.host, target.found_by) == (HOST, "a service credential of Unity Catalog")
    assert token_of(target) == "token of bus reader for https://servicebus.azure.net/.default"


@pytest.mark.parametrize("is_task", [True, False])
def test_service_credential_is_found_in_a_task_or_a_notebook(
    shell: Any, monkeypatch: pytest.MonkeyPatch, *, is_task: bool
) -> None:
    monkeypatch.setitem(sys.modules, "databricks", ModuleType("databricks"))
    monkeypatch.setitem(sys.modules, "databricks.service_credentials", TaskCredentials(["bus"], is_task=is_task))
    if not is_task:
        shell.user_ns["dbutils"] = dbutils = DbUtils({})
        dbutils.credentials = Credentials(["bus"])
    target = NamespaceTarget(f"credential:bus@{HOST}")
    assert NamespaceTarget.of(target.connection()) == pickle.loads(pickle.dumps(target)) == target  # noqa: S301
    assert token_of(Target(target.connection(), "")).startswith("token of bus")
    with pytest.raises(ConfigurationError, match="gave this process no service credential 'other'") as told:
        resolve(f"credential:other@{HOST}")
    assert "\n" not in str(told.value)


# ------------------------------------------------------------------ the emulator


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield default_data_dir()
    stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_emulator_is_a_target_and_the_last_default(own_data: Path) -> None:
    target = resolve(" Emulator ")
    assert target.connection.is_emulator
    assert target.found_by == "local emulator"
    assert own_data.is_dir()
    default = resolve()
    assert default.connection.connection_string == target.connection.connection_string
    assert default.found_by.startswith("local emulator (neither SBNOTEBOOK_CONNECTION nor ")
