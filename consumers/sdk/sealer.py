"""Seals and opens the texts of a subject's events and blobs, with the key service that the settings name.

Sealed texts are opened only for display. Nothing here writes an opened text into the ledger, its views or a file.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from deedbook.ledger.client.client import Ask, every_row
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.blob import SEALABLE_FIELDS
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.subject import SubjectName
from deedbook.ledger.format.codec import convert
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.location import config_folder, project_path, resolved
from deedbook.ledger.lifecycle.subject import sealed_too_late
from deedbook.ledger.limits import blob_size_max_bytes
from deedbook.ledger.seal.key_files import KeyFiles
from deedbook.ledger.seal.reference import SealedReference, encode_texts, text_at, texts_max, with_references
from deedbook.ledger.seal.sealed_blob import ByteSource, read_header, seal, unseal
from deedbook.ledger.seal.token_keys import TokenKeys
from deedbook.ledger.system.files import as_unavailable

if TYPE_CHECKING:
    from deedbook.ledger.client.author import Author
    from deedbook.ledger.client.client import Client, Progress
    from deedbook.ledger.seal.keys import KeyService

D = TypeVar("D", bound=EventData)
S = TypeVar("S", bound=msgspec.Struct)
# only texts with this prefix can have a reference: searching JSON for it is faster than searching values
SEALED: Final = b"sealed:"
texts_max_bytes: Final = 1024**2  # An event has at most 48 KiB.
_WORDS: Final = re.compile(r"\w")


class Erasure(msgspec.Struct, frozen=True):
    """When (Unix ms), by whom and why a subject was erased."""

    subject: str
    at_ms: int
    by: str
    reason: str

    def __str__(self) -> str:
        day = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d")
        return f"erased on {day} by {self.by}: {self.reason}"


def open_keys(settings: Settings | None, client: Client) -> KeyService:
    """Return the key service of this user for a ledger; without ``settings``, the key files.

    Raises Refused: ``NOT_TRUSTED``, because the settings of a stranger's folder could load a program; ``INVALID_FIELD``
    for a setting that is missing; ``EXTRA_MISSING``.
    """
    chosen = None if settings is None else trust.actions_of(settings, client).seal
    if settings is None or chosen is None or chosen.keys == "files":
        return KeyFiles(config_folder(), client.ledger)
    if chosen.module is None or chosen.token is None or chosen.pin_file is None:
        message = "[seal] in config.toml needs module, token and pin_file for keys in a token"
        raise Refused("INVALID_FIELD", message, path="seal")
    home = resolved(settings.home)
    module, pin_file = (project_path(home, path) for path in (chosen.module, chosen.pin_file))
    return TokenKeys(module, chosen.token, pin_file, client.ledger)


def check_subject(name: str) -> str:
    """Return the name of a subject. Raises Refused: ``INVALID_FIELD``."""
    try:
        return convert(name, SubjectName)
    except msgspec.ValidationError as error:
        message = f"{name!r} cannot name a subject: use 1 to 63 of a-z, 0-9, _ and -, such as customer-4711"
        raise Refused("INVALID_FIELD", message, path="subject") from error


def erasure_of(ask: Ask, subject: str) -> Erasure | None:
    """Return when, by whom and why a subject was erased; None if it was not."""
    return next(iter(erasures(ask, subject)), None)


def erasures(ask: Ask, subject: str | None = None) -> Iterator[Erasure]:
    """Yield the erasures of all subjects, or of one, in the order of the log. A long reason is shortened."""
    filters = {"kind": "subject.erased"} | ({} if subject is None else {"stream": f"subject/{subject}"})
    for row in every_row(ask, "catalog.find", filters):
        if row["skipped"] is None:
            yield Erasure(row["stream"].partition("/")[2], row["accepted_ms"], row["author"], row["text"])


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain values with each text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: map_texts(part, change) for name, part in value.items()}
    return [map_texts(part, change) for part in value] if isinstance(value, list) else value


def named(answer: dict[str, Any], ask: Ask) -> dict[str, Any]:
    """Return an answer in which each sealed reference says for whom it is sealed, or that its subject was erased."""
    return _renamed(answer, ask, lambda reference, erasure: name_of(reference.subject, erasure))


def with_erasures(answer: dict[str, Any], ask: Ask) -> dict[str, Any]:
    """Return an answer for programs: references stay, except those of erased subjects, which nobody can open."""
    return _renamed(answer, ask, lambda reference, erasure: f"[{erasure}]" if erasure else str(reference))


def _renamed(
    answer: dict[str, Any], ask: Ask, name: Callable[[SealedReference, Erasure | None], str]
) -> dict[str, Any]:
    if SEALED not in msgspec.json.encode(answer):
        return answer
    erasure = cache(lambda subject: erasure_of(ask, subject))

    def shown(text: str) -> str:
        # A report contains its JSON form as a text. In that text, a name must not end the string that contains it.
        is_json = text.startswith(("{", "["))
        names = (lambda each: json.dumps(name(each, erasure(each.subject)))[1:-1]) if is_json else None
        return with_references(text, names or (lambda each: name(each, erasure(each.subject))))

    changed: dict[str, Any] = map_texts(answer, shown)
    return changed


def name_of(subject: str, erasure: Erasure | None) -> str:
    """Return the text that replaces a sealed text of a subject."""
    return f"[sealed for {subject}]" if erasure is None else f"[{erasure}]"


class Sealer:
    """Seals texts and blobs for one subject, as one author."""

    def __init__(self, author: Author, keys: KeyService, ask: Ask, subject: str, folder: Path) -> None:
        """Write large ciphertext to a temporary file in ``folder``, because the upload begins with its hash.

        The file has no name, so nothing of it remains after a crash, and it never has the clear text. Raises Refused:
        ``SUBJECT_ERASED``, ``INVALID_FIELD`` for a name that no subject can have.
        """
        self._author = author
        self._folder = folder
        self._keys = keys
        self._subject = check_subject(subject)
        if erasure_of(ask, subject) is not None:
            raise sealed_too_late(subject)

    @property
    def subject(self) -> str:
        """The subject for which it seals."""
        return self._subject

    def blob(self, source: ByteSource, progress: Progress = lambda _done, _total: None) -> str:
        """Store the rest of a file as a sealed blob; return its ref.

        Raises: as ``KeyService.wrap`` and ``Author.put_blob``. Unavailable: ``STORE_UNAVAILABLE``.
        """
        with as_unavailable(self._folder), TemporaryFile(dir=self._folder) as sealed:
            sealed.writelines(seal(source, self._subject, self._keys))
            return self._author.put_blob(sealed, progress)

    def texts(self, texts: list[str]) -> list[str]:
        """Return a sealed reference for each text; a text of nothing but references stays. Raises: as ``blob``."""
        clear = list(dict.fromkeys(text for text in texts if _WORDS.search(with_references(text, lambda _: ""))))
        if not clear:
            return texts
        content = encode_texts(clear)
        if len(clear) > texts_max or len(content) > texts_max_bytes:
            raise Refused("TOO_LARGE", f"at most {texts_max} texts and {texts_max_bytes} bytes are sealed together")
        ref = self._author.put_blob(b"".join(seal(io.BytesIO(content), self._subject, self._keys)))
        sealed = {text: str(SealedReference(self._subject, ref, at)) for at, text in enumerate(clear)}
        return [sealed.get(text, text) for text in texts]

    def event(self, data: D) -> D:
        """Return an event with all of its sealable texts sealed, in one blob. Raises: as ``blob``."""
        paths = SEALABLE_FIELDS[type(data)]
        clear = [text for path in paths for text in _texts(data, path)]
        sealed = iter(self.texts(clear))
        for path in paths:
            data = _with_texts(data, path, sealed)
        return data


def _texts(data: msgspec.Struct, path: tuple[str, ...]) -> list[str]:
    value = getattr(data, path[0])
    if len(path) > 1:
        return _texts(value, path[1:])
    return [text for text in (value if isinstance(value, list) else [value]) if text]


def _with_texts(data: S, path: tuple[str, ...], texts: Iterator[str]) -> S:
    value = getattr(data, path[0])
    if len(path) > 1:
        return replace(data, **{path[0]: _with_texts(value, path[1:], texts)})
    if isinstance(value, list):
        return replace(data, **{path[0]: [next(texts) if text else text for text in value]})
    return replace(data, **{path[0]: next(texts)}) if value else data


class Opener:
    """Opens sealed content with the keys of this user."""

    def __init__(self, client: Client, open_service: Callable[[], KeyService], ask: Ask) -> None:
        """``open_service`` opens the key service when it is first needed: see ``open_keys``."""
        self._client = client
        self._open_service = open_service
        self._ask = ask
        self._contents: dict[str, tuple[str, bytes]] = {}
        self._erased: dict[str, Erasure | None] = {}

    def text(self, reference: SealedReference) -> str:
        """Return a sealed text.

        Raises Refused: ``SUBJECT_ERASED``, ``SUBJECT_KEY_MISSING``, ``SUBJECT_KEY_WRONG``, ``NOT_FOUND``. Corrupted:
        ``VERIFICATION_FAILED`` for damaged content, or content of another subject.
        """
        self._check_not_erased(reference.subject)
        if reference.ref not in self._contents:
            source = _BlobSource(self._client.blob_chunks(reference.ref), 2 * texts_max_bytes)
            header = read_header(source)
            self._contents[reference.ref] = header.subject, b"".join(unseal(source, self._open_service(), header))
        subject, content = self._contents[reference.ref]
        if subject != reference.subject:
            message = f"the sealed blob {reference.ref} is of the subject {subject}: its reference is wrong"
            raise Corrupted("VERIFICATION_FAILED", message, ref=reference.ref)
        return text_at(content, reference)

    def content(self, ref: str) -> Iterator[bytes]:
        """Yield the content of a sealed blob, piece by piece. Each piece is authentic; the end proves completeness.

        Raises: as ``text``, and ``INVALID_FORMAT`` if the blob is not sealed.
        """
        source = _BlobSource(self._client.blob_chunks(ref), blob_size_max_bytes)
        header = read_header(source)
        self._check_not_erased(header.subject)
        yield from unseal(source, self._open_service(), header)

    def erasure(self, subject: str) -> Erasure | None:
        """Return when, by whom and why a subject was erased; None if it was not."""
        if subject not in self._erased:
            self._erased[subject] = erasure_of(self._ask, subject)
        return self._erased[subject]

    def _check_not_erased(self, subject: str) -> None:
        if (erasure := self.erasure(subject)) is not None:
            raise erased(erasure)


class _BlobSource:
    """The chunks of a blob, read as a file."""

    def __init__(self, chunks: Iterator[bytes], size_max_bytes: int) -> None:
        self._chunks = chunks
        self._buffer = b""
        self._left = size_max_bytes

    def read(self, size: int, /) -> bytes:
        """Return the next bytes.

        Raises Refused: ``TOO_LARGE``; as ``Client.blob_chunks``, which checks the hash at its end.
        """
        parts, wanted = [self._buffer], size - len(self._buffer)
        while wanted > 0 and (chunk := next(self._chunks, None)) is not None:
            parts.append(chunk)
            wanted -= len(chunk)
            self._left -= len(chunk)
            if self._left < 0:
                raise Refused("TOO_LARGE", "this sealed blob is too large for texts: its reference is wrong")
        content = b"".join(parts)
        self._buffer = content[size:]
        return content[:size]


def erased(erasure: Erasure) -> Refused:
    """Return the refusal to open the content of an erased subject."""
    message = f"{erasure.subject} was {erasure}: nobody can read this any more"
    return Refused("SUBJECT_ERASED", message, subject=erasure.subject, at_ms=erasure.at_ms, by=erasure.by)
