"""The channels of notifications: the tables ``[[notify]]`` of ``config.toml``, checked before anything is sent.

A webhook's address must be https, or on this machine, unless the operator allows plain http; its secret is in an
environment variable, never in the file. No message, ``repr`` or log shows a secret or the path of an address (for many
receivers the path is a secret): ``Channel.target`` is the part that may be shown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from deedbook.consumers.sdk.loopback import is_loopback
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import converted
from deedbook.ledger.format.forms import NAME_PATTERN
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.environment import environment_variable
from deedbook.ledger.home.location import CONFIG_FILE
from deedbook.ledger.home.trust import actions_of
from deedbook.projections.handoffs.answers import QueueAction

channels_max: Final = 20
EVERYBODY: Final = "*"

_Agent = Annotated[str, msgspec.Meta(pattern=rf"{NAME_PATTERN}|^\*\Z")]
_Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of one channel, as in a table ``[[notify]]``.

    ``agents`` are names, or ``["*"]`` for everybody; ``actions`` selects the actions to notify of (empty: all). Set one
    of ``command`` (for sh) and ``webhook`` (with ``secret_variable``). ``timeout_s`` limits one attempt; after
    ``attempts_max`` attempts, at most ``retry_wait_max_s`` apart, a delivery is a dead letter. Deliveries are stored
    under ``name``; without one it is derived from the target, so a new target is a new channel.
    """

    agents: Annotated[list[_Agent], msgspec.Meta(min_length=1, max_length=1_000)]
    actions: list[QueueAction] = []
    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)] | None = None
    command: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000, pattern=r"^[^\x00]*\Z")] | None = None
    webhook: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)] | None = None
    secret_variable: _Variable | None = None
    allow_http: bool = False
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 15.0
    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=30)] = 12
    retry_wait_max_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 21_600.0


class Channel(msgspec.Struct, frozen=True):
    """One checked channel: its name, the printable part of its target, its settings, and a webhook's secret."""

    name: str
    target: str
    settings: ChannelSettings
    secret: WebhookSecret | None = None  # None for a command, and if the environment lacks a webhook's variable

    @property
    def is_ready(self) -> bool:
        """Whether it can send: it is a command, or has its secret."""
        return self.secret is not None or self.settings.webhook is None

    def takes(self, agent: str, action: str) -> bool:
        """Return whether this channel notifies ``agent`` of ``action``."""
        chosen = self.settings
        is_for = EVERYBODY in chosen.agents or agent in chosen.agents
        return is_for and (not chosen.actions or action in chosen.actions)


def read_channels(
    settings: Settings,
    variable: Callable[[str], str | None] = environment_variable,
    *,
    client: Client | None = None,
    must_be_ready: bool = False,
) -> tuple[Channel, ...]:
    """Return the channels in ``config.toml``, in its order; with ``must_be_ready`` every secret must be there.

    Raises Refused: ``NOT_TRUSTED``, before any variable is read; ``INVALID_FIELD`` or ``UNKNOWN_FIELD`` with the file
    and the path of the field, for example if the environment lacks the variable of a secret.
    """
    tables = actions_of(settings, client).notify
    channels: list[Channel] = []
    with _naming_the_file(settings):
        if len(tables) > channels_max:
            raise Refused("INVALID_FIELD", f"there are more than {channels_max} channels", path="$.notify")
        for number, table in enumerate(tables):
            path = f"$.notify[{number}]"
            channel = _channel(table, path, variable)
            if channel.name in [other.name for other in channels]:
                message = f"another channel has the name {channel.name} or the same target: give each a name"
                raise Refused("INVALID_FIELD", message, path=f"{path}.name")
            if must_be_ready and not channel.is_ready:
                message = f"the environment variable {channel.settings.secret_variable} is not set"
                raise Refused("INVALID_FIELD", message, path=f"{path}.secret_variable")
            channels.append(channel)
    return tuple(channels)


configured_channels: Final = partial(read_channels, must_be_ready=True)


@contextmanager
def _naming_the_file(settings: Settings) -> Iterator[None]:
    try:
        yield
    except Refused as refusal:
        file, path = str(settings.home / CONFIG_FILE), refusal.details["path"]
        where = "" if refusal.message.endswith(path) else f" at {path}"
        raise Refused(refusal.code, f"{file}: {refusal.message}{where}", **refusal.details, file=file) from refusal


def _channel(table: object, path: str, variable: Callable[[str], str | None]) -> Channel:
    chosen = converted(table, ChannelSettings, path)
    if (chosen.command is None) == (chosen.webhook is None):
        raise Refused("INVALID_FIELD", "a channel needs either a command or a webhook", path=path)
    if chosen.command is not None:
        if chosen.secret_variable is not None or chosen.allow_http:
            raise Refused("INVALID_FIELD", "secret_variable and allow_http are only for a webhook", path=path)
        return Channel(chosen.name or _derived("command", chosen.command), "a command", chosen)
    url = chosen.webhook or ""
    target = _checked_target(url, f"{path}.webhook", allow_http=chosen.allow_http)
    if chosen.secret_variable is None:
        raise Refused("INVALID_FIELD", "a webhook is signed: name its secret_variable", path=f"{path}.secret_variable")
    text = variable(chosen.secret_variable)
    secret = read_secret(text, chosen.secret_variable, f"{path}.secret_variable") if text else None
    return Channel(chosen.name or _derived("webhook", url), target, chosen, secret)


def _derived(kind: str, target: str) -> str:
    return f"{kind}-{hashlib.sha256(target.encode()).hexdigest()[:12]}"


def _checked_target(url: str, path: str, *, allow_http: bool) -> str:
    """Return the part of an address that may be shown: scheme, host and port."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        raise Refused("INVALID_FIELD", "webhook is not a valid URL", path=path) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise Refused("INVALID_FIELD", "webhook must be http(s)://HOST[:PORT][/PATH]", path=path)
    if parts.username is not None or parts.fragment:
        raise Refused("INVALID_FIELD", "webhook must have no user or fragment", path=path)
    if not url.isprintable() or not url.isascii() or " " in url:
        raise Refused("INVALID_FIELD", "webhook must be printable ASCII", path=path)
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        message = "webhook must be https, or on this machine, unless allow_http = true"
        raise Refused("INVALID_FIELD", message, path=path)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}"


# The specification asks for at least 192 bits; the upper bound is ours, in case the variable holds something else.
secret_min_bytes: Final = 24
secret_max_bytes: Final = 256
_PREFIX: Final = "whsec_"


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """A shared secret that ``repr`` hides; only the signing code reads ``key``."""

    key: bytes = field(repr=False)


def read_secret(text: str, variable: str, path: str) -> WebhookSecret:
    """Return the secret in a variable's text: ``whsec_`` and base64, or any other text as its own UTF-8 bytes."""
    text = text.strip()
    try:
        encoded = text.removeprefix(_PREFIX)
        key = base64.b64decode(encoded, validate=True) if text.startswith(_PREFIX) else text.encode("utf-8")
    except (binascii.Error, ValueError):
        raise Refused("INVALID_FIELD", f"{variable} is not {_PREFIX} followed by base64", path=path) from None
    if not secret_min_bytes <= len(key) <= secret_max_bytes:
        message = f"the secret in {variable} must have {secret_min_bytes} to {secret_max_bytes} bytes"
        raise Refused("INVALID_FIELD", message, path=path)
    return WebhookSecret(key)
