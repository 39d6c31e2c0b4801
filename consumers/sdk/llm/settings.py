"""An operator's settings of a model's endpoint, and the messages sent to it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.fields import Label

_VARIABLE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z"


Family: TypeAlias = Literal["openai", "openai-compatible", "anthropic"]


class Message(msgspec.Struct, frozen=True):
    """One message of a chat."""

    role: Literal["system", "user"]
    content: str


class LlmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of an endpoint, as in the table ``[llm]`` of ``config.toml``.

    ``base_url`` is the part of the URL before ``/chat/completions`` or ``/messages`` (default: the vendor's, by
    ``family``). ``timeout_s`` limits a whole call, in which a busy server is tried ``attempts_max`` times. A thinker
    asks at most ``attempts`` times until it can use the answer; ``parallel_max`` limits its requests at a time. By
    default ``token_field``, ``temperature``, ``json_mode`` and ``seed`` (of samples) are the family's; ``"none"`` omits
    a field. ``fields`` are sent unchanged.
    """

    model: Label
    family: Family | None = None
    base_url: str = ""
    api_key_file: str | None = None
    api_key_variable: Annotated[str, msgspec.Meta(pattern=_VARIABLE_PATTERN)] | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 60.0
    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=10)] = 4
    answer_tokens_max: Annotated[int, msgspec.Meta(ge=16, le=131_072)] | None = None
    token_field: Literal["max_tokens", "max_completion_tokens", "none"] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | Literal["none"] | None = None
    json_mode: bool | None = None
    seed: bool | None = None
    attempts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3
    parallel_max: Annotated[int, msgspec.Meta(ge=1, le=32)] = 8
    fields: dict[str, Any] = {}
