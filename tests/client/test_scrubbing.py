from __future__ import annotations

import traceback

import pytest

from sbnotebook.client.scrubbing import scrubbed, secrets_of
from sbnotebook.errors import InvalidEntityAddressError, MissingExtraError, SbNotebookError
from sbnotebook.model import EntityAddress

KEY = "YWJjZGVmZ2hpamtsbW5vcA=="
TEXT = f"Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={KEY}"


def fail_with_causes() -> None:
    try:
        try:
            raise OSError(f"cannot reach {TEXT}")  # noqa: TRY301
        except OSError as error:
            raise ValueError(f"no token for {TEXT}") from error
    except ValueError:
        raise LookupError(f"({KEY}) tried SharedAccessSignature=sig%3D1\nand sig=abc&se=1")  # noqa: B904


def test_no_secret_is_left_in_an_error_or_in_what_caused_it() -> None:
    with pytest.raises(SbNotebookError) as caught, scrubbed(secrets_of(TEXT)):
        fail_with_causes()
    shown = "".join(traceback.format_exception(caught.value))
    assert str(caught.value) == "LookupError: (***==) tried SharedAccessSignature=*** and sig=***&se=1"
    assert KEY not in shown
    assert "cannot reach" not in shown
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_users_see_the_stack_from_the_block_on_only() -> None:
    @scrubbed()
    def outer() -> None:
        EntityAddress.parse("")

    with pytest.raises(InvalidEntityAddressError) as caught:
        outer()
    stack = traceback.format_exception(caught.value)
    assert "address.py" not in "".join(stack)
    assert len(stack) == 5


def test_the_first_error_of_a_group_is_told() -> None:
    with pytest.raises(SbNotebookError, match=r"^KeyError: 'a'$"), scrubbed():
        raise ExceptionGroup("several", [ExceptionGroup("more", [KeyError("a")]), ValueError("b")])


def test_an_error_of_our_own_without_a_secret_stays_what_it_is() -> None:
    for error in (InvalidEntityAddressError("no address"), MissingExtraError("Spark", "spark")):
        with pytest.raises(type(error)) as caught, scrubbed([KEY]):
            raise error
        assert caught.value is error


def test_an_error_of_our_own_with_a_secret_is_told_without_it() -> None:
    with pytest.raises(SbNotebookError, match=r"^\*\*\* is no address$"), scrubbed([KEY]):
        raise InvalidEntityAddressError(f"{KEY} is no address")


@pytest.mark.parametrize("target", ["", "emulator", "name.servicebus.windows.net"])
def test_what_is_no_connection_string_holds_no_secret(target: str) -> None:
    assert secrets_of(target) == ()


def test_a_key_is_taken_out_of_a_url_too() -> None:
    assert "a%2Bb%2F" in secrets_of("Endpoint=sb://n/;SharedAccessKey=a+b/=")


def test_a_signature_is_a_secret_too() -> None:
    assert "sr=x&sig=y" in secrets_of("Endpoint=sb://n/;SharedAccessSignature=sr=x&sig=y")
