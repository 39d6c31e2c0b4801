"""Sealed texts in the answers that a verb shows. --unseal opens them; without it, people see for whom each is sealed.

Without --unseal nothing is opened, even if the key is here: printed text often becomes the context of a model or the
log of a harness, and the ledger cannot erase these. JSON without --unseal keeps the references, which programs read. An
opened text exists only in the memory of this process, and in its output.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from deedbook.consumers.interfaces.cli.output import warn
from deedbook.consumers.sdk.sealer import Opener, map_texts, name_of
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.seal.reference import SealedReference, with_references


class SealedTexts:
    """The sealed texts of one run of a verb."""

    def __init__(self, opener: Opener, *, unseals: bool, as_json: bool) -> None:
        self._opener = opener
        self._unseals, self._as_json = unseals, as_json
        self._names: dict[str, str] = {}
        self._failure: DeedbookError | None = None
        self._erasures: dict[str, str] = {}
        self._has_opened = False

    def shown(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer for display. JSON also names the subjects of its sealed texts.

        With --unseal, a warning says why nothing was opened if all sealed texts are erased. Raises DeedbookError: none
        of the sealed texts can be opened, for another reason.
        """
        changed: dict[str, Any] = map_texts(answer, lambda text: with_references(text, self._text))
        if self._failure is not None and not self._has_opened:
            raise self._failure
        if self._erasures and not self._has_opened and not self._as_json:
            warn(self._erasures.values())
            self._erasures.clear()
        return changed | {"sealed": self._described()} if self._as_json else changed

    def _text(self, reference: SealedReference) -> str:
        name = self._name(reference.subject)
        if self._unseals:
            try:
                text = self._opener.text(reference)
            except Refused as refusal:
                if refusal.code == "SUBJECT_ERASED":  # the shown name says so; show the rest of the answer
                    self._erasures[reference.subject] = refusal.message
                else:
                    self._failure = self._failure or refusal
            except Corrupted as error:
                if error.code != "VERIFICATION_FAILED":
                    raise
                # Any agent can write a wrong reference. It must not hide the other texts of the answer.
                self._failure = self._failure or error
                name = f"[sealed for {reference.subject}, but damaged or wrongly named]"
            else:
                self._has_opened = True
                # Open only one level: texts full of references to texts full of references could fill any memory.
                return with_references(text, lambda inner: self._name(inner.subject))
        return str(reference) if self._as_json else name

    def _name(self, subject: str) -> str:
        if subject not in self._names:
            self._names[subject] = name_of(subject, self._opener.erasure(subject))
        return self._names[subject]

    def _described(self) -> list[dict[str, Any]]:
        erasures = {subject: self._opener.erasure(subject) for subject in sorted(self._names)}
        return [{"subject": name, "erased": erasure and asdict(erasure)} for name, erasure in erasures.items()]
