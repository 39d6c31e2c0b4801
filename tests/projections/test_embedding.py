"""The default embedder: its vectors are equal on every machine, comparable only with its own, and small when packed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused
from deedbook.projections.briefs.embedding import (
    HASH_V1,
    Embedder,
    Embedding,
    cosine_similarity,
    embed_text,
    is_embedding_of,
    pack,
    unpack,
)

BRIEF = (
    "Observed JWT secret in env vars. Env vars are logged. Logs unencrypted for 30d. "
    "Therefore secret likely compromised."
)
CHINESE = "观察到密钥存在环境变量里。环境变量会写入日志。日志保留三十天而且没有加密。"
TEXTS = [BRIEF, CHINESE, "mixed 密钥 and API_KEY_2", "ＦＵＬＬ width", "", "... !!! 🙂", "a the of"]
PACKED_ERROR_MAX = 0.01

_PROGRAM = """
import json, sys
from deedbook.projections.briefs.embedding import embed_text
print(json.dumps([list(embed_text(text)) for text in json.loads(sys.argv[1])]))
"""


def test_vectors_are_equal_in_every_process() -> None:
    here = [list(embed_text(text)) for text in TEXTS]
    for seed in ("0", "4242"):
        found = subprocess.run(
            [sys.executable, "-c", _PROGRAM, json.dumps(TEXTS)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        )
        assert json.loads(found.stdout) == here


def test_places_of_version_1_are_frozen() -> None:
    vector = embed_text("JWT 密钥")
    places = {place: round(value, 6) for place, value in enumerate(vector) if value}
    assert places == FROZEN


@given(st.text(max_size=300))
def test_vector_has_length_one_or_is_that_of_no_words(text: str) -> None:
    vector = embed_text(text)
    assert len(vector) == HASH_V1.dim == 384
    length = math.fsum(value * value for value in vector)
    assert length == 0 or math.isclose(length, 1.0)


@given(st.text(max_size=200), st.text(max_size=200))
def test_similarity_is_symmetric_and_within_its_bounds(one: str, other: str) -> None:
    a, b = embed_text(one), embed_text(other)
    assert -1.0 <= cosine_similarity(a, b) == cosine_similarity(b, a) <= 1.0


def test_near_texts_are_nearer_than_far_ones() -> None:
    brief = embed_text(BRIEF)
    near = cosine_similarity(brief, embed_text("Rotate the JWT secret that was logged"))
    far = cosine_similarity(brief, embed_text("Change the colour of the button"))
    assert far < 0.1 < HASH_V1.threshold < near
    assert cosine_similarity(brief, brief) == pytest.approx(1.0)
    chinese = embed_text(CHINESE)
    assert cosine_similarity(chinese, embed_text("检查环境变量里的密钥是否写入日志")) > HASH_V1.threshold
    assert cosine_similarity(chinese, embed_text("修复前端按钮颜色")) < 0.1
    assert cosine_similarity(brief, embed_text("")) == 0.0


@pytest.mark.parametrize(
    "other",
    [
        Embedder("hash-v1", "2", 384, 0.4),
        Embedder("hash-v2", "1", 384, 0.4),
        Embedder("hash-v1", "1", 383, 0.4),
    ],
)
def test_vectors_of_different_embedders_are_never_compared(other: Embedder) -> None:
    vector = embed_text(BRIEF)
    with pytest.raises(Refused) as refused:
        cosine_similarity(vector, Embedding(list(vector)[: other.dim], other))
    assert refused.value.code == "EMBEDDER_MISMATCH"
    assert refused.value.details["embedders"] == [str(HASH_V1), str(other)]


def test_plain_list_is_compared_with_nothing() -> None:
    with pytest.raises(Refused) as refused:
        cosine_similarity(embed_text(BRIEF), list(embed_text(BRIEF)))  # type: ignore[arg-type]  # that is the point
    assert refused.value.code == "EMBEDDER_MISMATCH"


@given(st.text(max_size=300), st.text(max_size=300))
def test_packing_hardly_moves_a_similarity(one: str, other: str) -> None:
    a, b = embed_text(one), embed_text(other)
    moved = cosine_similarity(unpack(pack(a)), unpack(pack(b))) - cosine_similarity(a, b)
    assert abs(moved) <= PACKED_ERROR_MAX


@given(st.text(max_size=300))
def test_packed_vector_packs_to_itself(text: str) -> None:
    packed = pack(embed_text(text))
    assert len(packed.values) == 512
    assert pack(unpack(packed)) == packed
    assert is_embedding_of(packed, text)


def test_vector_of_another_text_is_told_apart_as_far_as_it_is_ours() -> None:
    packed = pack(embed_text(BRIEF))
    assert not is_embedding_of(packed, CHINESE)
    foreign = pack(Embedding(embed_text(BRIEF), Embedder("minilm", "2", 384, 0.8)))
    assert is_embedding_of(foreign, CHINESE)


@pytest.mark.parametrize("values", ["AAAA", "A", "====", "AA=A"])
def test_vector_that_does_not_hold_its_places_is_refused(values: str) -> None:
    packed = pack(embed_text(BRIEF))
    broken = type(packed)(**{name: getattr(packed, name) for name in packed.__struct_fields__} | {"values": values})
    with pytest.raises(Refused) as refused:
        unpack(broken)
    assert refused.value.code == "INVALID_FIELD"


FROZEN = {15: 0.283264, 111: -0.283264, 112: 0.423579, 182: -0.706843, 314: -0.283264, 341: 0.283264}
