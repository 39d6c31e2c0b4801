"""The subjects, stream names and inbox prefixes of the bus, as pure functions.

This module checks or encodes every part of a subject, because a NATS client publishes ``a*``, ``>`` or ``a.b`` as a
token without an error (measured). A stream name is free text, so its token is a hash.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from typing import Final

from blake3 import blake3

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.forms import OWN_KIND_PATTERN

# The inbox prefix of nodes. An agent of the same name is in another account, so the two never collide.
INBOX_OF_NODES: Final = "_INBOX_node"
DISCOVERY: Final = "$SRV.>"  # NATS tools look for services here (NATS ADR-32).
DISCOVERY_PING: Final = "$SRV.PING.deedbook"
_LEDGER: Final = re.compile(r"[0-9a-f]{32}")
_AGENT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_KIND: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
_VERB: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


def _checked(pattern: re.Pattern[str], description: str, value: str) -> str:
    if pattern.fullmatch(value) is None:
        message = f"{value!r} cannot be part of a subject: it is not {description}"
        raise Refused("INVALID_FORMAT", message, value=value)
    return value


def _ledger(ledger: str) -> str:
    return _checked(_LEDGER, "a ledger id (32 lower-case hex digits)", ledger)


def _agent(agent: str) -> str:
    return _checked(_AGENT, "an agent name ([a-z0-9][a-z0-9_-]{0,62})", agent)


def _kind(kind: str) -> str:
    """Return the two tokens of a kind. For a declared kind, the second joins all words after ``x`` with hyphens."""
    first, _, rest = kind.partition(".")
    if re.fullmatch(OWN_KIND_PATTERN, kind) is not None:
        return f"{first}.{rest.replace('.', '-')}"
    return _checked(_KIND, "a kind (two words joined by a dot)", kind)


def _generation(number: int) -> int:
    if number < 1:
        raise Refused("INVALID_FORMAT", f"generations count from 1, not {number}", value=number)
    return number


def stream_token(stream: str) -> str:
    """Return a stream's token of 22 characters: base64url of the first 16 bytes of BLAKE3 over its name."""
    return urlsafe_b64encode(blake3(stream.encode()).digest(length=16)).rstrip(b"=").decode()


def submit_subject(ledger: str, agent: str) -> str:
    """Return the subject of an agent's submissions; the server lets only that agent publish there.

    Raises Refused: ``INVALID_FORMAT``, as from every function of this module.
    """
    return f"deedbook.{_ledger(ledger)}.submit.{_agent(agent)}"


def submit_pattern(ledger: str, node: str = "") -> str:
    """Return the pattern of every agent's submissions; with ``node``, of those that come to one of several nodes."""
    return f"deedbook.{_ledger(ledger)}.submit.*" + (f".{_agent(node)}" if node else "")


def node_submit_subject(ledger: str, agent: str, node: str) -> str:
    """With several nodes, return the subject to which a server maps its agents' submissions, for its own node.

    So the agents of a server use one node. Otherwise the server would give each message to any node. With one node
    (``node`` is empty), it is the subject of the submissions themselves.
    """
    return f"{submit_subject(ledger, agent)}.{_agent(node)}" if node else submit_subject(ledger, agent)


def read_subject(ledger: str, agent: str, verb: str) -> str:
    """Return the subject of an agent's reads with this verb; the server lets only that agent publish there."""
    return f"deedbook.{_ledger(ledger)}.read.{_agent(agent)}.{_checked(_VERB, 'a verb', verb)}"


def reads_of(ledger: str, agent: str) -> str:
    """Return the pattern of one agent's read requests, for a node's subscription."""
    return f"deedbook.{_ledger(ledger)}.read.{_agent(agent)}.>"


def read_pattern(ledger: str) -> str:
    """Return the pattern of every read request."""
    return f"deedbook.{_ledger(ledger)}.read.>"


def event_subject(ledger: str, kind: str, stream: str) -> str:
    """Return the subject of an event in the log stream; only nodes may publish there."""
    return f"deedbook.{_ledger(ledger)}.event.{_kind(kind)}.{stream_token(stream)}"


def event_pattern(ledger: str) -> str:
    """Return the subject filter of the log stream that is in use."""
    return f"deedbook.{_ledger(ledger)}.event.>"


def live_subject(ledger: str, kind: str | None = None, stream: str | None = None) -> str:
    """Return the pattern of stored events; without a kind or a stream it covers all of them."""
    if kind is None:
        of_stream = "" if stream is None else f"*.*.{stream_token(stream)}"
        return f"deedbook.{_ledger(ledger)}.live.{of_stream or '>'}"
    return f"deedbook.{_ledger(ledger)}.live.{_kind(kind)}.{'*' if stream is None else stream_token(stream)}"


def checkpoint_subject(ledger: str) -> str:
    """Return the subject of the latest checkpoint."""
    return f"deedbook.{_ledger(ledger)}.checkpoint"


def node_subject(ledger: str, node: str) -> str:
    """Return the subject of a node's heartbeats."""
    return f"deedbook.{_ledger(ledger)}.node.{_agent(node)}"


def node_pattern(ledger: str) -> str:
    """Return the pattern of every node's heartbeats."""
    return f"deedbook.{_ledger(ledger)}.node.*"


def blob_subject(ledger: str, ref: str, number: int | str) -> str:
    """Return the subject of one chunk of a blob; the number ``>`` gives the pattern of all chunks of all blobs."""
    suffix = ">" if number == ">" else f"{ref.removeprefix('blake3:')}.{number}"
    return f"deedbook.{_ledger(ledger)}.blob.{suffix}"


def blob_stream_name(ledger: str) -> str:
    """Return the JetStream name of the stream of the blobs that entries refer to."""
    return f"DEEDBOOK_{_ledger(ledger)}_BLOBS"


def retired_subject(ledger: str, generation: int) -> str:
    """Return the only subject of a retired log stream: nobody publishes there."""
    return f"deedbook.{_ledger(ledger)}.retired.{_generation(generation)}"


def log_stream_name(ledger: str, generation: int) -> str:
    """Return the JetStream name of the log stream of this generation."""
    return f"DEEDBOOK_{_ledger(ledger)}_{_generation(generation)}"


def read_verb(subject: str) -> str:
    """Return the verb that a received read subject names."""
    return _checked(_VERB, "a verb", ".".join(subject.split(".")[4:]))


def inbox_prefix(agent: str) -> str:
    """Return the prefix of the inboxes that only this agent may subscribe to."""
    return f"_INBOX_{_agent(agent)}"
