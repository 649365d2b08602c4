"""The form of a case."""

from dataclasses import dataclass, field
from typing import Callable


@dataclass
class Case:
    """A client, or many, that would cost a careless server its memory or its time."""

    name: str
    # The bound on the server's memory for the case, and the option or constant that sets it.
    bound: str
    # Runs the case, and returns the reply of the server as a short text.
    run: Callable
    # Options of the server, by the names that Redis and Lodestore share.
    options: dict = field(default_factory=dict)
    # Fills the server before its idle memory is measured.
    prepare: Callable = lambda server: None
    # Whether Redis has what the case needs.
    has_redis: bool = True


def shown(reply):
    """Returns a reply as a short text for the table."""
    if reply is None:
        return "closed"
    if isinstance(reply, list):
        reply = reply[0]
    text = reply.decode(errors="replace")
    return f"`{text[:75]}...`" if len(text) > 78 else f"`{text}`"
