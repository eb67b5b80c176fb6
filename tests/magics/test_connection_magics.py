from __future__ import annotations

import pytest

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim, QueueOptions
from sbnotebook.settlement import Connection
from tests.azure import HOST, take_place
from tests.magics.conftest import Kernel, Shell

SECRET = "c2VjcmV0a2V5"


@pytest.fixture(scope="module")
def keyed(emulator: RunningEmulator) -> str:
    """A connection string with a key that is a secret."""
    rule = AuthorizationRule("n", SECRET, "", frozenset({Claim.LISTEN}))
    emulator.create_queue("keyed", QueueOptions(authorization_rules=(rule,)))
    endpoint = emulator.connection_string.partition(";")[0]
    return f"{endpoint};SharedAccessKeyName=n;SharedAccessKey={SECRET};UseDevelopmentEmulator=true;EntityPath=keyed"


@pytest.fixture
def azure(emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch) -> str:
    """The host of a namespace that counts as one in Azure."""
    monkeypatch.setattr(Connection, "with_credential", Connection.with_credential)  # puts it back
    take_place(emulator.connection_string)
    return HOST


def test_connect_shows_the_connection(unconnected: Shell, emulator: RunningEmulator) -> None:
    ran = unconnected.run(f"%sb_connect {emulator.connection_string}")
    host = emulator.connection_string.split("//")[1].split(";")[0].rstrip("/")
    assert ran.out.splitlines() == [
        f"Connected to  {host} (emulator, Premium)",
        "signed in as  the key RootManageSharedAccessKey",
        "source        a connection string",
        "writing       on",
    ]
    assert ran.value is None


def test_connect_without_a_target_reads_the_environment(
    unconnected: Shell, keyed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICEBUS_CONNECTION_STRING", keyed)
    ran = unconnected.run("%sb_connect")
    assert "(emulator)\nsigned in as  the key n\n" in ran.out
    assert "source        the environment variable SERVICEBUS_CONNECTION_STRING\n" in ran.out
    assert SECRET not in ran.out + repr(unconnected.variables)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("127.0.0.1", "ServiceBusConnectionError: Nothing listens at 127.0.0.1: check the name, and the firewall."),
        ("no-such-host.invalid", "ServiceBusConnectionError: There is no host no-such-host.invalid: check the"),
    ],
)
def test_connect_says_connected_only_after_contact(unconnected: Shell, target: str, says: str) -> None:
    ran = unconnected.run(f"%sb_connect {target}")
    assert ran.out == ""
    assert says in ran.err
    assert unconnected.error("%sb_peek orders") == "There is no connection: run %sb_connect first."


def test_connect_with_a_wrong_key_says_what_to_do(unconnected: Shell, keyed: str) -> None:
    unconnected.variables["mine"] = keyed.replace("EntityPath=keyed", "EntityPath=other")
    ran = unconnected.run("%sb_connect $mine")
    assert ran.out == ""
    assert "refuses the key n for other. Either it is wrong or has expired, or" in ran.err
    assert SECRET not in ran.err


def test_a_connection_that_cannot_be_made_again_stays_as_it_was(unconnected: Shell) -> None:
    with running() as ended:
        unconnected.run(f"%sb_connect {ended.connection_string} --read-only --into namespace")
    assert "Nothing listens" in unconnected.run("%sb_connect --write").err
    assert unconnected.variables["namespace"].read_only
    assert "Nothing listens" in unconnected.run("%sb_connect --write").err, "not at another namespace"


def test_connect_outside_the_emulator_is_read_only(
    unconnected: Shell, azure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_BUS", azure)
    assert (
        "writing       off: nothing can be changed; %sb_connect --write turns it on"
        in unconnected.run("%sb_connect env:MY_BUS").out
    )
    ran = unconnected.run("%sb_send orders 'text' --yes")
    assert "Plan: send 1 message to orders on contoso." in ran.out
    assert "so nothing was done: turn it on with %sb_connect --write" in ran.err
    assert "Azure" in unconnected.run("%sb_connect --write --into namespace").out
    assert not unconnected.variables["namespace"].read_only
    unconnected.run("%sb_connect env:MY_BUS --into namespace")
    assert unconnected.variables["namespace"].read_only, "each connection begins anew"


def test_the_emulator_can_be_only_looked_at(unconnected: Shell, emulator: RunningEmulator) -> None:
    emulator.create_queue("looked-at")
    unconnected.run(f"%sb_connect {emulator.connection_string}\n%sb_send looked-at 'a'\n%sb_lock looked-at")
    ran = unconnected.run("%sb_connect --read-only")
    assert ran.out.startswith("Released 1 of the messages that were held before.\nConnected to")
    assert unconnected.error("%sb_lock looked-at").endswith("or in Python with connect(…, write=True).")
    dry = unconnected.run("%sb_pick looked-at -n 1 --complete --dry-run").value
    assert len(dry) == 1, "a plan can be made"
    assert emulator.counts("looked-at").active == 1
    assert "writing       on" in unconnected.run("%sb_connect --write").out
    assert unconnected.run("%sb_pick looked-at -n 1 --complete").value.ok


def test_prompt_asks_without_echo_and_keeps_no_variable(kernel: Kernel, keyed: str) -> None:
    ran = kernel.run("%sb_connect --prompt", answer=keyed)
    assert [prompt["password"] for prompt in ran.prompts] == [True]
    assert SECRET not in ran.text
    ran = kernel.run("%sb_connect --write", answer="not this")
    assert ran.prompts == []
    assert "signed in as  the key n\n" in ran.text
    planted = "'c2Vjcm' + 'V0a2V5'"
    assert kernel.run(f"print({planted} in repr(globals()), len(In))").text.startswith("False ")
    assert kernel.run(f"import json\nprint({planted} in json.dumps(In))").text.strip() == "False"


def test_prompt_where_nobody_can_be_asked_says_what_else(kernel: Kernel) -> None:
    assert "use env:VARIABLE or secret:SCOPE/KEY" in kernel.run("%sb_connect --prompt").text


def test_entities_of_an_empty_namespace_give_advice(unconnected: Shell) -> None:
    with running() as empty:
        unconnected.run(f"%sb_connect {empty.connection_string} --into namespace")
        shown = unconnected.run("%sb_entities").value
        assert repr(shown).startswith("There are no entities in this namespace: %sb_create queue orders")
        assert "%sb_create queue orders" in shown._repr_html_()
        unconnected.run("%sb_create queue orders")
        assert "orders" in unconnected.run("%sb_entities").value._repr_html_()
        unconnected.run("%sb_connect env:NOT_SET")  # ends the connection while the other end is there


def test_entities_are_created(shell: Shell) -> None:
    ran = shell.run("%sb_create queue new-queue --lock-duration 2m --max-delivery-count 3")
    assert ran.out == "Created the queue new-queue.\n"
    shell.run("%sb_create topic new-topic\n%sb_create subscription new-topic/subscriptions/audit --requires-session")
    shown = repr(shell.run("%sb_entities").value)
    assert all(name in shown for name in ("new-queue", "new-topic ", "new-topic/subscriptions/audit"))
    for wrong in ("subscription new-topic", "queue new-topic/subscriptions/b", "topic new/$dlq"):
        assert shell.error(f"%sb_create {wrong}").startswith(f"A {wrong.split()[0]} is written like ")
    assert "must be from 1 to" in shell.error("%sb_create queue other --max-delivery-count 9999999999")
    assert "maximum of '5' minutes" in shell.error("%sb_create queue other --lock-duration 6m")
    assert "give these options to its subscriptions" in shell.error("%sb_create topic other --requires-session")
