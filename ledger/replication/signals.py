"""The observations of a node (other nodes, the stream, its own work) and its actions (see ``state``)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

# Observations.


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. It comes several times within each time of ``Timing``."""


class Interrupted(msgspec.Struct, frozen=True):
    """The node was not connected, or did not run, for a while: others may have entries of which it has not heard."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's heartbeat: the size of its log, and whether it takes submissions (``admits``).

    ``fault`` is an error that the sender found in the stream, or in its log compared with the stream. ``is_apart``: its
    log has other entries than the stream, so nobody waits for them. ``generation`` is the number of the stream that it
    knows. A node that ``leaves`` is not waited for.
    """

    node: str
    size: int
    admits: bool = False
    url: str = ""
    fault: str = ""
    generation: int = 0
    is_apart: bool = False
    leaves: bool = False


class Followed(msgspec.Struct, frozen=True):
    """The log has all entries that this generation of the stream had when its leader was asked."""

    generation: int


class Scrubbed(msgspec.Struct, frozen=True):
    """Every message of this generation equals the log's entry."""

    generation: int


class StreamDamaged(msgspec.Struct, frozen=True):
    """The stream differs from what was published, or does not match this log.

    ``generation`` is the one in which ``scrub`` found that, which following does not see. 0: following found it.
    """

    reason: str
    generation: int = 0


class LogForked(msgspec.Struct, frozen=True):
    """This log and the stream hold different entries at one index: only a person can decide which are kept."""

    reason: str


class ActionFailed(msgspec.Struct, frozen=True):
    """The action failed and may be tried again."""


Observation: TypeAlias = Tick | Interrupted | Beat | Followed | Scrubbed | StreamDamaged | LogForked | ActionFailed


# Actions.


class Rebuild(msgspec.Struct, frozen=True):
    """Retire the damaged stream and make the next generation; ``LogForked`` or ``ActionFailed`` if that fails."""


class Scrub(msgspec.Struct, frozen=True):
    """Compare the whole stream with the log, because another node reported a fault; ``Scrubbed``, ``StreamDamaged``."""


Action: TypeAlias = Rebuild | Scrub
