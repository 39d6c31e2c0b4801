"""The proof of one entry without a browser: its path, the links that lead to it, and the receipt as a file."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from deedbook.consumers.interfaces.dashboard.pages.proof import ladder
from deedbook.consumers.sdk.receipts import take
from deedbook.ledger.bundle.program import verify_program
from deedbook.ledger.format.merkle import inclusion_path, leaf_hash, root_of

if TYPE_CHECKING:
    from pathlib import Path

    from looking import Viewer

LEAVES = [leaf_hash(b"%d" % index) for index in range(40)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 33, 40])
def test_each_step_joins_neighbouring_ranges_and_the_last_gives_the_root(size: int) -> None:
    leaves = LEAVES[:size]
    for index in range(size):
        path = ladder(leaves[index], index, size, inclusion_path(leaves, index))
        assert path["root"] == root_of(leaves).hex()
        for step in path["steps"]:
            for side, range_ in (("node", step["of_node"]), ("sibling", step["of_sibling"])):
                assert step[side] == root_of(leaves[range_[0] : range_[1] + 1]).hex()
            left, right = ("of_sibling", "of_node") if step["is_left"] else ("of_node", "of_sibling")
            assert step[left][1] + 1 == step[right][0]


def test_the_download_is_the_receipt_and_a_stranger_can_check_it(viewer: Viewer, tmp_path: Path) -> None:
    viewer.ledger.hand_over("h")
    page = viewer.page("/proof/4")
    (path,) = set(re.findall(r'href="(/receipts/[^"]+)"', page))
    commands = dict(re.findall(r"<pre>(deed receipt verify|deedbook-verify) (.*)</pre>", page))
    answer = viewer.get(path)
    assert answer.headers["content-disposition"] == 'attachment; filename="4.tlog-proof"'
    assert answer.content == take(viewer.dashboard.ledger.client, 4).to_text().encode()
    (tmp_path / "4.tlog-proof").write_bytes(answer.content)
    (tmp_path / "verify.py").write_bytes(verify_program())
    programs = {"deed receipt verify": ("-m", "deedbook", "receipt", "verify"), "deedbook-verify": ("-I", "verify.py")}
    assert commands.keys() == programs.keys()
    for name, program in programs.items():
        command = [sys.executable, *program, *commands[name].split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "VALID" in done.stdout
        changed = answer.text.replace("index 4\n", "index 5\n")
        (tmp_path / "changed").write_text(changed)
        command = [sys.executable, *program, "changed", *commands[name].split()[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 6, done.stdout + done.stderr


def test_the_page_of_an_entry_that_is_not_there_says_so(viewer: Viewer) -> None:
    for path in ("/proof/999", "/receipts/999.tlog-proof"):
        assert viewer.get(path).status_code == 404
    assert viewer.get("/receipts/999.tlog-proof").headers["content-type"].startswith("text/html")


def test_every_claim_leads_to_its_proof(viewer: Viewer) -> None:
    data = viewer.ledger.hand_over("h")
    viewer.ledger.approve("h", data)
    last = viewer.ledger.head()[0] - 1
    assert f'href="/proof/{last}"' in viewer.page("/h/h")
    assert f'href="/proof/{last}"' in viewer.page(f"/e/{last}")
    assert f'href="/proof/{last}?as_of={last}"' in viewer.page(f"/e/{last}", as_of=str(last))


def test_the_proof_of_a_text_of_others_stays_text(viewer: Viewer) -> None:
    viewer.ledger.hand_over("h", title='</pre><script>alert("1")</script>\u202e')
    page = viewer.page(f"/proof/{viewer.ledger.head()[0] - 1}")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "\\u202e" in page


def test_the_proof_of_an_erased_entry_says_that_its_rest_is_not_signed(viewer: Viewer) -> None:
    viewer.ledger.hand_over("h", title="correct-horse-battery-staple")
    index = viewer.ledger.head()[0] - 1
    assert "The signed text, as the entry has it" in viewer.page(f"/proof/{index}")
    viewer.ledger.redact(index)
    page = viewer.page(f"/proof/{index}")
    assert "What is left of the erased text, as the entry has it: the author did not sign this" in page
    assert "are those of the remnant of the erased bytes" in page
    assert "[redacted]" in page
    assert "correct-horse" not in page
