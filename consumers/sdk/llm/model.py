"""The client of a language model: it sends messages to an endpoint, and returns a typed answer or a typed error.

The API key is in a file that only its owner can read, or in an environment variable that the settings name, never in
the settings themselves. It is sent only to the endpoint's own host, over TLS unless that host is this machine. No
message, ``repr`` or log shows it. Texts of steps may be hostile, so prompts contain them as ``data_block`` writes them.
Models may obey such text nevertheless, so every answer is checked, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from deedbook.consumers.sdk.http import NoAnswer, request
from deedbook.consumers.sdk.llm import family as families
from deedbook.consumers.sdk.llm.family import Completion
from deedbook.consumers.sdk.llm.reader import read_answer
from deedbook.consumers.sdk.llm.settings import Family, LlmSettings, Message
from deedbook.consumers.sdk.llm.usage import Usage
from deedbook.consumers.sdk.loopback import is_loopback
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.format.codec import UNREADABLE, check_depth, convert, encode_sorted
from deedbook.ledger.format.identity import read_private
from deedbook.ledger.home.config import Actions
from deedbook.ledger.home.environment import environment_variable

T = TypeVar("T")

answer_size_max_bytes: Final = 1024**2
request_size_max_bytes: Final = 1024**2

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_DENIED: Final = frozenset({401, 403})
_OK: Final = 200
api_key_max_chars: Final = 4_096
_KEY: Final = re.compile(r"[!-~]+")
_URL: Final = re.compile(
    r"http(?P<tls>s)?://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[1-9]\d{0,4}))?(?:/[!-\"$->A-~]*)?",
    re.IGNORECASE,
)


def prompt_digest(messages: list[Message]) -> str:
    """Return the SHA-256 (hex) of the messages as sorted JSON, by which recorded answers are found."""
    return hashlib.sha256(encode_sorted(messages)).hexdigest()


class Endpoint(msgspec.Struct, frozen=True):
    """A checked endpoint. It reads the key at each call, so a renewed key needs no restart."""

    url: str
    family: Family
    settings: LlmSettings
    variable: Callable[[str], str | None]

    def read_key(self) -> str | None:
        """Return the API key; None if the settings name none.

        Raises Refused: as ``read_private`` for the key's file; ``INVALID_FORMAT`` if no header can contain it.
        Unavailable: ``LLM_UNAVAILABLE`` if the environment lacks the variable.
        """
        file, name = self.settings.api_key_file, self.settings.api_key_variable
        if file is not None:
            key = read_private(Path(file).expanduser()).decode("utf-8", "replace").strip()
        elif name is None:
            return None
        elif not (key := (self.variable(name) or "").strip()):
            message = f"the environment has no {name}: set it for the process, or use api_key_file"
            raise Unavailable("LLM_UNAVAILABLE", message, variable=name)
        if len(key) > api_key_max_chars or not _KEY.fullmatch(key):
            message = f"the API key in {file or name} is not 1 to {api_key_max_chars} printable ASCII characters"
            raise Refused("INVALID_FORMAT", message)
        return key


def read_endpoint(settings: LlmSettings, variable: Callable[[str], str | None]) -> Endpoint:
    """Return the endpoint of the settings. Raises Refused: ``INVALID_FIELD`` for an invalid URL, or two keys."""
    base_url = settings.base_url or (families.MANNERS[settings.family].base_url if settings.family else "")
    parts = _URL.fullmatch(base_url)
    if parts is None or int(parts["port"] or 1) >= 2**16:
        raise _wrong_url("it must be http(s)://HOST[:PORT][/PATH]; a key belongs in a file or variable")
    host = parts["host"].strip("[]").lower()
    if settings.api_key_file is not None and settings.api_key_variable is not None:
        raise Refused("INVALID_FIELD", "set api_key_file or api_key_variable, not both", path="$.api_key_file")
    has_key = settings.api_key_file is not None or settings.api_key_variable is not None
    if has_key and not parts["tls"] and not is_loopback(host):
        raise _wrong_url("an API key is sent only over https, or to this machine: use https")
    family = settings.family or families.BY_HOST.get(host, "openai-compatible")
    return Endpoint(base_url.rstrip("/") + families.MANNERS[family].path, family, settings, variable)


def _wrong_url(why: str) -> Refused:
    return Refused("INVALID_FIELD", f"base_url cannot be used: {why}", path="$.base_url")


class LlmClient:
    """Sends messages to one endpoint; each call has its own connection, so threads may share the client."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.model = endpoint.settings.model
        self.fields = families.fields_of(endpoint.settings, endpoint.family)

    def ask(self, messages: list[Message], form: type[T]) -> T:
        """Return the answer as a value of ``form``. Raises as ``complete``; also ``LLM_INVALID`` for another form."""
        text, fault, _ = self.complete(messages)
        try:
            if fault is not None:
                raise fault
            return read_answer(text, form)
        except Refused as refusal:
            message = f"the model's answer does not have the requested form: {refusal.message}"
            raise Unavailable("LLM_INVALID", message, because=refusal.code) from refusal

    def complete(self, messages: list[Message], *, sample: int | None = None, limit_s: float = inf) -> Completion:
        """Return the model's text within ``limit_s`` seconds; ``sample`` numbers one of several answers to a question.

        Raises Refused: ``TOO_LARGE`` if the request exceeds ``request_size_max_bytes``; the codes of the key's file.
        Unavailable: ``LLM_UNAVAILABLE`` (unreachable, too slow, busy, key missing or refused) or ``LLM_INVALID`` (the
        server is not one of a model), with the number of ``requests`` that were sent.
        """
        settings, family = self.endpoint.settings, self.endpoint.family
        key = self.endpoint.read_key()
        fields = families.fields_of(settings, family, sample)
        body = families.body_of(self.model, family, fields, messages)
        if len(body) > request_size_max_bytes:
            message = f"the question has {len(body)} bytes, more than {request_size_max_bytes}"
            raise Refused("TOO_LARGE", message, size=len(body))
        try:
            answer = request(
                "POST",
                self.endpoint.url,
                body,
                families.headers_of(family, key),
                limit_s=min(limit_s, settings.timeout_s),
                attempts_max=settings.attempts_max,
                passing=_PASSING,
                answer_max_bytes=answer_size_max_bytes,
                read=None,
            )
        except NoAnswer as failure:
            if failure.reason == "large":
                return Completion("", Refused("TOO_LARGE", failure.problem), Usage(requests=failure.requests))
            raise _gave_up(failure, key) from failure
        known = {"status": answer.status, "requests": answer.requests}
        if 300 <= answer.status < 400:
            message = f"the endpoint answered {answer.status}, and redirects are not followed: correct base_url"
            raise Unavailable("LLM_INVALID", message, **known)
        if answer.status != _OK:
            what, reason = "API key" if answer.status in _DENIED else "request", families.reason_in(answer.body, key)
            problem = f"the endpoint answered {answer.status}, it does not accept the {what}"
            raise Unavailable("LLM_UNAVAILABLE", f"{problem}: {reason}".removesuffix(": "), **known)
        try:
            check_depth(answer.body)
            return families.completion_in(answer.body, key, answer.requests)
        except (*UNREADABLE, Refused) as error:
            reason = f": {error.message}" if isinstance(error, Refused) else ""
            message = f"the endpoint's answer is not that of a language model in JSON{reason}"
            raise Unavailable("LLM_INVALID", message, requests=answer.requests) from error


def _gave_up(failure: NoAnswer, key: str | None) -> Unavailable:
    details = {"requests": failure.requests, "status": failure.answer.status, "retry_after_s": failure.answer.wait_s}
    known = {name: value for name, value in details.items() if value or name == "requests"}
    if not failure.may_pass:
        return Unavailable("LLM_INVALID", failure.problem, **known)
    times = f" {failure.attempts} times" if failure.attempts > 1 else ""
    reason = families.reason_in(failure.answer.body, key)
    message = f"the model cannot be reached: {failure.problem}{times}: {reason}".removesuffix(": ")
    return Unavailable("LLM_UNAVAILABLE", message, **known)


def configured_client(actions: Actions) -> LlmClient | None:
    """Return the client of the configured model; None if there is no table ``[llm]``.

    Only a trusted folder has ``actions``, so no environment variable is read for another one. Raises Refused:
    ``INVALID_FIELD`` for a wrong table.
    """
    if not actions.llm:
        return None
    try:
        settings = convert(actions.llm, LlmSettings)
    except msgspec.ValidationError as error:
        raise Refused("INVALID_FIELD", f"config.toml, [llm]: {error}: deploy/README.md lists the settings") from error
    return LlmClient(read_endpoint(settings, environment_variable))


def named_client(actions: Actions) -> LlmClient:
    """Return the client of the configured model. Raises Refused: ``USAGE`` if none is configured."""
    if (client := configured_client(actions)) is None:
        raise Refused("USAGE", "no model is configured: config.toml needs a table [llm] (deploy/README.md)")
    return client
