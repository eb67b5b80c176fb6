from __future__ import annotations

import pytest

from sbnotebook.client import async_namespace, connect
from sbnotebook.client.targets import About, Target
from sbnotebook.emulator import RunningEmulator
from tests.azure import HOST
from tests.settlement.connecting.test_connection_sign_in import Credential, with_account

SECRET = "c2VjcmV0a2V5"


def test_connect_warns_of_a_sign_in_that_is_not_confirmed(
    shared_emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(with_account(shared_emulator, Credential()), "a test")

    def resolve(*_: object, **__: object) -> Target:  # a credential needs TLS, which none here has
        return target

    monkeypatch.setattr(async_namespace, "resolve", resolve)
    said = f"{HOST} answered, and has not confirmed anna@example.org: the sign-in is checked at the first use."
    with pytest.warns(UserWarning, match=said):
        connect(HOST).close()


@pytest.mark.parametrize(
    ("is_confirmed", "line"),
    [
        (True, "Connected to  contoso.servicebus.windows.net (Azure)"),
        (False, "Connected to  contoso.servicebus.windows.net (Azure); the sign-in is checked at the first use"),
    ],
)
def test_about_says_whether_the_sign_in_is_confirmed(is_confirmed: bool, line: str) -> None:
    about = About(HOST, False, None, "anna@example.org", is_confirmed, "Microsoft Entra ID", True)
    assert repr(about).splitlines()[0] == line
    assert line[14:] in about._repr_html_()  # pyright: ignore[reportPrivateUsage]
