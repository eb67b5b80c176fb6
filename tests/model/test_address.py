from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model import EntityAddress, SubQueue
from sbnotebook.testing.strategies import entity_addresses


def parts(address: EntityAddress) -> tuple[str, str | None, SubQueue | None]:
    return address.name, address.subscription, address.sub_queue


@given(entity_addresses())
def test_both_spellings_of_an_address_are_read_as_the_same(address: EntityAddress) -> None:
    # Equality looks at the path only, so the parts are compared, too.
    assert parts(EntityAddress.parse(str(address))) == parts(address)
    assert parts(EntityAddress.parse(address.path)) == parts(address)
    assert EntityAddress.parse(str(address)) == EntityAddress.parse(address.path) == address


@given(entity_addresses())
def test_upper_and_lower_case_are_the_same(address: EntityAddress) -> None:
    for text in (address.path.upper(), address.path.lower(), str(address).swapcase()):
        assert EntityAddress.parse(text) == address
        assert hash(EntityAddress.parse(text)) == hash(address)


@given(entity_addresses(), st.sampled_from(["", " ", "/", " /", "\t"]), st.sampled_from(["", " ", "\n"]))
def test_spaces_around_and_a_slash_before_are_left_out(address: EntityAddress, before: str, after: str) -> None:
    assert EntityAddress.parse(f"{before}{address}{after}") == address


@given(entity_addresses(), st.sampled_from(["/", "/ ", "//", "/$", "/$ "]))
def test_a_slash_at_the_end_is_refused(address: EntityAddress, end: str) -> None:
    with pytest.raises(InvalidEntityAddressError, match=r"single quotes|names no known sub-queue"):
        EntityAddress.parse(f"{address}{end}")


@pytest.mark.parametrize("text", ["orders/", " /orders/ ", "events/subscriptions/audit/", "orders//"])
def test_what_a_shell_leaves_is_refused_with_a_hint_on_quotes(text: str) -> None:
    with pytest.raises(InvalidEntityAddressError, match=r"ends with a slash.*a shell.*'orders/\$dlq'|'events/.*\$dlq'"):
        EntityAddress.parse(text)


@given(entity_addresses())
def test_an_address_stays_one(address: EntityAddress) -> None:
    assert EntityAddress.parse(address) is address
    assert EntityAddress.parse(address) == address
    assert pickle.loads(pickle.dumps(address)) == address  # noqa: S301


@given(st.text() | st.text(alphabet="a/$.-_ \n", max_size=12))
@example("a/subscriptions/b/$dlq/$dlq")
@example("subscriptions/subscriptions/subscriptions")
@example("/".join(["$"] * 1000))
@example("a" * 100_000)
@example("٣/٣")
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = EntityAddress.parse(text)
    except InvalidEntityAddressError as error:
        shown = str(error)
    else:
        assert parts(EntityAddress.parse(address.path)) == parts(address)
        shown = address.path
    assert shown.isprintable()
    assert len(shown) < 600


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", ("orders", None, None)),
        ("team-a/orders", ("team-a/orders", None, None)),
        ("orders/$dlq", ("orders", None, SubQueue.DEAD_LETTER)),
        ("orders/$DEADLETTERQUEUE", ("orders", None, SubQueue.DEAD_LETTER)),
        ("orders/$transfer", ("orders", None, SubQueue.TRANSFER_DEAD_LETTER)),
        ("orders/$Transfer/$DeadLetterQueue", ("orders", None, SubQueue.TRANSFER_DEAD_LETTER)),
        ("events/subscriptions/audit", ("events", "audit", None)),
        ("a/b/SUBSCRIPTIONS/audit/$dlq", ("a/b", "audit", SubQueue.DEAD_LETTER)),
        ("subscriptions/audit", ("subscriptions/audit", None, None)),
        ("a/b/c", ("a/b/c", None, None)),
        ("x/y/z", ("x/y/z", None, None)),
        ("-_.~/.orders-", ("-_.~/.orders-", None, None)),
        ("órders$1", ("órders$1", None, None)),
        ("events-/Subscriptions/.audit-/$dlq", ("events-", ".audit-", SubQueue.DEAD_LETTER)),
    ],
)
def test_addresses_are_read_as_users_type_them(text: str, expected: tuple[str, str | None, SubQueue | None]) -> None:
    assert parts(EntityAddress.parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " / ",
        "$dlq",
        "$management",
        "orders/$unknown",
        "orders/$dlq/$dlq",
        "orders//x",
        "..",
        "orders/./x",
        "orders?x",
        "orders\\x",
        "orders@host",
        "or ders",
        "orders\x00",
        "orders;drop",
        "<script>alert(1)</script>",
        "../../etc/passwd",
        "a" * 261,
        "events/subscriptions/" + "s" * 51,
        "events/subscriptions/a b",
        "events/subscriptions//$dlq",
    ],
)
def test_an_invalid_address_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(
        InvalidEntityAddressError, match=r"Write QUEUE, TOPIC or TOPIC/subscriptions/NAME|did you mean orders/\$dlq\?"
    ):
        EntityAddress.parse(text)


@pytest.mark.parametrize(
    "name", ["events/subscriptions/audit", "orders/$dlq", "a/$Transfer/$DeadLetterQueue", "$DLQ", ""]
)
def test_a_name_that_would_be_read_as_another_place_is_refused(name: str) -> None:
    with pytest.raises(InvalidEntityAddressError):
        EntityAddress(name)


def test_a_name_that_the_service_lists_is_never_refused() -> None:
    for name in ("a b", "a//b", "\u200bx", "<b>", "x" * 500):
        assert EntityAddress(name, name).dead_letter.entity.name == name


def test_names_on_the_wire_are_the_services_own() -> None:
    address = EntityAddress.parse("events/subscriptions/audit/$dlq")
    assert address.path == "events/Subscriptions/audit/$DeadLetterQueue"
    assert EntityAddress.parse("orders/$transfer").path == "orders/$Transfer/$DeadLetterQueue"
    assert str(address) == "events/subscriptions/audit/$dlq"


def test_the_places_around_an_address() -> None:
    address = EntityAddress.parse("events/subscriptions/audit/$dlq")
    assert address.entity == EntityAddress("events", "audit")
    assert address.entity.dead_letter == address
    assert address.sends_to == EntityAddress("events")


def test_an_address_is_no_text() -> None:
    assert EntityAddress("orders") != "orders"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("invoices", "orders"),
        ("events/subscriptions/audit", "events/subscriptions/billing"),
        ("events/subscriptions/audit", "sales/subscriptions/audit"),
        ("events", "events/subscriptions/audit"),
        ("orders", "orders/$dlq"),
        ("orders/$dlq", "orders/$transfer"),
    ],
)
def test_addresses_of_other_places_differ(one: str, other: str) -> None:
    assert EntityAddress.parse(one) != EntityAddress.parse(other)
    assert EntityAddress.parse(other) != EntityAddress.parse(one)


def test_names_have_a_longest_length() -> None:
    assert EntityAddress.parse("a" * 260).name == "a" * 260
    assert EntityAddress.parse("events/subscriptions/" + "s" * 50).subscription == "s" * 50
    for text in ("a" * 261, "events/subscriptions/" + "s" * 51):
        with pytest.raises(InvalidEntityAddressError):
            EntityAddress.parse(text)


@pytest.mark.parametrize("text", ["?" * 81, "events/subscriptions/" + "-" * 81, "orders/$" + "-" * 81])
def test_a_long_invalid_address_is_quoted_up_to_80_characters(text: str) -> None:
    with pytest.raises(InvalidEntityAddressError) as refused:
        EntityAddress.parse(text)
    quoted = str(refused.value).split("'")[1]
    assert len(quoted) == 80
    assert quoted in text


def test_a_long_name_is_shown_up_to_80_characters_in_advice() -> None:
    with pytest.raises(InvalidEntityAddressError) as refused:
        EntityAddress.parse("a" * 81 + "/$dlg")
    assert str(refused.value).endswith(f": did you mean {'a' * 80}/$dlq?")
