"""The log stream: make it, check that it is unchanged, and retire a damaged one or one that holds an erased body.

The server forbids deleting or purging its messages. But an operator can still give it a ``max_age`` that empties it,
narrow its subjects, or delete it whole. A server can come back from a damaged disk with an unchanged last sequence and
missing messages (all measured). So the node compares the stream with the ledger's record. Any difference is
``BUS_DEGRADED``: stop publishing, and build the next generation from the log. A damaged stream is never repaired. The
quick check does not detect altered content; ``StreamPublisher.scrub`` compares every message.

**A redaction** begins the next generation, too. It is filled from the log, so it has the remnant in place of the erased
body. Then the earlier generations are deleted with their files. Each stream says in its metadata how many bodies were
erased when it was made (``Generation.redactions``), so any node sees, even after a crash, whether the stream still
holds an erased body. Rejected: deleting the one message with "secure erase". The server overwrites it in the stream's
own file, but not in the Raft log, where each of three servers keeps it for an unknown time (measured). And every reader
would have to distinguish this hole from a loss, and trust a node to fill it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RePublish, RetentionPolicy, StorageType, StreamConfig, StreamInfo

from deedbook.ledger import limits
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.bus.subjects import event_pattern, live_subject, log_stream_name, retired_subject
from deedbook.ledger.errors import Unavailable

_heard_max_s: Final = 2.5
_NO_LIMIT: Final = (None, 0, -1)
_REDACTIONS: Final = "deedbook_redactions"
_SIZE: Final = "deedbook_size"
_ROOT: Final = "deedbook_root"
HOLDS_ERASED: Final = "it holds the body of an entry that was erased"


@dataclass(frozen=True)
class Generation:
    """One log stream, as the ledger records it; ``created`` is None until the stream is made.

    ``first_seq`` is the index + 1 of its first event. ``redactions`` is the number of bodies that were erased in the
    log when the stream was made: it holds every body that was erased later. Several nodes also record the promised
    head: the ``size`` of the log from which the stream is to be filled, and the ``root`` of its tree (hex).
    """

    ledger: str
    number: int = 1
    first_seq: int = 1
    created: str | None = None
    redactions: int = 0
    size: int = 0
    root: str = ""

    @property
    def name(self) -> str:
        """The stream's name in JetStream."""
        return log_stream_name(self.ledger, self.number)


def log_stream_config(generation: Generation, replicas: int = 1) -> StreamConfig:
    """Return the configuration of the log stream. It has no ``max_age`` and no message TTL: it keeps everything."""
    return StreamConfig(
        name=generation.name,
        subjects=[event_pattern(generation.ledger)],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        num_replicas=replicas,
        deny_delete=True,
        deny_purge=True,
        allow_rollup_hdrs=False,
        allow_atomic=True,
        allow_direct=True,
        first_seq=generation.first_seq,
        republish=RePublish(src=event_pattern(generation.ledger), dest=live_subject(generation.ledger)),
        metadata={_REDACTIONS: str(generation.redactions), _SIZE: str(generation.size), _ROOT: generation.root},
    )


def config_faults(config: StreamConfig, expected: Generation) -> list[str]:
    """Return the settings of a stream that could lose or refuse events; empty if there are none."""
    intended = log_stream_config(expected)
    republish = config.republish
    compared: dict[str, tuple[Any, Any]] = {
        "subjects": (config.subjects, intended.subjects),
        "retention": (config.retention, intended.retention),
        "storage": (config.storage, intended.storage),
        "discard": (config.discard, intended.discard),
        "deny_delete": (config.deny_delete, True),
        "deny_purge": (config.deny_purge, True),
        "allow_atomic": (config.allow_atomic, True),
        "republish.dest": (republish.dest if republish else None, live_subject(expected.ledger)),
        "republish.src": (republish.src if republish else None, event_pattern(expected.ledger)),
        "headers_only": (bool(republish and republish.headers_only), False),
    }
    unlimited = ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size", "max_age")
    unset = ("sealed", "no_ack", "allow_rollup_hdrs", "allow_msg_ttl", "mirror", "sources", "subject_transform")
    faults = [
        f"{name} is {actual!r}, not {wanted!r}" for name, (actual, wanted) in compared.items() if actual != wanted
    ]
    faults += [f"{name} is limited" for name in unlimited if getattr(config, name) not in _NO_LIMIT]
    faults += [f"{name} is set" for name in unset if getattr(config, name)]
    return faults


def scrub_quick(info: StreamInfo, expected: Generation, last_seq_min: int = 0) -> list[str]:
    """Return the differences between a stream and its record. The stream has acknowledged ``last_seq_min`` before."""
    state, created = info.state, created_of(info)
    faults = config_faults(info.config, expected)
    if expected.created is not None and created != expected.created:
        faults.append(f"it was made at {created}, not at {expected.created}")
    if state.messages and state.first_seq != expected.first_seq:
        faults.append(f"it begins at sequence {state.first_seq}, not {expected.first_seq}")
    if state.last_seq < max(last_seq_min, expected.first_seq - 1):
        faults.append(f"it ends at sequence {state.last_seq}, but {last_seq_min} was acknowledged")
    if state.num_deleted:
        faults.append(f"{state.num_deleted} messages were deleted")
    if state.messages != state.last_seq - expected.first_seq + 1:
        faults.append(f"it holds {state.messages} messages in {expected.first_seq}..{state.last_seq}")
    return faults


def created_of(info: StreamInfo) -> str | None:
    """Return the time at which the stream was made, in the form that a generation records."""
    return info.created.isoformat() if info.created else None


def redactions_of(info: StreamInfo) -> int:
    """Return how many bodies were erased when the stream was made; 0 if it does not say so in its metadata."""
    return _number_of(info, _REDACTIONS)


def stated(generation: Generation, info: StreamInfo) -> Generation:
    """Return a generation from the metadata of its stream, with the time at which it was made."""
    return replace(
        generation,
        created=created_of(info),
        redactions=redactions_of(info),
        size=_number_of(info, _SIZE),
        root=(info.config.metadata or {}).get(_ROOT, ""),
    )


def _number_of(info: StreamInfo, name: str) -> int:
    text = (info.config.metadata or {}).get(name, "")
    return int(text) if text.isdecimal() else 0


def is_led(info: StreamInfo) -> bool:
    """Return whether the answer is from the stream's leader, and not from a server that was cut off and replaced.

    A server that was cut off answers for some seconds as if it led. Another server begins to lead at the earliest 4 s
    (nats-server's shortest election timeout) after a majority last heard the old leader.
    """
    replicas = (info.cluster.replicas if info.cluster else None) or []
    heard = sum(replica.active is not None and replica.active < _heard_max_s * 1e9 for replica in replicas)
    return 2 * (1 + heard) > 1 + len(replicas)


def raise_degraded(expected: Generation, faults: list[str], **details: Any) -> None:
    """Raise ``BUS_DEGRADED`` if the stream has faults."""
    if faults:
        message = f"log stream {expected.name} is not what was published: {'; '.join(faults)}"
        raise Unavailable("BUS_DEGRADED", message, stream=expected.name, faults=faults, **details)


async def stream_info(client: Client, generation: Generation, wait_s: float = limits.request_timeout_s) -> StreamInfo:
    """Return the server's present information about the log stream.

    Raises Unavailable: ``BUS_DEGRADED`` if it is gone, ``BUS_UNAVAILABLE`` if the server does not answer.
    """
    with bus_errors(f"log stream {generation.name}"):
        return await client.jetstream(timeout=wait_s).stream_info(generation.name)


async def open_stream(client: Client, generation: Generation, replicas: int = 1) -> Generation:
    """Return the generation to record, after making its stream if the generation was never recorded.

    If several nodes make it, the stream of the first one counts. A recorded stream is never made again. Raises
    Unavailable: ``BUS_DEGRADED`` if the stream is gone or altered; ``BUS_UNAVAILABLE`` without an answer, or if another
    stream was made meanwhile.
    """
    try:
        info = await stream_info(client, generation)
    except Unavailable as error:
        if error.code != "BUS_DEGRADED" or generation.created is not None:
            raise
        with bus_errors(f"making log stream {generation.name}"):
            manager = client.jetstream(timeout=limits.request_timeout_s)
            # If a stream of this name exists with other settings or metadata, the server makes no stream.
            info = await manager.add_stream(log_stream_config(generation, replicas))
            # If we crash before the caller records it, the next call finds this stream and uses it. The publisher
            # compares its content when it starts.
    raise_degraded(generation, scrub_quick(info, generation))
    return stated(generation, info)


async def next_generation(
    client: Client, retiring: Generation, *, first_index: int = 0, redactions: int = 0, replicas: int = 1
) -> Generation:
    """Retire a log stream and return the next, empty generation: publishing then fills it from the log.

    The old stream keeps its messages as evidence, under a subject that nobody publishes to. This frees its own
    subjects. Raises Unavailable: as ``open_stream``.
    """
    await retire(client, retiring)
    # If we crash here, the old stream is retired and there is no new one. Retiring it again changes nothing.
    following = Generation(retiring.ledger, retiring.number + 1, first_index + 1, redactions=redactions)
    return await open_stream(client, following, replicas)


async def retire(client: Client, retiring: Generation) -> None:
    """Let a log stream accept nothing more; a lost or retired one stays so. Raises as ``open_stream``."""
    manager = client.jetstream(timeout=limits.request_timeout_s)
    retired = retired_subject(retiring.ledger, retiring.number)
    try:
        config = (await stream_info(client, retiring)).config
        with bus_errors(f"retiring log stream {retiring.name}"):
            await manager.update_stream(config.evolve(subjects=[retired], republish=None))
    except Unavailable as error:
        if error.code != "BUS_DEGRADED":
            raise  # A lost stream needs no retiring, but an unreachable one may still exist.


async def delete_erased(client: Client, current: Generation) -> list[str]:
    """Delete the retired streams that hold a body which was erased before ``current`` was made; return their names.

    Call this only after ``current`` holds the whole log. If we crash here, the next call continues. Raises Unavailable:
    ``BUS_UNAVAILABLE``.
    """
    deleted: list[str] = []
    for number in range(current.number - 1, 0, -1) if current.redactions else ():
        old = Generation(current.ledger, number)
        try:
            info = await stream_info(client, old)
            if redactions_of(info) >= current.redactions:
                continue
            with bus_errors(f"deleting log stream {old.name}"):
                await client.jetstream(timeout=limits.request_timeout_s).delete_stream(old.name)
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            continue  # it was deleted or lost earlier
        deleted.append(old.name)
    return deleted
