"""A model of JetStream, as we measured it: a cluster of one or three servers, its streams, its keys, and its faults.

The leader of the servers runs each request, at one moment, as a whole or not at all. It needs a majority of servers
that hear it. When the leader dies or is cut off, nobody answers for 5 to 8 seconds. A request in flight at that time
may be done, lost, or done later: the client knows only that no answer came.

A server checks the named stream (error 10060) and compare-and-set (10071) before anything else. It stores an atomic
batch whole or refuses it (10071, 10208). It refuses to make a stream a second time with other settings (10058), or for
subjects of another stream (10065). A store loses its last messages only while no server runs; then it takes new
messages at the end that is left. A store that lost messages in the middle has them in its count of deleted messages. A
flipped byte changes only its message, no count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import nats.errors
import nats.js.errors as js
from nats.js.api import ClusterInfo, PeerInfo, RawStreamMsg, StreamInfo, StreamState

from deedbook.ledger.bus.history import entry_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.js.api import StreamConfig

    from tests.simulation.world import World

election_s: Final = (5.0, 8.0)
stale_max_s: Final = 10.0
WRONG_LAST: Final = 10071
WRONG_STREAM: Final = 10060
INCOMPLETE: Final = 10208


@dataclass
class Message:
    """A message as it is stored; it never changes."""

    subject: str
    data: bytes
    headers: dict[str, str]
    raw: RawStreamMsg | None = None


@dataclass
class Stream:
    """A stream: its configuration now and when it was made, and its messages by their sequence numbers."""

    config: StreamConfig
    made: StreamConfig
    created: datetime
    last_seq: int
    messages: dict[int, Message] = field(default_factory=dict)

    def info(self) -> StreamInfo:
        count, first = len(self.messages), min(self.messages, default=self.last_seq + 1)
        deleted = self.last_seq - first + 1 - count
        return StreamInfo(
            self.config,
            StreamState(count, 0, first, self.last_seq, 0, num_deleted=deleted or None),
            created=self.created,
            cluster=_peers(0.0),
        )


def raw(seq: int, message: Message) -> RawStreamMsg:
    """Return a stored message as a client gets it; each call returns the same object."""
    if message.raw is None:
        message.raw = RawStreamMsg(message.subject, seq, message.data, headers=message.headers)
    return message.raw


def entry_in(seq: int, stored: RawStreamMsg | None, *, verify: bool = True) -> bytes | None:
    """Return the result of the real ``entry_at``, which is stored with the message: each is decoded only once."""
    kept = {} if stored is None else stored.__dict__
    if "entry" not in kept:
        kept["entry"] = entry_at(seq, stored)
    data: bytes | None = kept["entry"]
    return data


class Cluster:
    """The servers, one on each of ``hosts``, and their common streams and keys."""

    def __init__(self, world: World, hosts: Sequence[str]) -> None:
        self.world = world
        self.hosts = tuple(hosts)
        self.down: set[str] = set()
        self.apart: frozenset[str] = frozenset()
        self.leader: str | None = hosts[0]
        self.led_since = 0.0
        self.streams: dict[str, Stream] = {}
        self.restarts = dict.fromkeys(hosts, 0)
        self.highest_seq = 0
        """The last sequence that was ever acknowledged, even if it was lost later."""

        self._term = 0
        self._waiting: list[Callable[[], None]] = []
        self._cut_off: tuple[str, float, dict[str, StreamInfo]] = "", 0.0, {}

    def hear(self, one: str, other: str) -> bool:
        return one == other or (one in self.apart) == (other in self.apart)

    def majority_of(self, host: str) -> bool:
        heard = [one for one in self.hosts if one not in self.down and self.hear(host, one)]
        return host not in self.down and 2 * len(heard) > len(self.hosts)

    def review(self) -> None:
        if self.leader is not None and self.majority_of(self.leader):
            waiting, self._waiting = self._waiting, []
            for work in waiting:
                work()
            return
        if self.leader is not None:
            self.world.tell("bus", f"has lost its leader {self.leader}")
            self._cut_off = self.leader, self.world.now, {name: one.info() for name, one in self.streams.items()}
        # A leader that lost its majority leads again if the majority returns before another election.
        self._term += 1
        wait_s = self.world.random.uniform(*election_s) if len(self.hosts) > 1 else 0.1
        self.world.later(wait_s, self._elect, self._term)

    def _elect(self, term: int) -> None:
        if term != self._term or (self.leader is not None and self.majority_of(self.leader)):
            return
        able = [host for host in self.hosts if self.majority_of(host)]
        if able:
            self._waiting.clear()
            self.leader, self.led_since = self.world.random.choice(able), self.world.now
            self.world.tell("bus", f"is led by {self.leader}")

    def kill(self, *hosts: str) -> None:
        """Kill servers: messages in flight to them are lost."""
        for host in hosts:
            self.down.add(host)
            self.restarts[host] += 1
        if len(self.down) == len(self.hosts):
            self._waiting.clear()
            self.leader = None
        self.review()

    def stale_info(self, server: str, name: str) -> StreamInfo | None:
        """Return a server's outdated information about a stream that it led when it was cut off from the others."""
        leader, since, infos = self._cut_off
        heard_s = self.world.now - since
        is_cut_off = server == leader not in self.down and not self.majority_of(server) and heard_s < stale_max_s
        return replace(infos[name], cluster=_peers(heard_s)) if is_cut_off and name in infos else None

    def revive(self, *hosts: str) -> None:
        self.down.difference_update(hosts)
        self.review()

    def ask(self, server: str, work: Callable[[], Any], answer: Callable[[Any], None], direct: bool) -> None:
        """Do ``work`` at the leader, or ``direct`` at a client's ``server``, and pass its result to ``answer``."""

        def run() -> None:
            try:
                outcome = work()
            except nats.errors.Error as error:
                outcome = error
            answer(outcome)

        if direct and server not in self.down:
            run()
        elif self.leader is None or server in self.down or not self.hear(server, self.leader):
            pass
        elif self.majority_of(self.leader):
            run()
        elif self.leader not in self.down and self.world.chance(0.5):
            self._waiting.append(run)

    def stream(self, name: str) -> Stream:
        """Return a stream. Raises NotFoundError."""
        try:
            return self.streams[name]
        except KeyError:
            raise js.NotFoundError(code=404, err_code=10059, description="stream not found") from None

    def add_stream(self, config: StreamConfig) -> StreamInfo:
        """Create a stream; creating it again with the same settings changes nothing."""
        assert config.name is not None
        for name, other in self.streams.items():
            if name != config.name and set(other.config.subjects or ()) & set(config.subjects or ()):
                raise js.BadRequestError(code=400, err_code=10065, description="subjects overlap")
        if config.name in self.streams and self.streams[config.name].made != config:
            raise js.BadRequestError(code=400, err_code=10058, description="stream name already in use")
        if config.name not in self.streams:
            created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.world.now)
            self.streams[config.name] = Stream(config, config, created, (config.first_seq or 1) - 1)
        return self.stream(config.name).info()

    def update_stream(self, config: StreamConfig) -> StreamInfo:
        assert config.name is not None
        stream = self.stream(config.name)
        stream.config = config
        return stream.info()

    def message(self, name: str, seq: int) -> Message:
        """Return a stored message. Raises NotFoundError."""
        stored = self.stream(name).messages.get(seq)
        if stored is None:
            raise js.NotFoundError(code=404, err_code=10037, description="no message found")
        return stored

    def near(self, name: str, seq: int, count: int) -> list[tuple[int, Message]]:
        """Return stored messages from one replica, which may lag behind or have a damaged copy of a message."""
        stored, random = self.stream(name).messages, self.world.random
        found = [(at, stored[at]) for at in range(seq, seq + count) if at in stored]
        if found and random.random() < 0.1:
            at = random.randrange(len(found))
            own, message = found[at]
            found[at] = own, Message(message.subject, message.data[:-1] + b"!", message.headers)
        return found[: random.randrange(len(found) + 1)] if random.random() < 0.3 else found

    def stream_of(self, subject: str) -> str:
        """Return the name of the stream that stores a subject. Raises NotFoundError."""
        for name, stream in self.streams.items():
            if subject in (stream.config.subjects or ()):
                return name
        raise js.NotFoundError(code=404, err_code=10059, description="no stream matches subject")

    def publish(
        self, pattern: str, name: str, messages: Sequence[Message], expected: int, *, is_whole: bool
    ) -> dict[str, Any]:
        """Store all messages, if stream and last sequence are the expected ones, or none; return the answer."""
        try:
            stream = self.streams[self.stream_of(pattern)]
        except js.NotFoundError:
            raise nats.errors.NoRespondersError from None
        if stream.config.name != name:
            return _refused(WRONG_STREAM, "expected stream does not match")
        if stream.last_seq != expected:
            return _refused(WRONG_LAST, f"wrong last sequence: {stream.last_seq}")
        if not is_whole:
            return _refused(INCOMPLETE, "atomic publish batch is incomplete")
        for message in messages:
            stream.last_seq += 1
            stream.messages[stream.last_seq] = message
        self.highest_seq = max(self.highest_seq, stream.last_seq)
        return {"stream": stream.config.name, "seq": stream.last_seq}

    def log_stream(self) -> Stream | None:
        return next(reversed(self.streams.values()), None)

    def damage(self) -> None:
        """Damage the store of the newest stream in one of the measured ways."""
        stream, random = self.log_stream(), self.world.random
        if stream is None or not stream.messages:
            return
        seq = random.choice(sorted(stream.messages)[-20:])
        match random.randrange(4):
            case 0:  # truncated after a clean stop: the last messages are lost, but not the last sequence number
                for lost in range(seq, stream.last_seq + 1):
                    stream.messages.pop(lost, None)
            case 1:  # truncated after a kill: the stream is shorter, and takes new messages at its new end
                self.lose_from(stream, random.choice([seq, stream.last_seq]))
                return
            case 2:  # a flipped byte: all counts are right
                before = stream.messages[seq]
                stream.messages[seq] = Message(before.subject, b"!" + before.data[1:], before.headers)
            case _:  # any other number: the whole file is deleted
                del self.streams[str(stream.config.name)]
        self.world.tell("bus", f"its store was damaged from sequence {seq} on")

    def lose_from(self, stream: Stream, seq: int) -> None:
        """Kill all servers and restart them without the messages from ``seq`` on."""
        self.kill(*self.hosts)
        for lost in range(seq, stream.last_seq + 1):
            stream.messages.pop(lost, None)
        self.world.tell("bus", f"all its servers died, and lost {stream.last_seq - seq + 1} messages from {seq} on")
        stream.last_seq = seq - 1
        for host in self.hosts:
            self.world.later(self.world.random.uniform(0.1, 3.0), self.revive, host)

    def holds(self, history: Sequence[bytes]) -> bool:
        stream = self.log_stream()
        if stream is None or not len(stream.messages) == stream.last_seq == len(history):
            return False
        return all(entry_in(seq, raw(seq, message)) == history[seq - 1] for seq, message in stream.messages.items())


def _peers(heard_s: float) -> ClusterInfo:
    return ClusterInfo(replicas=[PeerInfo(active=int(heard_s * 1e9))] * 2)


def _refused(code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": 400, "err_code": code, "description": description}}
