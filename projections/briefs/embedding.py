"""A fingerprint of a text, for cheap comparisons without fetching a graph.

The default embedder ``hash-v1`` needs no model: words, their character 3- and 4-grams, and pairs of Chinese, Japanese
and Korean characters are hashed with BLAKE2b into 384 signed dimensions; the vector has length 1. It knows spellings,
not meanings. Views use it alone, so that they are the same everywhere: it uses only sums, products and square roots,
which IEEE 754 rounds exactly, in the order of the text. Any change here needs another version.

The extra ``semantic`` adds ``wordllama`` for briefs and searches: 256 dimensions, Chinese too, with its weights in the
wheel, so nothing is downloaded. It stays an extra for four reasons. It adds 134 MB (numpy alone 57), while the
environment of the demo has 70 MB without it and may have 150. The first query takes .6 s of processor time and 120 MB
of memory more. The package has the MIT licence, but its weights are trained from the token tables of Llama 2 70B and
Phi 3, whose licences a distributor would have to check. It has one maintainer. Rejected: model2vec (better maintained)
and fastembed contain no weights, sentence-transformers needs PyTorch.

A published vector is packed: one signed byte a dimension and one scale for all, 512 characters of base64. Unpacked, a
value is off by at most half the scale (itself at most 1/127); of 60,000 measured cosines none moved by .003.

**The threshold** of each embedder is the lowest multiple of .05 that at most one in a hundred unrelated pairs exceeds:
a false alarm costs a fetch. Among briefs against the tasks of *other* cases (245 development cases, 59,780 pairs) .4 %
pass by ``hash-v1``, .9 % by ``wordllama``; among briefs and the tasks of their own cases, 84 % and 91 % pass; ``gates``
finds the others by their text.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, Self

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.brief import PackedEmbedding
from deedbook.ledger.packages import install_command

_byte_max: Final = 127
_gram_sizes: Final = (3, 4)
_scale_digits: Final = 12
_same_text_min: Final = 0.99
_person: Final = b"deedbook-hash-v1"

_CJK: Final = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "a an the this that these those it its is are was were be been being am do does did has have had having of in"
        " on at to for from by with as and or so then than there here which who what when where will would can could"
        " shall should may might must also into over such since because if while not no how why we our i you your they"
        " their",
    )
)


@cache
def _token() -> re.Pattern[str]:
    return re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")


@cache
def _first_cjk() -> re.Pattern[str]:
    return re.compile(rf"[{_CJK}]")


class Embedder(NamedTuple):
    """The maker of vectors, and the similarity above which two texts have about the same meaning."""

    name: str
    version: str
    dim: int
    threshold: float

    def is_same(self, other: Embedder) -> bool:
        """Return whether vectors of both may be compared; the threshold is ignored."""
        return self[:3] == other[:3]

    def __str__(self) -> str:
        return f"{self.name} (version {self.version}, {self.dim} dimensions)"


HASH_V1: Final = Embedder("hash-v1", "1", 384, 0.30)


class Embedding(tuple[float, ...]):  # noqa: SLOT001 - a tuple's subclass can have no slots of its own
    """A vector as plain floats, and the ``embedder`` that made it."""

    embedder: Embedder

    def __new__(cls, values: Iterable[float], embedder: Embedder) -> Self:
        """Take the values of one vector."""
        vector = super().__new__(cls, values)
        vector.embedder = embedder
        return vector


@cache
def _semantic() -> tuple[Embedder, Callable[[list[str]], list[list[float]]]] | None:
    """Return the embedder of the extra ``semantic`` and its function; None if it is not installed."""
    try:
        wordllama = import_module("wordllama")
    except ImportError:
        return None
    from importlib.metadata import version  # noqa: PLC0415 - extra `semantic`

    # Without this folder it searches its tokenizer in the user's cache, and offers to download it.
    model = wordllama.WordLlama.load(cache_dir=Path(str(wordllama.__file__)).parent, disable_download=True)
    embedder = Embedder("wordllama", version("wordllama"), 256, 0.40)
    return embedder, lambda texts: model.embed(texts, norm=True).tolist()


def similarities(text: str, others: Sequence[str]) -> list[float]:
    """Return the cosine of a text with each of the others, by the best embedder here."""
    semantic = _semantic()
    if semantic is None:
        own = embed_text(text)
        return [cosine_similarity(own, embed_text(other)) for other in others]
    first, *rest = semantic[1]([text, *others])
    return [math.fsum(map(float.__mul__, first, vector)) for vector in rest]


def best_embedder() -> Embedder:
    """Return the embedder for briefs here: that of the extra ``semantic`` if installed, else ``hash-v1``."""
    return (_semantic() or (HASH_V1,))[0]


def embed_text(text: str, embedder: Embedder = HASH_V1) -> Embedding:
    """Return the vector of a text, of length 1 or all zeros. Raises Refused: ``EMBEDDER_MISMATCH``: it is not here."""
    if not embedder.is_same(HASH_V1):
        semantic = _semantic()
        if semantic is None or not embedder.is_same(semantic[0]):
            message = f"the embedder {embedder} is not installed here: run {install_command('semantic')}"
            raise Refused("EMBEDDER_MISMATCH", message, embedders=[str(embedder), str(best_embedder())])
        return Embedding(semantic[1]([text])[0] if text.strip() else [0.0] * embedder.dim, semantic[0])
    weights: dict[str, float] = {}
    for feature, weight in _features(text):
        weights[feature] = weights.get(feature, 0.0) + weight
    values = [0.0] * HASH_V1.dim
    for feature, weight in weights.items():
        position, sign = _component_of(feature)
        values[position] += sign * math.sqrt(weight)  # a feature that occurs four times weighs twice as much
    length = math.sqrt(math.fsum(position * position for position in values))
    return Embedding((position / length for position in values) if length else values, HASH_V1)


def cosine_similarity(vector_a: Embedding, vector_b: Embedding) -> float:
    """Return the cosine of two vectors, from -1 to 1; 0.0 if one of them is of a text without words.

    Raises Refused: ``EMBEDDER_MISMATCH`` if different embedders made them, or a plain list does not name its embedder.
    """
    for vector in (vector_a, vector_b):
        if not isinstance(vector, Embedding):
            raise Refused("EMBEDDER_MISMATCH", "a vector that names no embedder cannot be compared")
    if not vector_a.embedder.is_same(vector_b.embedder) or len(vector_a) != len(vector_b):
        message = f"a vector by {vector_a.embedder} cannot be compared with one by {vector_b.embedder}"
        raise Refused("EMBEDDER_MISMATCH", message, embedders=[str(vector_a.embedder), str(vector_b.embedder)])
    lengths = math.sqrt(math.fsum(x * x for x in vector_a)) * math.sqrt(math.fsum(x * x for x in vector_b))
    return max(-1.0, min(1.0, math.fsum(map(float.__mul__, vector_a, vector_b)) / lengths)) if lengths else 0.0


def pack(vector: Embedding) -> PackedEmbedding:
    """Return a vector in its published form: one signed byte a dimension and a scale to multiply by."""
    scale = round(max(map(abs, vector), default=0.0) / _byte_max, _scale_digits)
    units = [round(value / scale) if scale else 0 for value in vector]
    values = bytes(max(-_byte_max, min(_byte_max, unit)) & 0xFF for unit in units)
    return PackedEmbedding(*vector.embedder, scale, base64.b64encode(values).decode())


def unpack(packed: PackedEmbedding) -> Embedding:
    """Return a published vector as floats. Raises Refused: ``INVALID_FIELD``: it has another number of dimensions."""
    try:
        values = base64.b64decode(packed.values, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused("INVALID_FIELD", f"the vector is not base64: {error}", field="values") from error
    if len(values) != packed.dim:
        raise Refused("INVALID_FIELD", f"the vector has {len(values)} dimensions, not {packed.dim}", field="values")
    embedder = Embedder(packed.embedder, packed.version, packed.dim, packed.threshold)
    return Embedding(((value - 256 if value > _byte_max else value) * packed.scale for value in values), embedder)


def is_embedding_of(packed: PackedEmbedding, text: str) -> bool:
    """Return whether a published vector belongs to a text, as far as an embedder here can check it."""
    named = Embedder(packed.embedder, packed.version, packed.dim, packed.threshold)
    if named.is_same(HASH_V1):
        return packed == pack(embed_text(text))
    with suppress(
        Refused
    ):  # the embedder is missing, or the vector is invalid; another processor may sum in another order
        return cosine_similarity(unpack(packed), embed_text(text, named)) > _same_text_min
    return not named.is_same(best_embedder())


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield the features of a text in order, with weights: the more grams a word has, the less each weighs."""
    for token in _token().findall(unicodedata.normalize("NFKC", text).lower()):
        if _first_cjk().match(token):
            for start in range(max(1, len(token) - 1)):
                yield f"c:{token[start : start + 2]}", 1.0
        elif token not in STOP_WORDS:
            yield f"w:{token}", 1.0
            padded = f"<{token}>"
            grams = [padded[start : start + size] for size in _gram_sizes for start in range(len(padded) - size + 1)]
            for gram in grams:
                yield f"g:{gram}", 1.0 / math.sqrt(len(grams))


@lru_cache(maxsize=65_536)
def _component_of(feature: str) -> tuple[int, float]:
    digest = blake2b(feature.encode("utf-8", "replace"), digest_size=8, person=_person).digest()
    number = int.from_bytes(digest, "big")
    return (number >> 1) % HASH_V1.dim, 1.0 if number & 1 else -1.0
