"""A planted key is in no traceback, not even in one with the variables of every function."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sbnotebook.emulator import running
from sbnotebook.emulator.service.access import AuthorizationRule, Claim
from tests.kernels import ran, running_kernel

KEY = "cGxhbnRlZC1wbGFudGVkLXBsYW50ZWQ"
REAL = base64.b64encode(bytes(range(100, 132))).decode()
WRONG = "d3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmc"
PREPARE = """\
import asyncio, os, pickle, sys, traceback
from types import SimpleNamespace
import pyspark
from azure.core.credentials import AzureNamedKeyCredential
from sbnotebook import AsyncNamespace, Complete, connect
from sbnotebook.client.targets import NamespaceTarget, resolve
from sbnotebook.magics.current import Current
from sbnotebook.settlement import Connection
from sbnotebook.settlement.administration import list_entities
from sbnotebook.settlement.connecting.administration_clients import administration_client, async_administration_client
from sbnotebook.spark import load, register
from sbnotebook.spark.options import ReadOptions, StreamOptions, WriteOptions, read_or_stream
from sbnotebook.spark.source import ServiceBusDataSource
secret = lambda name: os.environ[name]
dbutils = SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: os.environ[key]))
def held():
    # What an error collector would take: all variables of the library's and the SDK's functions.
    error = sys.last_value
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_globals is not globals() and "IPython" not in frame.f_code.co_filename:
                print(frame.f_code.co_qualname, {name: repr(value) for name, value in list(frame.f_locals.items())})
        error = error.__cause__ or error.__context__
%xmode Verbose"""
FAILING = [
    *(f"connect(secret('{name}'))" for name in ("BROKEN", "TWICE", "NO_EQUALS", "PORT", "FLAG", "REMOTE", "BYTES")),
    *(f"Connection(secret('{name}'))" for name in ("BROKEN", "TWICE", "NO_EQUALS", "PORT", "FLAG", "REMOTE", "BYTES")),
    "connect('env:BROKEN')",
    "connect('env:REMOTE')",
    "connect('env:ONLY_KEY')",
    "connect(secret('ONLY_KEY'))",
    "connect('env:' + secret('PLANTED'))",
    "connect('secret:' + secret('ONLY_KEY'))",
    "connect('secret:scope/BROKEN')",
    "connect(secret('PLANTED').encode())",
    "Connection(host=secret('PLANTED'), credential=dbutils)",
    "Connection(secret('PLANTED'), host=secret('PLANTED'))",
    "Connection.with_credential(secret('PLANTED'), dbutils)",
    "connect('shop.servicebus.windows.net', credential=AzureNamedKeyCredential('root', secret('REAL')))",
    "AsyncNamespace(Connection(secret('BROKEN')))",
    "administration_client(secret('BROKEN'))",
    "administration_client(secret('REMOTE'))",
    "async_administration_client(secret('FLAG'))",
    "resolve(secret('BROKEN'))",
    "Current().connect(secret('BROKEN'))",
    "register(None, secret('PLANTED'), secret('BROKEN'), secret('PLANTED'))",
    "load(connect(secret('PLANTED')), 'orders', fromSequenceNumber=-1)",
    "read_or_stream({'connectionString': secret('BROKEN'), 'entity': 'orders'})",
    "ReadOptions.parse({'conectionString': secret('PLANTED'), 'entity': 'orders'})",
    "ReadOptions.parse({'fullyQualifiedNamespace': secret('PLANTED'), 'entity': 'orders'})",
    "StreamOptions.parse({'secret.connectionString': secret('PLANTED'), 'entity': 'orders', 'mode': 'x'})",
    "WriteOptions.parse({'target': secret('REMOTE'), 'entity': 'orders'})",
    "ServiceBusDataSource({'connectionstring': secret('BROKEN'), 'entity': 'orders'}).schema()",
    "pickle.dumps(Connection(secret('PLANTED')))",
    "pickle.dumps(connect(secret('PLANTED')))",
    "NamespaceTarget(secret('BROKEN')).connection()",
    "connect(secret('TRANSPORT')).entity('orders').peek()",
    "connect(secret('ENTITY')).entity('bills').peek()",
    "connect(secret('WRONG')).entity('orders').peek()",
    "connect(secret('WRONG')).entity('orders').lock(1)",
    "connect(secret('WRONG')).entity('orders').pick([1], Complete()).apply()",
    "connect(secret('WRONG')).entities()",
    "connect(secret('PLANTED'), write=False).create_queue('x')",
    "asyncio.run(list_entities(Connection(secret('WRONG'))))",
    "administration_client(secret('WRONG')).get_queue('orders', retry_total=0)",
]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    rule = AuthorizationRule("planted", KEY, "", frozenset(Claim))
    with running(keys=[rule], queues=["orders"]) as emulator:
        endpoint = emulator.connection_string.split(";")[0]
        name, emulated = "SharedAccessKeyName=planted", "UseDevelopmentEmulator=true"
        planted = f"{endpoint};{name};SharedAccessKey={KEY};{emulated}"
        yield {
            "PLANTED": planted,
            "WRONG": planted.replace(KEY, WRONG),
            "BROKEN": f"Endpoint=;{name};SharedAccessKey={KEY};",
            "TWICE": f"{planted};SharedAccessKey={WRONG}",
            "NO_EQUALS": f"Endpoint=sb://shop;{KEY};{name};SharedAccessKey={KEY}",
            "PORT": f"Endpoint=sb://shop:70000;{name};SharedAccessKey={KEY}",
            "FLAG": f"{planted}-{KEY}",
            "REMOTE": f"Endpoint=sb://shop.servicebus.windows.net/;{name};SharedAccessKey={KEY};{emulated}",
            "BYTES": f"{planted};SharedAccessKey={KEY}\udcff",
            "ONLY_KEY": f"{KEY}=",
            "REAL": REAL,
            "TRANSPORT": f"{planted};TransportType={KEY}",
            "ENTITY": f"{planted};EntityPath=orders",
        }


@pytest.fixture(scope="module")
def client(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    home = str(tmp_path_factory.mktemp("home"))
    homes = dict.fromkeys(("XDG_DATA_HOME", "IPYTHONDIR"), home)
    with running_kernel(env={**os.environ, **environment, **homes}, cwd=home) as (_, client):
        assert _run(client, PREPARE)[0] == "ok"
        yield client


def _run(client: Any, cell: str) -> tuple[str, str]:
    """The status of a cell, and all that it showed but for its own echo."""
    reply, shown = ran(client, cell)
    return reply["status"], "\n".join(map(str, [*shown, reply]))


def _leaks(text: str) -> list[str]:
    # Also the signature of a token, which is made of the key.
    found = [key for key in (KEY, WRONG, REAL) if key in text or key[:12] in text]
    return [*found, *(["a signature"] if "sig=" in text.replace("sig=***", "") else [])]


def test_no_failing_cell_shows_or_holds_a_key(client: Any) -> None:
    shown: dict[str, tuple[str, str]] = {}
    held: dict[str, str] = {}
    for cell in FAILING:
        shown[cell] = _run(client, cell)
        held[cell] = _run(client, "held()")[1]
    assert [cell for cell, (status, _) in shown.items() if status != "error"] == []
    assert [cell for cell, (_, text) in shown.items() if "Traceback" not in text] == []
    assert sum("***" in text for text in held.values()) > len(FAILING) / 2, "the variables are looked at"
    assert {cell: leaks for cell, (_, text) in shown.items() if (leaks := _leaks(text))} == {}
    assert {cell: leaks for cell, text in held.items() if (leaks := _leaks(text))} == {}


def test_variables_of_the_users_own_are_shown_without_keys(client: Any) -> None:
    cell = "def join(text, key):\n    connect(text)\njoin(secret('BROKEN'), secret('REAL'))"
    assert KEY in _run(client, cell)[1], "the traceback has variables, so the other test could fail"
    assert _run(client, "%load_ext sbnotebook")[0] == "ok"
    status, text = _run(client, cell)
    assert (status, _leaks(text)) == ("error", [])
    assert "SharedAccessKey=***" in text
