"""The only encoders and decoders of Deedbook: strict JSON for signed bodies, minimal msgpack for stored data.

``msgspec`` accepts duplicate keys and large integers in float fields. So a decoded value is encoded again in sorted
form. If the result differs from the bytes, the slower standard parser, with hooks, checks every key and number.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, Final, NoReturn, TypeVar, overload

import msgspec
import rfc8785

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.forms import WORDS
from deedbook.ledger.limits import json_depth_max, json_integer_max

T = TypeVar("T")

# The exceptions of msgspec for invalid bytes. For text that is not UTF-8 it raises Python's own error.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_sorted_json = msgspec.json.Encoder(order="sorted")
_msgpack = msgspec.msgpack.Encoder(order="deterministic")  # otherwise each process would order sets differently
encode_packed: Final = _msgpack.encode
"""Return a value in its one minimal msgpack form."""
_examined: set[Any] = set()
_examining = threading.Lock()
decimal_max: Final = 2**63 - 1
_DECIMAL: Final = r"0|[1-9][0-9]{0,18}"
_HALF: Final = "[\ud800-\udfff]"
# A string without an end continues to the end of the text. Otherwise the search would begin again at each quote in it.
_STRINGS: Final = rb'(?s:"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))'
_SURROGATE: Final = rb"\\u[dD][89a-fA-F]"
_SIXTEEN_DIGITS: Final = rb"[0-9]{16}"
_CHOICES: Final = r"'\^\((\w+(?:\|\w+)+)\)\??\\\\Z'"  # a pattern that lists a few words, as msgspec prints it
_NOT_BRACKETS: Final = bytes(range(256)).translate(None, b"[]{}")


def encode_canonical(value: Any) -> bytes:
    """Return ``value`` as RFC 8785 (JCS) bytes, the form that Deedbook's own authors sign.

    Raises Refused: ``INVALID_FORMAT`` when the value has no canonical form (NaN, an integer beyond ±(2^53−1)).
    """
    try:
        return rfc8785.dumps(msgspec.to_builtins(value, str_keys=True))
    except rfc8785.IntegerDomainError as error:
        raise Refused(
            "INTEGER_OUT_OF_RANGE", f"the integer {str(error).split()[0][:24]} is outside ±(2^53−1)"
        ) from error
    except rfc8785.FloatDomainError as error:
        raise Refused("INVALID_FORMAT", "a number is infinite or no number (NaN): write a finite one") from error
    except rfc8785.CanonicalizationError as error:
        field = next(halves(msgspec.to_builtins(value, str_keys=True)), "")
        fault = f"{field} contains a lone surrogate, which has no UTF-8 form" if field else str(error)
        raise Refused("INVALID_FORMAT", f"this value has no canonical JSON form: {fault}") from error
    except (UnicodeEncodeError, TypeError) as error:
        raise Refused("INVALID_FORMAT", f"this value has no canonical JSON form: {error}") from error


def halves(value: Any, path: str = "$") -> Iterator[str]:
    """Yield the paths of texts with a lone surrogate in a plain value."""
    if isinstance(value, str) and re.search(_HALF, value):
        yield path
    if isinstance(value, dict):
        for name, part in value.items():
            yield from halves(part, f"{path}.{name}")
    elif isinstance(value, list):
        for position, part in enumerate(value):
            yield from halves(part, f"{path}[{position}]")


def encode_sorted(value: Any) -> bytes:
    """Return ``value`` as JSON with sorted keys. It equals JCS unless it has whole floats or non-ASCII keys."""
    try:
        return _sorted_json.encode(value)
    except TypeError:  # integer keys (a reasoning's dependencies) have no order until they are text, as in JSON
        return _sorted_json.encode(msgspec.to_builtins(value, str_keys=True))


def encode_arguments(arguments: Any, what: str) -> bytes:
    """Return the arguments of a query as JSON, the same here and on the bus; ``what`` names the query in errors.

    Raises Refused: ``INTEGER_OUT_OF_RANGE``, or ``INVALID_FORMAT`` for text that is not UTF-8.
    """
    try:
        text = encode_sorted(arguments)
    except UnicodeEncodeError as error:
        raise Refused("INVALID_FORMAT", f"{what}: an argument is not valid Unicode text") from error
    except OverflowError as error:
        raise Refused("INTEGER_OUT_OF_RANGE", f"{what}: an integer is outside ±(2^53−1)") from error
    check_depth(text)
    if re.search(_SIXTEEN_DIGITS, text):  # perhaps an integer out of range; msgspec writes no other invalid JSON
        check_strict(text)
    return text


def check_depth(text: bytes, limit: int = json_depth_max) -> None:
    """Refuse JSON nested deeper than ``limit`` before any recursive parser sees it.

    Raises Refused: ``NESTING_TOO_DEEP``.
    """
    if text.count(b"{") + text.count(b"[") <= limit:
        return
    depth = 0
    for bracket in re.sub(_STRINGS, b"", text).translate(None, _NOT_BRACKETS):
        if bracket in b"{[":
            depth += 1
            if depth > limit:
                raise Refused("NESTING_TOO_DEEP", f"the JSON is nested deeper than {limit} levels", limit=limit)
        else:
            depth -= 1


def check_strict(text: bytes) -> Any:
    """Parse JSON, check every key and number, and return the plain value.

    Raises Refused: ``INVALID_FORMAT``, ``DUPLICATE_KEY``, ``INTEGER_OUT_OF_RANGE`` or ``NESTING_TOO_DEEP``.
    """
    check_depth(text)
    try:
        return strict_json().decode(text.decode("utf-8", "strict"))
    except UnicodeDecodeError as error:
        raise Refused("INVALID_FORMAT", f"the bytes are not UTF-8 (at byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise Refused("INVALID_FORMAT", f"this is not JSON at character {error.pos}: {error.msg}") from error


def check_encodable(text: bytes) -> None:
    """Check JSON as ``check_strict`` does, and that no text has half of a surrogate pair, as in bad transcripts.

    Raises Refused: as ``check_strict``.
    """
    value = check_strict(text)
    try:
        if re.search(_SURROGATE, text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refused("INVALID_FORMAT", "a text contains half of a surrogate pair") from error


def strict_json(*, controls: bool = False) -> json.JSONDecoder:
    """Return a decoder that checks every key and number. ``controls``: strings may contain raw line breaks."""
    return json.JSONDecoder(
        object_pairs_hook=_unique_keys,
        parse_int=_bounded_integer,
        parse_float=_finite_float,
        parse_constant=_refuse_constant,
        strict=not controls,
    )


def decode_strict(text: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode JSON into the decoder's type under all strict rules.

    Raises Refused: as ``check_encodable``, and ``UNKNOWN_FIELD`` or ``INVALID_FIELD`` with the field's path.
    """
    check_depth(text)
    try:
        value = decoder.decode(text)
    except UNREADABLE as error:
        check_encodable(text)  # report the more basic fault first
        raise schema_error(error) from error
    # A type without bounds keeps a large integer unchanged, so comparing is not enough: check every long number.
    if re.search(_SIXTEEN_DIGITS, text) or encode_sorted(value) != text:
        check_strict(text)
    return value


def schema_error(error: Exception, root: str = "$") -> Refused:
    """Return the refusal for a msgspec error, with the field's path; ``root`` is the path of the decoded value."""
    message, _, below = str(error).partition(" - at `")
    path = root + below.rstrip("`").partition("$")[2]
    if "unknown field" in message:
        name = message.split("`")[1]
        return Refused("UNKNOWN_FIELD", f"unknown field {name!r} at {path}", field=name, path=path)
    if isinstance(error, msgspec.ValidationError):
        # Never show the value: a secret in the wrong field must not appear in a log.
        message = re.sub(r"^(Invalid (?:enum )?value) .*", r"\1: see the schema for the allowed values", message)
        return Refused("INVALID_FIELD", f"{_readable(message)} at {path}", path=path)
    return Refused("INVALID_FORMAT", message)


def _readable(message: str) -> str:
    """Return a message of msgspec without its regular expressions."""
    pattern = message.partition(" matching regex ")[2]
    if choices := re.fullmatch(_CHOICES, pattern):
        *others, last = choices[1].split("|")
        return f"the value must be {', '.join(others)} or {last}"
    return WORDS.get(pattern, message.replace("Expected `str` of length >= 1", "the text is empty: write something"))


def prepared(form: type[T]) -> type[T]:
    """Return the type, after msgspec has examined it.

    msgspec examines a type when it is first used, without a lock: a second thread that uses the type meanwhile crashes
    the process (seen with 0.22). So every decoder is made here, and every type is examined under one lock.
    """
    if form not in _examined:
        with _examining:
            msgspec.msgpack.Decoder(form)
            _examined.add(form)
    return form


@overload
def json_decoder(form: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(form: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(form: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON as a type."""
    return msgspec.json.Decoder(prepared(form))


def msgpack_decoder(form: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Return a decoder of msgpack as a type."""
    return msgspec.msgpack.Decoder(prepared(form))


def read_json(data: bytes | str, form: type[T]) -> T:
    """Return JSON as a type. Raises msgspec's ``DecodeError`` or ``ValidationError``."""
    return msgspec.json.decode(data, type=prepared(form))


def read_msgpack(data: bytes, form: type[T]) -> T:
    """Return msgpack as a type. Raises msgspec's ``DecodeError`` or ``ValidationError``."""
    return msgspec.msgpack.decode(data, type=prepared(form))


@overload
def convert(value: Any, form: type[T], *, strict: bool = True, str_keys: bool = False) -> T: ...
@overload
def convert(value: Any, form: Any, *, strict: bool = True, str_keys: bool = False) -> Any: ...
def convert(value: Any, form: Any, *, strict: bool = True, str_keys: bool = False) -> Any:
    """Return plain values as a type. Raises msgspec's ``ValidationError``."""
    return msgspec.convert(value, prepared(form), strict=strict, str_keys=str_keys)


def converted(value: Any, kind: type[T], root: str = "$", *, strict: bool = True) -> T:
    """Return plain decoded JSON as the type ``kind``. If not ``strict``, numbers may be text. ``root`` is its path.

    Raises Refused: ``INVALID_FIELD`` or ``UNKNOWN_FIELD``.
    """
    try:
        # ``str_keys``, because JSON writes step numbers (the keys of dependencies) as text.
        return convert(value, kind, strict=strict, str_keys=True)
    except msgspec.ValidationError as error:
        raise schema_error(error, root) from error


def decode_packed(data: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Decode msgpack that must be in its minimal form.

    Raises Refused: ``INVALID_FORMAT`` when it is not msgpack, not of the type, or not minimal.
    """
    try:
        value = decoder.decode(data)
    except UNREADABLE as error:
        raise Refused("INVALID_FORMAT", f"this is not the expected msgpack: {error}") from error
    if encode_packed(value) != data:
        raise Refused("INVALID_FORMAT", "the msgpack is not in its minimal form")
    return value


def encode_utf8(text: str, what: str) -> bytes:
    """Return the text's bytes; ``what`` names it in the error.

    Raises Refused: the text contains a lone surrogate, as JSON may.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refused("INVALID_FORMAT", f"The {what} is not valid Unicode text.") from None


def encode_base64(data: bytes) -> str:
    """Return standard base64 with padding (RFC 4648 §4)."""
    return b64encode(data).decode()


def decode_base64(encoded: str, what: str) -> bytes:
    """Return the bytes of standard base64 in its one canonical form (RFC 4648 §4); ``what`` names it in the error.

    Raises Refused: it is not base64, or not in the form that an encoder writes.
    """
    try:
        decoded = b64decode(encoded, validate=True)
    except ValueError:
        decoded = None
    if decoded is None or encode_base64(decoded) != encoded:
        raise Refused("INVALID_FORMAT", f"The {what} is not base64.")
    return decoded


def decode_decimal(digits: str, what: str) -> int:
    """Return the number of ASCII digits without leading zeroes, at most 2**63-1; ``what`` names it in the error.

    Raises Refused: it is not in this form, or too large.
    """
    if not re.fullmatch(_DECIMAL, digits) or int(digits) > decimal_max:
        raise Refused("INVALID_FORMAT", f"The {what} is not a decimal number of at most {decimal_max}.")
    return int(digits)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names: set[str] = set()
        for key, _ in pairs:
            if key in names:
                raise Refused("DUPLICATE_KEY", f"an object contains the key {key!r} twice", field=key)
            names.add(key)
    return fields


def _bounded_integer(digits: str) -> int:
    if len(digits) > len("-9007199254740991") or abs(int(digits)) > json_integer_max:
        raise Refused("INTEGER_OUT_OF_RANGE", f"the integer {digits[:24]} is outside ±(2^53−1)")
    return int(digits)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise Refused("INVALID_FORMAT", f"the number {digits[:24]} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise Refused("INVALID_FORMAT", f"{name} is not JSON")
