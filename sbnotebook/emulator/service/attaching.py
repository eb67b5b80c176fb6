"""From the address of a new link to what handles it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sbnotebook.emulator.amqp import Coordinator, Error, Link, ReceivingLink, SendingLink
from sbnotebook.emulator.entities import MAX_MESSAGE_SIZE, Queue, Receivable
from sbnotebook.emulator.service.access import LISTEN, SEND, AccessRefusedError, GuardedNode
from sbnotebook.emulator.service.cbs import CbsNode
from sbnotebook.emulator.service.conditions import Condition
from sbnotebook.emulator.service.links import LinkHandler, ReceiverLink, SenderLink
from sbnotebook.emulator.service.management import ManagementNode
from sbnotebook.emulator.service.requests import Node, ReplyLink, RequestLink

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

__all__ = ["LinkHandler", "attach", "refusal"]

_MAX_REQUEST_SIZE: Final = 16 * MAX_MESSAGE_SIZE
"""Bytes of one request. Much more than a request needs that can be carried out: azure-servicebus never forgets that
the link rejected a request, while it raises what a reply says once. So the reply says that a message is too large."""

_AnyLink = ReceivingLink | SendingLink
_CBS: Final = "$cbs"
_MANAGEMENT: Final = "/$management"
_SESSION_FILTER: Final = "com.microsoft:session-filter"


def attach(peer: AmqpPeer, link: _AnyLink) -> LinkHandler | None:
    """Accept a link, or refuse it.

    Args:
        peer: the connection.
        link: what the client wants to attach.

    Returns:
        What handles the link's events; None if it was refused.
    """
    if isinstance(link.target, Coordinator):
        link.refuse(Condition.NOT_IMPLEMENTED.error("The emulator has no transactions."))
        return None
    unauthorized = refusal(peer, link)
    if unauthorized is not None:
        link.refuse(unauthorized)
        return None
    path = _path(link.address)
    node = _node(peer, path)
    if node is not None:
        return _attach_to_node(peer, link, node)
    entity = peer.broker.registry.find(path)
    if isinstance(link, ReceivingLink):
        return _attach_sender(peer, link, path, entity)
    return _attach_receiver(peer, link, path, entity)


def refusal(peer: AmqpPeer, link: Link) -> Error | None:
    """Why the tokens of a connection do not allow a link.

    Args:
        peer: the connection.
        link: a link that it has, or wants to attach.

    Returns:
        The error to detach it with; None if it is allowed.
    """
    path = _path(link.address)
    if path.casefold() == _CBS:
        return None
    if path.casefold().endswith(_MANAGEMENT):
        claims = (LISTEN, SEND)  # The node asks for the one that an operation needs.
    else:
        claims = (SEND if isinstance(link, ReceivingLink) else LISTEN,)
    try:
        peer.access.require(path, *claims)
    except AccessRefusedError as error:
        return Condition.UNAUTHORIZED_ACCESS.error(str(error))
    return None


def _path(address: object) -> str:
    """The entity path of an address such as ``amqps://host:port/orders``."""
    text = str(address or "")
    if "://" in text:
        text = text.split("://", 1)[1].partition("/")[2]
    return text.strip("/")


def _node(peer: AmqpPeer, path: str) -> Node | None:
    lowered = path.casefold()
    if lowered == _CBS:
        return CbsNode(_CBS, peer.access)
    if lowered.endswith(_MANAGEMENT):
        entity = peer.broker.registry.find(path[: -len(_MANAGEMENT)])
        return None if entity is None else GuardedNode(ManagementNode(lowered, peer.broker, entity), peer.access)
    return None


def _attach_to_node(peer: AmqpPeer, link: _AnyLink, node: Node) -> LinkHandler:
    link.accept(max_message_size=_MAX_REQUEST_SIZE)
    return RequestLink(peer, link, node) if isinstance(link, ReceivingLink) else ReplyLink(peer, link, node)


def _attach_sender(peer: AmqpPeer, link: ReceivingLink, path: str, entity: Receivable | None) -> LinkHandler | None:
    if isinstance(entity, Queue):
        link.accept(max_message_size=MAX_MESSAGE_SIZE)
        return SenderLink(peer, link, entity)
    if entity is None:
        link.refuse(_not_found(path))
    else:
        link.refuse(Condition.NOT_ALLOWED.error(f"Messages cannot be sent to the dead-letter queue '{entity.path}'."))
    return None


def _attach_receiver(peer: AmqpPeer, link: SendingLink, path: str, entity: Receivable | None) -> LinkHandler | None:
    wants_session = link.source is not None and _SESSION_FILTER in (link.source.filter or {})
    if entity is not None and not wants_session:
        link.accept(max_message_size=MAX_MESSAGE_SIZE)
        return ReceiverLink(peer, link, entity)
    if entity is None:
        link.refuse(_not_found(path))
    else:
        link.refuse(Condition.NOT_ALLOWED.error(f"The entity '{entity.path}' does not have sessions."))
    return None


def _not_found(path: str) -> Error:
    return Condition.NOT_FOUND.error(f"The messaging entity '{path[:260]}' could not be found.")
