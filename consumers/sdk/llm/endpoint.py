"""Where the language model is, and the key to it.

The key stands in a file that only its owner can read, or in an environment variable that the settings name; never in
the settings themselves. It is sent to the endpoint's own host and to nobody else, over TLS unless that host is this
machine, and is shown in no message, ``repr`` or log.

The environment is handed in: only ``ledger.config`` reads it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from consumers.sdk.http import is_loopback
from ledger.errors import Refused, Unavailable
from ledger.events.fields import Label
from ledger.identity import read_private

if TYPE_CHECKING:
    from collections.abc import Mapping

api_key_max_chars: Final = 4_096

_KEY: Final = re.compile(r"[!-~]+")
_VARIABLE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z"


class LlmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an operator says of an endpoint, as in the table ``[llm]`` of ``config.toml``.

    ``base_url`` is what stands before ``/chat/completions``; ``timeout_s`` bounds a whole call with its retries;
    ``json_mode`` asks for JSON by ``response_format``, which some servers do not know.
    """

    base_url: str
    model: Label
    api_key_file: str | None = None
    api_key_variable: Annotated[str, msgspec.Meta(pattern=_VARIABLE_PATTERN)] | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 60.0
    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=10)] = 4
    answer_tokens_max: Annotated[int, msgspec.Meta(ge=16, le=32_768)] = 2_048
    json_mode: bool = True


class ApiKey:
    """A key that does not show itself: only ``reveal`` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Hold a key.

        Raises:
            Refused: ``INVALID_FORMAT`` when it cannot stand in a header: too long, or not printable ASCII.
        """
        if len(value) > api_key_max_chars or not _KEY.fullmatch(value):
            raise Refused("INVALID_FORMAT", f"an API key is 1 to {api_key_max_chars} printable ASCII characters")
        self._value = value

    def __repr__(self) -> str:
        """Show that there is a key, not which."""
        return "ApiKey(…)"

    def reveal(self) -> str:
        """Return the key, for the one header that carries it."""
        return self._value


class Endpoint(msgspec.Struct, frozen=True):
    """A checked endpoint: the URL that is posted to, the key if there is one, and the settings."""

    url: str
    settings: LlmSettings
    api_key: ApiKey | None = None


def read_endpoint(settings: LlmSettings, environment: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of the settings, with its key read.

    Raises:
        Refused: ``INVALID_FIELD`` for a URL that cannot be used or a key that is named twice; as ``read_private`` for
            the key's file; ``INVALID_FORMAT`` for what cannot be a key.
        Unavailable: ``LLM_UNAVAILABLE`` when the environment has no such variable.
    """
    parts = _split(settings.base_url)
    api_key = _read_api_key(settings, environment)
    if api_key is not None and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise _wrong_url("an API key is sent over https only, or to this machine")
    return Endpoint(f"{settings.base_url.rstrip('/')}/chat/completions", settings, api_key)


def _split(base_url: str) -> SplitResult:
    try:
        parts = urlsplit(base_url)
        port_is_readable = parts.port is None or parts.port > 0
    except ValueError as error:
        raise _wrong_url(f"it is no URL: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_readable:
        raise _wrong_url("it must be http(s)://HOST[:PORT][/PATH]")
    if parts.username is not None or parts.query or parts.fragment:
        raise _wrong_url("it must have no user, query or fragment: a key belongs in a file or variable")
    if not base_url.isprintable() or not base_url.isascii() or " " in base_url:
        raise _wrong_url("it must be printable ASCII")
    return parts


def _read_api_key(settings: LlmSettings, environment: Mapping[str, str]) -> ApiKey | None:
    file, variable = settings.api_key_file, settings.api_key_variable
    if file is not None and variable is not None:
        raise Refused("INVALID_FIELD", "name one of api_key_file and api_key_variable, not both", path="$.api_key_file")
    if variable is not None:
        value = environment.get(variable)
        if not value:
            raise Unavailable("LLM_UNAVAILABLE", f"the environment has no {variable}", variable=variable)
        return ApiKey(value.strip())
    if file is None:
        return None
    try:
        return ApiKey(read_private(Path(file).expanduser()).decode("ascii").strip())
    except UnicodeDecodeError:
        raise Refused("INVALID_FORMAT", f"{file} does not hold an API key", path=file) from None


def _wrong_url(why: str) -> Refused:
    return Refused("INVALID_FIELD", f"base_url cannot be used: {why}", path="$.base_url")
