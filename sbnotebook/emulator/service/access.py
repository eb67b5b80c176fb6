"""Access: shared access keys, the tokens that are signed with them, and the claims that they grant.

A token is checked once, when a client sends it. A connection remembers the claims of its tokens.

Sources: Service Bus documentation, "Service Bus access control with Shared Access Signatures" and
"AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide", "Claims-based authorization".
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final
from urllib.parse import unquote, unquote_plus

from sbnotebook.emulator.clock import Clock
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from sbnotebook.emulator.entities.queue import Queue, Topic
from sbnotebook.emulator.entities.refusals import KNOW_MORE, Condition, RefusedError
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model.address import EntityAddress

SEND, LISTEN, MANAGE = Claim.SEND, Claim.LISTEN, Claim.MANAGE

_PREFIX: Final = "SharedAccessSignature "
_MAX_TOKEN: Final = 8192
_SECONDS: Final = re.compile(r"[0-9]{1,11}")
_MAX_ADDRESS: Final = 260
_MAX_TOKENS: Final = 1000  # Tokens of one connection; it needs one for each entity that it uses
MANAGEMENT: Final = "/$management"
_SASL: Final = "$sasl"  # The audience of a key that a client logged in with: no path of an entity
# The end of an entity's path, and the beginning of the path of something inside of it
_INSIDE_ENTITY: Final = re.compile(r"/subscriptions/|/\$")


ROOT_RULE: Final = AuthorizationRule("RootManageSharedAccessKey", "SAS_KEY_VALUE", "", frozenset(Claim))
"""The key of the emulator's connection string. It is a well-known one, and no secret."""


@dataclass(frozen=True, slots=True)
class Grant:
    scope: str  # path for which the token was made, in lower case; "" for the whole namespace
    entity: str | None  # the queue or topic whose own key signed it, in lower case; None for a key of the namespace
    claims: frozenset[str]  # the claims of the key; Manage includes the others
    until: float  # time when the token expires (ms); infinite for a key, which a client logged in with

    def covers(self, path: str) -> bool:
        """Return whether the token is for this path, with any claim."""
        path = path.casefold()
        return f"{path}/".startswith(self.scope and f"{self.scope}/") and self.entity in (None, _entity(path))

    def expect(self, path: str) -> None:
        if not self.covers(path):
            raise _refused(
                "InvalidAudience: The authorization contains a token with a wrong audience: "
                f"it is not for '{path[:_MAX_ADDRESS]}'."
            )

    def allows(self, path: str, *claims: str) -> bool:
        return self.covers(path) and not self.claims.isdisjoint((*claims, MANAGE))


class NamespaceAccess:
    def __init__(self, registry: Registry, clock: Clock) -> None:
        self.rules: tuple[AuthorizationRule, ...] = (ROOT_RULE,)  # the keys for the whole namespace
        # By which tokens expire: the machine's, as for the clients that make them, also where a test moves the other.
        self.clock = clock
        self._registry = registry

    def grant(self, token: str) -> Grant:
        fields = _fields(token)
        scope = _scope(unquote_plus(fields["sr"]))
        rule, entity = self._signer(fields, scope)
        until = int(fields["se"]) * 1000
        if until <= self.clock.now():
            end = datetime.fromtimestamp(int(fields["se"]), UTC)
            raise _refused(f"ExpiredToken: The token is expired. Expiration time: '{end:%Y-%m-%d %H:%M:%SZ}'.")
        return Grant(scope, entity, rule.claims, until)

    def log_in(self, key_name: str, key: str) -> Grant | None:
        # A key of the namespace first: an entity may have the same.
        for rule, path in (*self._rules(), *self._rules(*self._registry.entities)):
            if rule.key_name == key_name and any(hmac.compare_digest(each, key.encode()) for each in _keys(rule)):
                return Grant(path or "", path, rule.claims, inf)
        return None

    def expect(self, address: str) -> None:
        """Check that an entity exists, given its address or that of its management node.

        For a subscription its topic is enough: Azure refuses the link instead (azure-sdk-for-net 6943).
        """
        path = _scope(address).removesuffix(MANAGEMENT)
        topic, is_subscription, _ = path.partition("/subscriptions/")
        found = self._registry.find(path) or (self._registry.find_topic(topic) if is_subscription else None)
        if path and found is None:
            asked = f"sb://{address.split('://', 1)[-1].partition('?')[0]}"
            raise RefusedError(
                Condition.NOT_FOUND, f"The messaging entity '{asked[:_MAX_ADDRESS]}' could not be found."
            )

    def require_manage(self, host: str, path: str, token: str | None) -> None:
        if token is None:
            raise _refused(
                "MissingToken: Send a header 'Authorization: SharedAccessSignature …', signed with a key that may "
                "manage."
            )
        grant = self.grant(token)
        grant.expect(path)
        if not grant.allows(path, MANAGE):
            raise _refused(_unauthorized(host, path, MANAGE))

    def _signer(self, fields: dict[str, str], scope: str) -> tuple[AuthorizationRule, str | None]:
        """Return the key that signed a token, and the entity to which it belongs; None for the namespace."""
        signed = f"{fields['sr']}\n{fields['se']}".encode(errors="replace")
        signature = unquote(fields["sig"]).encode(errors="replace")
        name = unquote_plus(fields["skn"])
        named = [each for each in self._rules(self._registry.find(_entity(scope))) if each[0].key_name == name]
        for rule, entity in named:
            digests = (hmac.digest(key, signed, "sha256") for key in _keys(rule))
            if any(hmac.compare_digest(base64.b64encode(digest), signature) for digest in digests):
                return rule, entity
        place = f"'{scope[:260]}' or the namespace" if scope else "the namespace"
        hint = (
            f"Check SharedAccessKey: it is not the key {name[:80]!r}."
            if named
            else f"Check SharedAccessKeyName: there is no key {name[:80]!r} for {place}."
        )
        raise _refused(f"InvalidSignature: The token has an invalid signature. {hint}")

    def _rules(self, *entities: object) -> Iterator[tuple[AuthorizationRule, str | None]]:
        """Yield the keys of these queues and topics, each with its path in lower case, and those of the namespace."""
        for entity in entities:
            if isinstance(entity, Queue | Topic):
                yield from ((rule, entity.path.casefold()) for rule in entity.options.authorization_rules)
        yield from ((rule, None) for rule in self.rules)


class ConnectionAccess:
    def __init__(
        self,
        namespace: NamespaceAccess,
        on_expired: Callable[[], None],
        on_granted: Callable[[], None] = lambda: None,
    ) -> None:
        self._namespace = namespace
        self._on_expired = on_expired
        self._on_granted = on_granted
        self._grants: dict[str, Grant] = {}
        self._host = "emulator"
        self._cancel_alarm: Callable[[], object] = lambda: None

    def missing(self, path: str) -> RefusedError:
        """Return the error for an entity that does not exist, with Azure's name for a subscription.

        Source: MicrosoftDocs/azure-docs 73870, azure-sdk-for-net 7907.
        """
        with suppress(InvalidEntityAddressError):
            address = EntityAddress.parse(path)
            if address.subscription is not None:
                namespace = namespace_of(self._host.partition(":")[0])
                path = f"{namespace}:Topic:{address.name.casefold()}|{address.subscription.casefold()}"
        sentence = f"The messaging entity '{path[:_MAX_ADDRESS]}' could not be found. {KNOW_MORE}"
        return RefusedError(Condition.NOT_FOUND, sentence)

    def put_token(self, token: str, audience: str = "") -> None:
        """Accept a token, which replaces an earlier one for the same audience."""
        grant = self._namespace.grant(token)
        address = audience if "://" in audience else f"sb://{self._host}/{grant.scope}"
        path = _scope(address)
        grant.expect(path)
        self._namespace.expect(address)
        self._host = _host(address) or self._host
        self._grants.pop(path, None)
        self._grants[path] = grant
        if len(self._grants) > _MAX_TOKENS:
            del self._grants[next(iter(self._grants))]
        self._set_alarm()
        self._on_granted()

    def log_in(self, key_name: str, key: str) -> bool:
        """Accept a client that logs in with a key itself (SASL PLAIN), and return whether there is such a key."""
        grant = self._namespace.log_in(key_name, key)
        if grant is not None:
            self._grants[_SASL] = grant
            self._on_granted()
        return grant is not None

    def require(self, path: str, *claims: str) -> None:
        now = self._namespace.clock.now()
        if not any(grant.until > now and grant.allows(path, *claims) for grant in self._grants.values()):
            raise _refused(_unauthorized(self._host, path, *claims))

    def close(self) -> None:
        self._grants.clear()
        self._set_alarm()

    def _set_alarm(self) -> None:
        self._cancel_alarm()
        ends = [round(grant.until) for grant in self._grants.values() if grant.until < inf]
        if ends:
            self._cancel_alarm = self._namespace.clock.wake_at(min(ends), self._expire)

    def _expire(self) -> None:
        now = self._namespace.clock.now()
        self._grants = {path: grant for path, grant in self._grants.items() if grant.until > now}
        self._set_alarm()
        self._on_expired()


def _refused(sentence: str) -> RefusedError:
    return RefusedError(Condition.UNAUTHORIZED_ACCESS, sentence)


def _fields(token: str) -> dict[str, str]:
    """Return the fields of a token, still encoded as they were when they were signed."""
    if not token.startswith(_PREFIX):
        raise _refused("MalformedToken: The emulator accepts only shared access signatures: connect with a key.")
    # Too long, a field twice, or a field missing: the token is refused as a whole.
    pairs = [pair.partition("=") for pair in token.removeprefix(_PREFIX)[:_MAX_TOKEN].split("&")]
    fields = {name: value for name, _, value in pairs}
    is_whole = len(token) <= _MAX_TOKEN and len(fields) == len(pairs) and {"sr", "sig", "se", "skn"} <= fields.keys()
    if not is_whole or not _SECONDS.fullmatch(fields["se"]):
        raise _refused(
            f"MalformedToken: The token must have sr, sig, se in seconds and skn, and at most {_MAX_TOKEN} characters."
        )
    return fields


def _keys(rule: AuthorizationRule) -> list[bytes]:
    # A rule need not have a second key: anyone could sign with an empty one.
    return [key.encode() for key in (rule.primary_key, rule.secondary_key) if key]


def namespace_of(host: str) -> str:
    """Return the name of the namespace: the first label of the host, unless the host is an IP address."""
    return host if host.replace(".", "").isdecimal() or ":" in host else host.partition(".")[0]


def _host(address: str) -> str:
    return address.split("://", 1)[1].partition("?")[0].partition("/")[0] if "://" in address else ""


def _scope(address: str) -> str:
    """Return the path of an address, in lower case, without scheme, host, port and query.

    The administration client for JavaScript asks for a token for the whole address of its request, query included.
    """
    return address.split("://", 1)[-1].partition("?")[0].partition("/")[2].strip("/").casefold()


def _entity(path: str) -> str:
    return _INSIDE_ENTITY.split(path, maxsplit=1)[0]


def _unauthorized(host: str, path: str, *claims: str) -> str:
    # Azure names the path in lower case here: azure-sdk-for-net 11619.
    return (
        f"Unauthorized access. '{','.join(claims)}' claim(s) are required to perform this operation. "
        f"Resource: 'sb://{host}/{path.casefold()[:_MAX_ADDRESS]}'."
    )
