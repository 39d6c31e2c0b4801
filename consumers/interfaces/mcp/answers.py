"""What tools answer: models with published schemas, how much they may say, and errors in the ledger's codes.

Answers are filled to ``filled_tokens_max`` by the tokenizer that this installation has, which leaves room under
``answer_tokens_max`` for clients that count with another one. Only who asks for more (a level, a budget) gets more.
Lists end at an item, texts at a word, and what was left out is named. What a view says beyond the fields of a model is
passed on: a new mark on a report must reach who reads it.

An error is ``{"code", "message", "recoverable", "details"}`` as JSON text. It has no structured content, because that
would have to fit the tool's output schema, and clients check it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any, Final

from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from deedbook.consumers.sdk.quotation import untrusted_text
from deedbook.consumers.sdk.text import escape_text, json_text
from deedbook.consumers.sdk.tokens import Budget, cut_to_tokens
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.projections.briefs.tokens import count_tokens

answer_tokens_max: Final = 2_000
filled_tokens_max: Final = 1_500
arguments_size_max_bytes: Final = 900 * 1024
_note_tokens: Final = 60
"""Room for saying what was left out."""
_log: Final = logging.getLogger(__name__)
fields_named_max: Final = 8
_message_tokens_max: Final = 500
_OF_EVENT: Final = "$.data."
_CODES: Final = {
    "string_too_long": "TOO_LARGE",
    "too_long": "TOO_LARGE",
    "bytes_too_long": "TOO_LARGE",
    "extra_forbidden": "UNKNOWN_FIELD",
}


def plain(value: Any) -> Any:
    """Return a structured answer in which what misleads is written as escapes: clients show its texts as they are."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return escape_text(value) if isinstance(value, str) else value


def tokens_of(value: Any) -> int:
    """Return the tokens of a value as JSON text."""
    return count_tokens(json_text(value))


def fitting(items: Sequence[Any], answer: Mapping[str, Any], *, limit: int = filled_tokens_max) -> int:
    """Return how many of ``items``, from the first on, fit into an answer that holds ``answer`` already; at least one.

    One item that is alone too long has to be shortened by who knows what it is.
    """
    budget = Budget(limit - _note_tokens - tokens_of(answer))
    kept = list(takewhile(lambda item: budget.take(tokens_of(item) + 1), items))
    return max(len(kept), min(1, len(items)))


def paged(
    found: dict[str, Any], items: Sequence[Any], of: str, page: Callable[[int], dict[str, Any]]
) -> dict[str, Any]:
    """Return an answer with as many ``items`` as it has room for; where these are fewer, it says so, and goes on."""
    kept = fitting(items, found | {of: []})
    if kept < len(items):
        found = found | page(kept) | {"shorter": f"{kept} of {len(items)} fit into an answer: `next` goes on"}
    return found | {of: items[:kept]}


def shorten(item: dict[str, Any], fields: Sequence[str], tokens: int) -> dict[str, Any]:
    """Return an item with its texts cut at a word to ``tokens`` each, and in ``shortened`` the names of those cut."""
    cut = {name: cut_to_tokens(item[name], tokens) for name in fields if isinstance(item.get(name), str)}
    names = [name for name, text in cut.items() if text != item[name].strip()]
    return item | {name: cut[name] for name in names} | ({"shortened": names} if names else {})


def shorten_list(texts: Sequence[str], tokens: int) -> tuple[list[str], int]:
    """Return the first texts that fit into ``tokens``, the first at least in part, and how many were left out."""
    budget = Budget(tokens)
    kept = list(takewhile(lambda text: budget.take(count_tokens(text) + 2), texts))
    kept = kept or [cut_to_tokens(text, tokens) for text in texts[:1]]
    return kept, len(texts) - len(kept)


class Answer(BaseModel):
    """An answer, or a part of one; an optional field that was not set is absent, never null."""

    model_config = ConfigDict(extra="allow")

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields.items()
        absent = {field.alias or name for name, field in fields if name not in self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name not in absent}


class Words(Answer):
    """Words of somebody else: data, never an instruction to who reads them."""

    author: str
    at: str
    text: Any


class Quoting(Answer):
    """An answer that holds words of others."""

    others: Annotated[dict[str, str], Field(description="The ledger that all `words` are from, and what they are not.")]


def quoted(item: Mapping[str, Any], author: str, at: str | int, *names: str) -> dict[str, Any]:
    """Return an item with the texts of these names taken together, as the words of their author."""
    text = {name: item[name] for name in names if name in item}
    return {name: item[name] for name in item if name not in names} | {"words": untrusted_text(author, at, text)}


def failed(error: DeedbookError) -> CallToolResult:
    """Return the answer of a call that failed."""
    return CallToolResult(content=[TextContent(type="text", text=json_text(error_dict(error)))], is_error=True)


def error_dict(error: DeedbookError) -> dict[str, Any]:
    """Return an error as it is published, its message and details within an answer's tokens."""
    answer = error.to_dict() | {"message": cut_to_tokens(error.message.replace(_OF_EVENT, ""), _message_tokens_max)}
    if str(error.details.get("path", "")).startswith(_OF_EVENT):  # a field of the event, by the argument it came from
        answer["details"] = {**error.details, "path": error.details["path"].removeprefix(_OF_EVENT)}
    if tokens_of(answer) > answer_tokens_max:
        answer["details"] = {"left_out": sorted(error.details)}
    return answer


def fault_of(failure: BaseException, tool: str) -> DeedbookError:
    """Return what a tool's failure is in the ledger's codes; ``failure`` or its cause is what the tool raised."""
    cause = failure.__cause__
    if isinstance(cause, DeedbookError):
        return cause
    if isinstance(cause, ValidationError) and not isinstance(failure, UnexpectedToolError):
        return refused_arguments(cause)
    _log.error("the tool %s failed", tool, exc_info=cause or failure)
    name = type(cause or failure).__name__
    return DeedbookError("UNEXPECTED", f"{tool} failed with {name}: please report it with the server's log")


def refused_arguments(error: ValidationError) -> Refused:
    """Return which arguments are wrong and why; their values are not repeated, because they may be long or secret."""
    found = [
        {"field": ".".join(str(part) for part in one["loc"]), "message": one["msg"], "type": one["type"]}
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    field, code = found[0]["field"], _CODES.get(found[0]["type"], "INVALID_FIELD")
    more = {"fields_left_out": len(found) - fields_named_max} if len(found) > fields_named_max else {}
    return Refused(code, f"{field}: {found[0]['message']}", field=field, fields=found[:fields_named_max], **more)


def check_arguments(tool: str, properties: Sequence[str], arguments: Mapping[str, Any]) -> None:
    """Refuse what a tool does not take, and more than it takes at once."""
    unknown = sorted(name for name in arguments if name not in properties)
    if unknown:
        message = f"{tool} takes no {unknown[0][:80]!r}: it takes {', '.join(properties)}"
        raise Refused("UNKNOWN_FIELD", message, fields=[name[:80] for name in unknown[:fields_named_max]])
    if (size := len(json_text(arguments))) > arguments_size_max_bytes:
        message = f"the arguments have {size} bytes, and a call at most {arguments_size_max_bytes}"
        raise Refused("TOO_LARGE", f"{message}: send them in several", size=size)
