"""Every Ed25519 verifier that checks a ledger gives the same verdict: ours, that of verify.py, and the agent's in Node.

Wycheproof's vectors each have a verdict. RFC 8032 leaves a choice on points of small order, non-canonical encodings and
the cofactor, so libraries differ (Chalkias, Garillot, Nikolaenko 2020, the source of these twelve vectors). The
verdicts here follow proto/README.md, section 4.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from deedbook.ledger.bundle.standalone.proofs import is_signed
from deedbook.ledger.format.identity import verify

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS: Final = Path(__file__).parent / "vectors"
SPECCHECK: Final = {
    0: "the key and R are of small order",
    1: "the key is of small order",
    2: "R is of small order",
    3: "",  # accepted: key and R have a component of small order, but the equations with and without the cofactor hold
    4: "holds with the cofactor only",
    5: "holds with the cofactor only",
    6: "S is not reduced",
    7: "S is not reduced",
    8: "R is in another encoding",
    9: "R is in another encoding",
    10: "the key is in another encoding",
    11: "the key is in another encoding",
}
ACCEPTED_BY_OPENSSL: Final = {0, 1, 2, 3, 11}

Signed = tuple[str, str, str]


def wycheproof() -> list[tuple[Signed, bool]]:
    groups = json.loads((VECTORS / "wycheproof_ed25519.json").read_bytes())["testGroups"]
    return [
        ((group["publicKey"]["pk"], case["msg"], case["sig"]), case["result"] == "valid")
        for group in groups
        for case in group["tests"]
    ]


def speccheck() -> list[tuple[Signed, bool]]:
    cases = json.loads((VECTORS / "speccheck_ed25519.json").read_bytes())
    signed = [(case["pub_key"], case["message"], case["signature"]) for case in cases]
    return [(one, SPECCHECK[number] == "") for number, one in enumerate(signed)]


@pytest.mark.parametrize("verifier", [verify, is_signed], ids=["ledger", "verify.py"])
@pytest.mark.parametrize("vectors", [wycheproof, speccheck])
def test_python_verifiers_give_the_verdict_of_every_vector(
    verifier: Callable[[bytes, bytes, bytes], bool], vectors: Callable[[], list[tuple[Signed, bool]]]
) -> None:
    wanted = vectors()
    given = [verifier(*(bytes.fromhex(part) for part in signed)) for signed, _ in wanted]
    assert given == [verdict for _, verdict in wanted]
    assert len(given) in {12, 151}


def test_the_agent_in_node_gives_the_verdict_of_every_vector(ask: Callable[..., Any]) -> None:
    wanted = wycheproof() + speccheck()
    given = ask("verify", cases=[signed for signed, _ in wanted])
    assert given["verdicts"] == [verdict for _, verdict in wanted]


def test_openssl_alone_differs_on_the_points_that_the_specification_names_and_nowhere_else(
    ask: Callable[..., Any],
) -> None:
    assert ask("verify", cases=[signed for signed, _ in wycheproof()])["openssl"] == [
        verdict for _, verdict in wycheproof()
    ]
    by_openssl = ask("verify", cases=[signed for signed, _ in speccheck()])["openssl"]
    assert {number for number, accepted in enumerate(by_openssl) if accepted} == ACCEPTED_BY_OPENSSL
