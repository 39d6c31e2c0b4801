"""Errors as tools answer with them: the ledger's ``{"code", "message", "recoverable", "details"}`` as JSON text.

An error has no structured content, because that would have to fit the tool's output schema, and clients check it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.types import CallToolResult, TextContent
from pydantic import ValidationError

from consumers.doors.mcp.sizing import answer_tokens_max, arguments_size_max_bytes, compact, tokens_of
from consumers.sdk.tokens import cut_to_tokens
from ledger.errors import BatonError, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_log: Final = logging.getLogger(__name__)

fields_named_max: Final = 8
_message_tokens_max: Final = 500
_TOO_LARGE: Final = frozenset({"string_too_long", "too_long", "bytes_too_long"})


def failed(error: BatonError) -> CallToolResult:
    """Return the answer of a call that failed."""
    return CallToolResult(content=[TextContent(type="text", text=compact(told(error)))], is_error=True)


def told(error: BatonError) -> dict[str, Any]:
    """Return an error as it is published, its message and details within an answer's tokens."""
    answer = error.to_dict() | {"message": cut_to_tokens(error.message, _message_tokens_max)}
    if tokens_of(answer) > answer_tokens_max:
        answer["details"] = {"left_out": sorted(error.details)}
    return answer


def fault_of(failure: BaseException, tool: str) -> BatonError:
    """Return what a tool's failure is in the ledger's codes; ``failure`` or its cause is what the tool raised."""
    cause = failure.__cause__
    if isinstance(cause, BatonError):
        return cause
    if isinstance(cause, ValidationError) and not isinstance(failure, UnexpectedToolError):
        return refused_arguments(cause)
    _log.error("the tool %s failed", tool, exc_info=cause or failure)
    name = type(cause or failure).__name__
    return BatonError("UNEXPECTED", f"{tool} failed with {name}: please report it with the server's log")


def refused_arguments(error: ValidationError) -> Refused:
    """Return which arguments are wrong and why; their values are not repeated, because they may be long or secret."""
    found = [
        {"field": ".".join(str(part) for part in one["loc"]), "message": one["msg"], "type": one["type"]}
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    first = found[0]
    code = "INVALID_FIELD"
    if first["type"] in _TOO_LARGE:
        code = "TOO_LARGE"
    elif first["type"] == "extra_forbidden":
        code = "UNKNOWN_FIELD"
    more = {"fields_left_out": len(found) - fields_named_max} if len(found) > fields_named_max else {}
    return Refused(
        code, f"{first['field']}: {first['message']}", field=first["field"], fields=found[:fields_named_max], **more
    )


def check_arguments(tool: str, properties: Sequence[str], arguments: Mapping[str, Any]) -> None:
    """Refuse what a tool does not take, and more than it takes at once.

    Raises:
        Refused: ``UNKNOWN_FIELD`` or ``TOO_LARGE``.
    """
    unknown = sorted(name for name in arguments if name not in properties)
    if unknown:
        raise Refused(
            "UNKNOWN_FIELD",
            f"{tool} takes no {unknown[0][:80]!r}: it takes {', '.join(properties)}",
            fields=[name[:80] for name in unknown[:fields_named_max]],
        )
    size = len(compact(arguments))
    if size > arguments_size_max_bytes:
        raise Refused(
            "TOO_LARGE",
            f"the arguments have {size} bytes, and a call at most {arguments_size_max_bytes}: send them in several",
            size=size,
        )
