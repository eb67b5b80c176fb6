from __future__ import annotations

import traceback

import pytest

from sbnotebook.client.targets import secrets_of
from sbnotebook.errors import InvalidEntityAddressError, MissingExtraError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.spark.scrubbing import scrubbed

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


def test_scrubbed_removes_secrets_from_errors_and_causes() -> None:
    with pytest.raises(SbNotebookError) as caught, scrubbed(secrets_of(TEXT)):
        fail_with_causes()
    shown = "".join(traceback.format_exception(caught.value))
    assert str(caught.value) == "LookupError: (***==) tried SharedAccessSignature=*** and sig=***&se=1"
    assert KEY not in shown
    assert "cannot reach" not in shown
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_scrubbed_cuts_the_stack_at_the_block() -> None:
    @scrubbed()
    def outer() -> None:
        EntityAddress.parse("")

    with pytest.raises(InvalidEntityAddressError) as caught:
        outer()
    stack = traceback.format_exception(caught.value)
    assert "address.py" not in "".join(stack)
    assert len(stack) == 5


@pytest.mark.parametrize("before", range(960, 1010, 7))
def test_scrubbed_hides_a_secret_at_the_border_of_a_long_text(before: int) -> None:
    with pytest.raises(SbNotebookError) as caught, scrubbed([KEY]):
        raise ValueError("x" * before + KEY)
    assert len(str(caught.value)) <= len("ValueError: ") + 1_000
    assert KEY[:3] not in str(caught.value)


def test_in_words_takes_the_first_error_of_a_group() -> None:
    with pytest.raises(SbNotebookError, match=r"^KeyError: 'a'$"), scrubbed():
        raise ExceptionGroup("several", [ExceptionGroup("more", [KeyError("a")]), ValueError("b")])


def test_scrubbed_keeps_our_own_errors_without_secrets() -> None:
    for error in (InvalidEntityAddressError("no address"), MissingExtraError("Spark", "spark")):
        with pytest.raises(type(error)) as caught, scrubbed([KEY]):
            raise error
        assert caught.value is error


def test_scrubbed_cleans_our_own_errors() -> None:
    with pytest.raises(SbNotebookError, match=r"^\*\*\* is no address$"), scrubbed([KEY]):
        raise InvalidEntityAddressError(f"{KEY} is no address")


@pytest.mark.parametrize("target", ["", "emulator", "name.servicebus.windows.net"])
def test_secrets_of_other_targets_are_none(target: str) -> None:
    assert secrets_of(target) == ()


def test_scrubbed_removes_a_key_from_a_url() -> None:
    assert "a%2Bb%2F" in secrets_of("Endpoint=sb://n/;SharedAccessKey=a+b/=")


def test_secrets_of_finds_a_signature() -> None:
    assert "sr=x&sig=y" in secrets_of("Endpoint=sb://n/;SharedAccessSignature=sr=x&sig=y")
