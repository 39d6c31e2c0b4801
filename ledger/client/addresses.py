"""The addresses at which the nodes of a ledger are reached, learned from the nodes while a connection is open.

A node signs its address with its checkpoint key (``proof.checkpoint``), and sends it to whoever looks for services
(``service.discovery``). A client believes only keys that the ledger names. It tries a learned address when no
configured server lets it in or answers it, and never before. There, too, the node has to continue the trusted history.
The client ignores an address that is weaker than the configured ones: plain text instead of TLS, or this very machine
instead of another host.

The file beside the trust store has at most ``addresses_max`` addresses. If we crash before it is written, the next
connection learns them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from socket import inet_aton
from typing import Any, Final

import msgspec

from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.format.codec import UNREADABLE, convert, json_decoder, read_json
from deedbook.ledger.home.config import check_server
from deedbook.ledger.limits import address_size_max, addresses_interval_s, addresses_max, config_size_max_bytes
from deedbook.ledger.proof.checkpoint import CheckpointVerifier, open_address
from deedbook.ledger.system.files import as_unavailable, read_regular, replacing
from deedbook.ledger.trust.history import log_notice
from deedbook.ledger.trust.store import TrustStore

_ENCRYPTED: Final = ("tls://", "wss://")
_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


class AddressRecord(msgspec.Struct, frozen=True):
    """The content of the file: addresses, the last used first; the time of the last answer; the last reported one."""

    addresses: list[str] = []
    asked_ms: int = 0
    noticed: str = ""


class _Ping(msgspec.Struct):
    metadata: dict[str, str]


_decoder = json_decoder(AddressRecord)


class KnownAddresses:
    """The learned addresses of one ledger, for a client with these ``configured`` servers."""

    def __init__(
        self, ledger: str, configured: str, verifiers: Callable[[], Sequence[CheckpointVerifier]] = list
    ) -> None:
        """Read the file, if there is one. ``verifiers`` are those of the checkpoint keys that the ledger names."""
        self.file: Path = TrustStore.of_server(ledger).path.with_suffix(".addresses")
        self._configured = configured.split(",")
        self._verifiers = verifiers
        self._record = AddressRecord()
        with suppress(*UNREADABLE, DeedbookError):  # they are learned again
            if content := read_regular(self.file, size_max_bytes=config_size_max_bytes):
                self._record = _decoder.decode(content)

    @property
    def others(self) -> list[str]:
        """The learned addresses that may be tried after the configured ones."""
        return [url for url in self._record.addresses[:addresses_max] if self._may_be_used(url)]

    @property
    def is_due(self) -> bool:
        """Whether to ask the nodes for their addresses again."""
        return not 0 <= time.time() * 1000 - self._record.asked_ms < addresses_interval_s * 1000

    def learn(self, answer: bytes) -> None:
        """Store the address in the answer of a node, if a node of this ledger signed it; else do nothing."""
        with suppress(*UNREADABLE, DeedbookError):
            note = convert(read_json(answer, dict[str, Any]), _Ping).metadata.get("address", "")
            url = open_address(note, *self._verifiers()) if note else ""
            added = [url] if self._may_be_used(url) else []
            others = [other for other in self._record.addresses if other != url]
            self._store([*added, *others], asked_ms=time.time_ns() // 1_000_000)

    def used(self, url: str) -> None:
        """Tell the user once that a learned address is used, because no configured one serves this agent."""
        if url != self._record.noticed:
            configured = ", ".join(self._configured)
            log_notice(
                f"{configured} does not serve this agent, but a node of the same ledger does at {url}: "
                f"`deed join --address {url}` makes it the first one"
            )
            self._store(self._record.addresses, noticed=url)

    def _store(self, addresses: list[str], **changes: Any) -> None:
        self._record = msgspec.structs.replace(self._record, addresses=addresses[:addresses_max], **changes)
        with suppress(DeedbookError), as_unavailable(self.file):  # it is learned again
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.file, is_durable=False) as file:
                file.write(msgspec.json.encode(self._record))

    def _may_be_used(self, url: str) -> bool:
        if not url or len(url) > address_size_max or "," in url or url in self._configured:
            return False
        check_server(url)
        is_weaker = not url.startswith(_ENCRYPTED) and any(known.startswith(_ENCRYPTED) for known in self._configured)
        is_here = _is_local(url) and not any(map(_is_local, self._configured))
        return not is_weaker and not is_here


def _is_local(url: str) -> bool:
    """Whether an address is of the machine that uses it, in any spelling that needs no look-up, such as ``127.1``."""
    host = url.partition("://")[2].rstrip("/")
    host = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    name = host.lower().rstrip(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    with suppress(OSError):  # it is no IPv4 address
        return _is_here(IPv4Address(inet_aton(name)))
    with suppress(ValueError):  # it is the name of a host
        address = IPv6Address(name)
        return _is_here(address.ipv4_mapped or address)
    return False


def _is_here(address: IPv4Address | IPv6Address) -> bool:
    return address.is_loopback or address.is_unspecified
