from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from sbnotebook.client.targets import NamespaceTarget, resolve
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.connection_strings import EMULATOR_HOSTS, Hidden, hidden, host_of, read_connection_string
from sbnotebook.settlement import Connection
from sbnotebook.settlement.connecting.administration_clients import administration_client

KEY = "cGxhbnRlZC1wbGFudGVkLXBsYW50ZWQ"
TEXT = f"Endpoint=sb://HOST/;SharedAccessKeyName=root;SharedAccessKey={KEY};UseDevelopmentEmulator=true"
# Those of Microsoft's "Test locally by using the Service Bus emulator", and a namespace in Azure.
REMOTE = ["host.docker.internal", "servicebus-emulator:5672", "10.0.0.4", "shop.servicebus.windows.net"]


def at(host: str) -> str:
    return TEXT.replace("HOST", host)


@pytest.mark.parametrize("host", REMOTE)
def test_an_emulator_on_another_machine_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EMULATOR_HOSTS, raising=False)
    for make in (Connection, resolve, administration_client):
        with pytest.raises(
            ConfigurationError, match=r"unencrypted: say allow_remote=True, or set SBNOTEBOOK_"
        ) as refused:
            make(at(host))
        assert KEY not in str(refused.value)
    remote = Connection(at(host), allow_remote=True)
    assert remote.is_emulator
    remote.administration_client()
    assert resolve(at(host), allow_remote=True).connection.is_emulator


@pytest.mark.parametrize("host", ["host.docker.internal", "SB-Emulator:5672"])
def test_the_environment_names_hosts_of_emulators(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EMULATOR_HOSTS, "host.docker.internal, sb-emulator")
    assert Connection(at(host)).is_emulator
    with pytest.raises(ConfigurationError, match="SBNOTEBOOK_EMULATOR_HOSTS=other in the environment"):
        Connection(at("other"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:5672", "127.8.0.1", "LocalHost"])
def test_an_emulator_on_this_machine_needs_no_option(host: str) -> None:
    assert Connection(at(host)).is_emulator


@pytest.mark.parametrize("host", ["[::1]", "[::1]:5672", "[fe80::1]:5300", "[::]"])
def test_an_ipv6_address_is_refused_with_the_reason(host: str) -> None:
    for text in (at(host), at(host).replace("true", "false")):
        with pytest.raises(ConfigurationError, match="an IPv6 address, which azure-servicebus cannot read"):
            Connection(text)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("HOST", "shop").replace("UseDevelopmentEmulator=true", "EntityPath=UseDevelopmentEmulator=true"),
        TEXT.replace("HOST", "shop").replace(";Use", ";NotUse"),
        TEXT.replace("HOST", "shop").replace("root", "UseDevelopmentEmulator=true").rpartition(";")[0],
        at("shop").replace("true", "false"),
    ],
    ids=["in another part", "in a name", "in a key's name", "false"],
)
def test_a_field_alone_makes_an_emulator(text: str) -> None:
    assert "UseDevelopmentEmulator=" in text
    assert not Connection(text).is_emulator


def test_the_field_is_true_or_false() -> None:
    assert Connection(
        at("localhost").replace("UseDevelopmentEmulator=true", "usedevelopmentemulator = True")
    ).is_emulator
    with pytest.raises(ConfigurationError, match="neither true nor false"):
        Connection(at("localhost").replace("=true", "=1"))


@pytest.mark.parametrize("endpoint", ["sb://shop:1", "sb://shop:65535/", "sb://65536/", "65536"])
def test_a_host_may_have_any_port(endpoint: str) -> None:
    assert host_of(endpoint) == endpoint.removeprefix("sb://").rstrip("/")


@pytest.mark.parametrize(
    ("name", "key", "fault"),
    [
        ("root", "a2V5\u00e4", "a key with characters that no key has"),
        ("root", "a2V5\x01", "a key with characters that no key has"),
        ("root\ud800", KEY, "a SharedAccessKeyName that is not text"),
        ("\ud800\uffff", KEY, "a SharedAccessKeyName that is not text"),
    ],
)
def test_what_cannot_be_sent_is_refused(name: str, key: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=f"has {fault}") as refused:
        read_connection_string(f"Endpoint=sb://shop/;SharedAccessKeyName={name};SharedAccessKey={key}")
    assert key not in str(refused.value)


def test_the_sdk_gets_nothing_that_was_not_read_here() -> None:
    # The SDK takes the last of Endpoint and HostName.
    text = at("localhost:5672").replace(";UseDev", ";HostName=sb://elsewhere.test; Use Dev=1;UseDev")
    with ServiceBusClient.from_connection_string(text) as theirs:
        assert theirs.fully_qualified_namespace.startswith("elsewhere.test")
    ours = Connection(text).new_client(retries=0)
    assert ours.fully_qualified_namespace == "localhost:5672"


def test_a_hidden_text_shows_nothing() -> None:
    secret = Hidden(KEY)
    assert KEY not in f"{secret} {secret!r} {[secret]} {read_connection_string(at('localhost'))!r}"
    assert hidden(secret) is secret
    assert (secret, hash(secret), secret.reveal()) == (Hidden(KEY), hash(Hidden(KEY)), KEY)
    assert secret != KEY
    assert Hidden("a") != Hidden("b")
    assert Hidden("b") != Hidden("a")
    not_a_text: Any = KEY.encode()
    assert (hidden(None), hidden(not_a_text)) == (None, Hidden(""))


@pytest.mark.parametrize(
    "thing", [Hidden(KEY), read_connection_string(at("localhost")), Connection(at("localhost"))], ids=type
)
def test_no_pickle_has_a_key(thing: object) -> None:
    with pytest.raises(ConfigurationError, match="is not pickled, because its key would be in the bytes: connect anew"):
        pickle.dumps(thing)
    assert copy.copy(Connection(at("localhost"))).is_emulator


def test_a_target_for_other_processes_is_pickled() -> None:
    target = NamespaceTarget(at("host.docker.internal"))
    again = pickle.loads(pickle.dumps(target))  # noqa: S301 (made here)
    assert again == target
    assert again.connection().host == "host.docker.internal", "it was allowed on the driver"
    assert KEY not in repr(again)
