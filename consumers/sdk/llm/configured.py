"""The language model that ``config.toml`` names, if it names one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from consumers.sdk.llm.client import LlmClient
from consumers.sdk.llm.endpoint import LlmSettings, read_endpoint
from ledger.config import environment_variable
from ledger.errors import Refused

if TYPE_CHECKING:
    from ledger.config import Config


def configured_client(config: Config) -> LlmClient | None:
    """Return the client of the configured model; None when the table ``[llm]`` is empty: then nobody is ever asked.

    Raises:
        Refused: ``INVALID_FIELD`` for a wrong table; the codes of the key's file.
        Unavailable: ``LLM_UNAVAILABLE`` when the environment lacks the key's variable.
    """
    if not config.llm:
        return None
    try:
        settings = msgspec.convert(config.llm, LlmSettings)
    except msgspec.ValidationError as error:
        raise Refused("INVALID_FIELD", f"config.toml, [llm]: {error}") from error
    name = settings.api_key_variable
    value = environment_variable(name) if name else None
    return LlmClient(read_endpoint(settings, {name: value} if name and value else {}))
