"""Attach a new link: from its address to the handler of its events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from sbnotebook.amqp import AmqpValue, Int, Symbol
from sbnotebook.emulator.amqp.link import Link, ReceivingLink, SendingLink
from sbnotebook.emulator.amqp.performatives import Coordinator
from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.topic import Topic
from sbnotebook.emulator.entities.transaction import SPANS_ENTITIES, root_of
from sbnotebook.emulator.service.access import LISTEN, MANAGEMENT, SEND
from sbnotebook.emulator.service.conditions import KNOW_MORE
from sbnotebook.emulator.service.links import (
    SESSION_FILTER,
    LinkHandler,
    ReceiverLink,
    SenderLink,
    attach_session,
)
from sbnotebook.emulator.service.management import answer, put_token
from sbnotebook.emulator.service.requests import CBS, Call, Reply, ReplyLink, RequestLink
from sbnotebook.emulator.service.transactions import attach_coordinator
from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model.address import EntityAddress

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

_MAX_TOKEN_SIZE: Final = 65_536  # Bytes of one request to ``$cbs``, which anyone can send: some times the longest token
_MAX_REQUEST_SIZE: Final = 16 * 1_048_576
"""Bytes of one request. Much more than a request needs that can be carried out: azure-servicebus never forgets that
the link rejected a request, while it raises what a reply says once. So the reply says that a message is too large."""

_AnyLink = ReceivingLink | SendingLink
_MAX_BATCH_SIZE: Final = Symbol("com.microsoft:max-message-batch-size")
# On a link to the entity that takes the messages in a transaction: where they go from there. A path or an address.
_DESTINATION: Final = Symbol("com.microsoft:transfer-destination-address")
_AnyEntity = AnyEntity | Receivable | None


def attach(peer: AmqpPeer, link: _AnyLink) -> LinkHandler:
    if isinstance(link.target, Coordinator) and isinstance(link, ReceivingLink):
        return attach_coordinator(peer, link)
    authorize(peer, link)
    # Nodes take requests; all other links are on entities.
    path = _path(link.address)
    entity, node = _found(peer, path)
    if entity is not None and (node is not None or isinstance(link, SendingLink)):
        root = root_of(entity)
        if via_entity(link, root) not in (None, root):
            raise RefusedError(Condition.NOT_ALLOWED, SPANS_ENTITIES)
    if node is not None:
        address = path.casefold()
        link.accept(max_message_size=_MAX_TOKEN_SIZE if address == CBS else _MAX_REQUEST_SIZE)
        if isinstance(link, ReceivingLink):
            return RequestLink(peer, link, address, entity, node)
        return ReplyLink(peer, link, address, entity)
    if isinstance(link, ReceivingLink):
        return _attach_sender(peer, link, path, entity)
    return _attach_receiver(peer, link, path, entity)


def authorize(peer: AmqpPeer, link: Link) -> None:
    """Check that the connection's tokens allow a link."""
    path = _path(link.address)
    if path.casefold() == CBS or isinstance(link.target, Coordinator):
        return
    if path.casefold().endswith(MANAGEMENT):
        peer.access.require(path, LISTEN, SEND)  # The node asks for the one that an operation needs.
    else:
        peer.access.require(path, SEND if isinstance(link, ReceivingLink) else LISTEN)


def _path(address: object) -> str:
    """Return the entity path of an address such as ``amqps://host:port/orders``."""
    text = str(address or "")
    if "://" in text:
        text = text.split("://", 1)[1].partition("/")[2]
    return text.strip("/")


def _found(peer: AmqpPeer, path: str) -> tuple[_AnyEntity, Callable[[Call], Reply] | None]:
    """Return the entity of a path; for the path of a node, also what answers its requests."""
    address = path.casefold()
    if address == CBS:
        return None, partial(put_token, peer.access)
    if not address.endswith(MANAGEMENT):
        return peer.broker.registry.find(path), None
    path = path[: -len(MANAGEMENT)]
    entity = peer.broker.registry.find(path)
    # A token for a missing subscription is accepted, so that it is refused by the node. Azure gives no answer
    # (azure-sdk-for-net 43492).
    if entity is None and _named_as_missing(peer, path) == path:
        return None, None
    return entity, partial(answer, address, peer.access, _not_found_text(peer, path))


def _attach_sender(peer: AmqpPeer, link: ReceivingLink, path: str, entity: _AnyEntity) -> LinkHandler:
    if entity is None:
        raise _not_found(peer, path)
    if not isinstance(entity, Queue | Topic):
        text = f"Messages cannot be sent to '{entity.path}', only received from it."
        raise RefusedError(Condition.NOT_ALLOWED, text)
    if not entity.options.status.can_send:
        raise _disabled(path)
    properties: dict[str, AmqpValue] = {_MAX_BATCH_SIZE: Int(peer.broker.registry.tier.quotas.max_batch_size)}
    destination, via = entity, via_entity(link, entity)
    # A link via this entity names the one to which it sends in a property.
    address = link.properties.get(_DESTINATION)
    if address is not None:
        path = _path(address)
        peer.access.require(path, SEND)
        found = peer.broker.registry.find(path)
        if not isinstance(found, Queue | Topic):
            raise _not_found(peer, path)
        destination, via = found, entity
        properties[_DESTINATION] = address
    elif via is not None and via is not entity:
        peer.access.require(via.path, SEND)
    limit = peer.broker.max_message_size(destination)
    peer.broker.memory.expect(limit)
    link.accept(max_message_size=limit, properties=properties)
    return SenderLink(peer, link, destination, via)


def via_entity(link: Link, root: Queue | Topic) -> Queue | Topic | None:
    """Return the entity that takes the messages of transactions on a session and sends them on; None for none.

    That is the one of the session's first link to an entity, if a control link came before it. So a transaction can
    cover several entities.

    Source: azure-sdk-for-net, AmqpConnectionScope ("EnableCrossEntityTransactions"); azure-sdk-for-java 19137.
    """
    via: list[Queue | Topic] | None = link.session.notes.setdefault("via", None)
    if via is None:
        return None
    if not via:
        via.append(root)
    return via[0]


def _attach_receiver(peer: AmqpPeer, link: SendingLink, path: str, entity: _AnyEntity) -> LinkHandler:
    wants_session = link.source is not None and SESSION_FILTER in (link.source.filter or {})
    if entity is None:
        raise _not_found(peer, path)
    if not isinstance(entity, Receivable):
        raise RefusedError(Condition.NOT_ALLOWED, f"Messages cannot be received from the topic '{entity.path}'.")
    _check_receiver(path, entity, wants_session=wants_session)
    if wants_session:
        return attach_session(peer, link, entity.owner)
    link.accept(max_message_size=peer.broker.max_message_size(entity.owner))
    return ReceiverLink(peer, link, entity)


def _check_receiver(path: str, entity: Receivable, *, wants_session: bool) -> None:
    if not entity.owner.options.status.can_receive:
        raise _disabled(path)
    # An entity that forwards its messages keeps none for receivers.
    if (entity.owner is entity and entity.owner.options.forward_to) or (
        entity is entity.owner.dead_letter and entity.owner.options.forward_dead_letters_to
    ):
        text = f"Cannot create a message receiver on '{path[:260]}': it forwards its messages."
        raise RefusedError(Condition.NOT_ALLOWED, text)
    # An entity with sessions needs a session receiver, and only it does.
    if wants_session and entity.sessions is None:
        text = f"A sessionful message receiver cannot be created on '{path[:260]}': the entity does not have sessions."
        raise RefusedError(Condition.NOT_ALLOWED, text)
    if not wants_session and entity.sessions is not None:
        text = (
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver: "
            f"'{path[:260]}'."
        )
        raise RefusedError(Condition.NOT_ALLOWED, text)


def _disabled(path: str) -> RefusedError:
    return RefusedError(Condition.ENTITY_DISABLED, f"Messaging entity '{path[:260]}' is currently disabled.")


def _not_found(peer: AmqpPeer, path: str) -> RefusedError:
    return RefusedError(Condition.NOT_FOUND, _not_found_text(peer, path))


def _not_found_text(peer: AmqpPeer, path: str) -> str:
    return f"The messaging entity '{_named_as_missing(peer, path)[:260]}' could not be found. {KNOW_MORE}"


def _named_as_missing(peer: AmqpPeer, path: str) -> str:
    """Return the name under which an entity is said to be missing.

    That of a subscription is the one that Azure gives (MicrosoftDocs/azure-docs 73870, azure-sdk-for-net 7907).
    """
    with suppress(InvalidEntityAddressError):
        address = EntityAddress.parse(path)
        if address.subscription is not None:
            return f"{peer.access.namespace}:Topic:{address.name.casefold()}|{address.subscription.casefold()}"
    return path
