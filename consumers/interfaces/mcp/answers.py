"""The answers of tools: fenced untrusted text, the token limits, and errors in the ledger's codes.

An answer is filled to ``filled_tokens_max`` by the installed tokenizer, which leaves room under ``answer_tokens_max``
for its pointers and for other tokenizers. A caller gets more only by a level, a budget or a ``limit``: each row of a
list may have ``row_tokens_max``. Lists end after an item and texts after a word, and the answer names the parts that
were left out. The type of an answer only says which texts are untrusted (``fence``): it may omit fields that hold one
word, and unknown fields are passed on, so that a new mark reaches its reader.

An error is ``{"code", "message", "recoverable", "details"}``. If its details have words of others, such as similar ids
or a changed title, then details and message are untrusted texts, as in an answer. Tools publish no schema of their
answers: it was 40 % of the list of tools, every session of a model pays for that list, and no client needs it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.types import CallToolResult, TextContent
from pydantic import ValidationError

from deedbook.consumers.interfaces.mcp.fence import Own, split, untrusted_fields
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE, Origin, untrusted_block
from deedbook.consumers.sdk.text import escape_text, json_text
from deedbook.consumers.sdk.tokens import Budget, cut_to_tokens
from deedbook.ledger.errors import DeedbookError, Refused, did_you_mean, near
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.answer import UNDATED_MS, Answer
from deedbook.projections.briefs.tokens import count_tokens

answer_tokens_max: Final = 2_000
filled_tokens_max: Final = 1_500
row_tokens_max: Final = 150
arguments_size_max_bytes: Final = 900 * 1024
_note_tokens: Final = 60
"""The room reserved for naming the parts that were left out."""
_log: Final = logging.getLogger(__name__)
fields_named_max: Final = 8
_message_tokens_max: Final = 500
_PREFIX: Final = re.compile(r"\$\.(?:data\.)?")
_CODES: Final = {
    "string_too_long": "TOO_LARGE",
    "too_long": "TOO_LARGE",
    "bytes_too_long": "TOO_LARGE",
    "extra_forbidden": "UNKNOWN_FIELD",
}


class FailureDetails(Answer, frozen=True, kw_only=True):
    """The details of an error whose texts come from us, or from this machine's settings."""

    field: Own
    fields: list[dict[str, Own] | Own]
    path: Own
    file: Own
    folder: Own
    home: Own
    server: Own
    url: Own


class Failure(Answer, frozen=True, kw_only=True):
    """An error."""

    message: Own
    details: FailureDetails


def plain(value: Any) -> Any:
    """Return a structured answer with misleading characters as escapes, because clients show texts unchanged."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return escape_text(value) if isinstance(value, str) else value


def tokens_of(value: Any) -> int:
    """Return the tokens of a value as JSON text."""
    return count_tokens(json_text(value))


def fitting(items: Sequence[Any], answer: Mapping[str, Any], *, limit: int = filled_tokens_max) -> int:
    """Return how many of the first ``items`` fit into an answer that already holds ``answer``; at least one.

    A single item that is too long must be shortened by the caller.
    """
    budget = Budget(limit - _note_tokens - tokens_of(answer))
    fits = list(takewhile(lambda item: budget.take(tokens_of(item) + 1), items))
    return max(len(fits), min(1, len(items)))


def share_of(rows: int) -> int:
    """Return the tokens for each row of a list with this number of rows."""
    return max(row_tokens_max, (filled_tokens_max - _note_tokens) // max(1, rows))


def without(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return an item without some of its fields."""
    return {name: value for name, value in item.items() if name not in names}


def paged(
    answer: dict[str, Any], items: Sequence[Any], name: str, page: Callable[[int], dict[str, Any]]
) -> dict[str, Any]:
    """Return an answer with all ``items``. If their ids are too long for that, return only those that fit."""
    head = answer | {name: []}
    rows_tokens = _note_tokens + tokens_of(head) + len(items) * (row_tokens_max + 1)  # one comma for each
    count = fitting(items, head, limit=max(filled_tokens_max, rows_tokens))
    if count < len(items):
        answer = (
            answer
            | page(count)
            | {"shorter": f"{count} of {len(items)} fit into an answer; get the rest with `next` as `after`"}
        )
    return answer | {name: items[:count]}


def shorten(item: dict[str, Any], fields: Sequence[str], tokens: int) -> dict[str, Any]:
    """Return an item with each text cut to ``tokens`` between words; ``shortened`` names the texts that were cut."""
    cut = {name: cut_to_tokens(item[name], tokens) for name in fields if isinstance(item.get(name), str)}
    names = [name for name, text in cut.items() if text != item[name].strip()]
    return item | {name: cut[name] for name in names} | ({"shortened": names} if names else {})


def shorten_list(texts: Sequence[str], tokens: int) -> tuple[list[str], int]:
    """Return the first texts that fit into ``tokens`` (at least a part of the first), and how many were left out."""
    budget = Budget(tokens)
    fits = list(takewhile(lambda text: budget.take(count_tokens(text) + 2), texts))
    fits = fits or [cut_to_tokens(text, tokens) for text in texts[:1]]
    return fits, len(texts) - len(fits)


def answered(answer: Mapping[str, Any], type_: type[Answer], origin: Origin) -> CallToolResult:
    """Return the result of a call: its fields as they are, with pointers to the untrusted ones, and the same as text.

    The text is JSON without the untrusted texts. A block with these texts follows, and no text can end the block.
    """
    answer = plain(answer)
    return _fenced(answer, untrusted_fields(answer, type_), lambda: origin)


def _fenced(
    answer: Mapping[str, Any], fields: Collection[str], origin: Callable[[], Origin], *, is_error: bool = False
) -> CallToolResult:
    own, untrusted = split(answer, fields)
    texts = [json_text(own)]
    if fields:
        others = origin()
        texts.append(f"{UNTRUSTED_NOTICE}\n{untrusted_block(json_text(untrusted), others)}")
        answer = {"others": {**others.label(), "fields": fields}, **answer}
    return CallToolResult(
        content=[TextContent(type="text", text=text) for text in texts],
        structured_content=dict(answer),
        is_error=is_error,
    )


def time_text(at: str | int) -> str:
    """Return a time, which is text or milliseconds, as text."""
    if at == UNDATED_MS:
        return "undated"
    return at if isinstance(at, str) else clock_text(at)


def failed(error: DeedbookError, origin: Callable[[], Origin]) -> CallToolResult:
    """Return the answer of a failed call; ``origin`` names the ledger whose words it may repeat."""
    answer = plain(error_dict(error))
    # Details that are too long are left out, so check the complete details; many pointers into them would be too long.
    has_others = untrusted_fields({"details": msgspec.to_builtins(error.details)}, Failure)
    fields = ["/message", "/details"] if has_others else []
    return _fenced(answer, fields, origin, is_error=True)


def error_dict(error: DeedbookError) -> dict[str, Any]:
    """Return the JSON object of an error, with message and details within the token limit."""
    answer = error.to_dict() | {"message": cut_to_tokens(_PREFIX.sub("", error.message), _message_tokens_max)}
    if isinstance(path := error.details.get("path"), str):  # name the argument instead of the event's field
        answer["details"] = {**error.details, "path": _PREFIX.sub("", path)}
    if tokens_of(answer) > filled_tokens_max:
        answer["details"] = {"left_out": sorted(error.details)}
    return answer


def fault_of(failure: BaseException, tool: str) -> DeedbookError:
    """Return a tool's failure as an error with a ledger code; the tool raised ``failure`` or its cause."""
    cause = failure.__cause__
    if isinstance(cause, DeedbookError):
        return cause
    if isinstance(cause, ValidationError) and not isinstance(failure, UnexpectedToolError):
        return refused_arguments(cause)
    _log.error("the tool %s failed", tool, exc_info=cause or failure)
    name = type(cause or failure).__name__
    return DeedbookError("UNEXPECTED", f"{tool} failed with {name}: please report it with the server's log")


def refused_arguments(error: ValidationError) -> Refused:
    """Return the invalid arguments and the reasons, without their values, which may be long or secret."""
    fields = [
        {"field": ".".join(str(part) for part in problem["loc"]), "message": problem["msg"], "type": problem["type"]}
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    field, code = fields[0]["field"], _CODES.get(fields[0]["type"], "INVALID_FIELD")
    rest = {"fields_left_out": len(fields) - fields_named_max} if len(fields) > fields_named_max else {}
    return Refused(code, f"{field}: {fields[0]['message']}", field=field, fields=fields[:fields_named_max], **rest)


def check_arguments(tool: str, properties: Sequence[str], arguments: Mapping[str, Any]) -> None:
    """Refuse unknown arguments, and arguments that are too large together."""
    unknown = sorted(name for name in arguments if name not in properties)
    if unknown:
        rest = did_you_mean(near(unknown[0], properties)) or f": it takes {', '.join(properties)}"
        message = f"{tool} has no argument {unknown[0][:80]!r}{rest}"
        raise Refused("UNKNOWN_FIELD", message, fields=[name[:80] for name in unknown[:fields_named_max]])
    if (size := len(json_text(arguments))) > arguments_size_max_bytes:
        message = f"the arguments have {size} bytes; a call may have at most {arguments_size_max_bytes}"
        raise Refused("TOO_LARGE", f"{message}: split them over several calls", size=size)
