"""The subjects, stream names and inbox prefixes of the bus, as pure functions.

Whatever becomes part of a subject is checked or encoded here, because a client would publish ``a*``, ``>`` or ``a.b``
as a token without complaint (measured). A stream name is free text, so its token is a hash.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from typing import Final

from blake3 import blake3

from deedbook.ledger.errors import Refused

# The inbox prefix of nodes; an agent of the same name is in another account, so they never meet.
INBOX_OF_NODES: Final = "_INBOX_node"
DISCOVERY: Final = "$SRV.>"  # Where NATS tools ask which services there are (NATS ADR-32).
_LEDGER: Final = re.compile(r"[0-9a-f]{32}")
_AGENT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_KIND: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
_VERB: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


def _checked(form: re.Pattern[str], what: str, value: str) -> str:
    if form.fullmatch(value) is None:
        raise Refused("INVALID_FORMAT", f"{value!r} cannot be part of a subject: it is not {what}", value=value)
    return value


def _ledger(ledger: str) -> str:
    return _checked(_LEDGER, "a ledger id (32 lower-case hex digits)", ledger)


def _agent(agent: str) -> str:
    return _checked(_AGENT, "an agent name ([a-z0-9][a-z0-9_-]{0,62})", agent)


def _kind(kind: str) -> str:
    return _checked(_KIND, "a kind (two words joined by a dot)", kind)


def _generation(number: int) -> int:
    if number < 1:
        raise Refused("INVALID_FORMAT", f"generations count from 1, not {number}", value=number)
    return number


def stream_token(stream: str) -> str:
    """Return the 22 characters of a stream in a subject: base64url of the first 16 bytes of BLAKE3 over its name."""
    return urlsafe_b64encode(blake3(stream.encode()).digest(length=16)).rstrip(b"=").decode()


def submit_subject(ledger: str, agent: str) -> str:
    """Return where an agent sends its envelopes; the server lets only that agent publish there.

    Raises Refused: ``INVALID_FORMAT``, as from every function of this module.
    """
    return f"deedbook.{_ledger(ledger)}.submit.{_agent(agent)}"


def submit_pattern(ledger: str) -> str:
    """Return the pattern of every agent's submissions."""
    return f"deedbook.{_ledger(ledger)}.submit.*"


def read_subject(ledger: str, agent: str, verb: str) -> str:
    """Return where an agent sends read requests of this verb; the server lets only that agent publish there."""
    return f"deedbook.{_ledger(ledger)}.read.{_agent(agent)}.{_checked(_VERB, 'a verb', verb)}"


def reads_of(ledger: str, agent: str) -> str:
    """Return what a node subscribes to so as to receive one agent's read requests."""
    return f"deedbook.{_ledger(ledger)}.read.{_agent(agent)}.>"


def read_pattern(ledger: str) -> str:
    """Return the pattern of every read request."""
    return f"deedbook.{_ledger(ledger)}.read.>"


def event_subject(ledger: str, kind: str, stream: str) -> str:
    """Return the subject in the log stream of an event; only nodes may publish it."""
    return f"deedbook.{_ledger(ledger)}.event.{_kind(kind)}.{stream_token(stream)}"


def event_pattern(ledger: str) -> str:
    """Return the subject filter of the log stream that is in use."""
    return f"deedbook.{_ledger(ledger)}.event.>"


def live_subject(ledger: str, kind: str | None = None, stream: str | None = None) -> str:
    """Return what to subscribe to for stored events, of all kinds and streams that are not given."""
    if kind is None:
        of_stream = "" if stream is None else f"*.*.{stream_token(stream)}"
        return f"deedbook.{_ledger(ledger)}.live.{of_stream or '>'}"
    return f"deedbook.{_ledger(ledger)}.live.{_kind(kind)}.{'*' if stream is None else stream_token(stream)}"


def checkpoint_subject(ledger: str) -> str:
    """Return where the latest checkpoint is published."""
    return f"deedbook.{_ledger(ledger)}.checkpoint"


def node_subject(ledger: str, node: str) -> str:
    """Return where a node publishes its heartbeats."""
    return f"deedbook.{_ledger(ledger)}.node.{_agent(node)}"


def node_pattern(ledger: str) -> str:
    """Return the pattern of every node's heartbeats."""
    return f"deedbook.{_ledger(ledger)}.node.*"


def blob_subject(ledger: str, ref: str, number: int | str) -> str:
    """Return where a chunk of a blob lies, by its number; ``>`` as the number stands for all chunks of all blobs."""
    place = ">" if number == ">" else f"{ref.removeprefix('blake3:')}.{number}"
    return f"deedbook.{_ledger(ledger)}.blob.{place}"


def blob_stream_name(ledger: str) -> str:
    """Return the JetStream name of the stream that holds the blobs which entries refer to."""
    return f"DEEDBOOK_{_ledger(ledger)}_BLOBS"


def lease_bucket(ledger: str) -> str:
    """Return the key-value bucket in which the lease of the nodes lies."""
    return f"DEEDBOOK_{_ledger(ledger)}_LEASE"


def retired_subject(ledger: str, generation: int) -> str:
    """Return the only subject left to the log stream of a retired generation: nobody publishes there."""
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
