"""``index.html`` in a bundle: it shows the content of the entries, always as text, and an edit is INVALID."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

import pytest
from bundles import members, unpacked
from forge import ORIGINAL_REF, SESSION, Forge
from hostile_story import hostile
from judges import alone, ours
from msgspec.structs import replace

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.ledger.bundle import Bundle, export_bundle
from deedbook.ledger.bundle.standalone import page
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events.authority import KeyCompromised, Role, RoleGranted
from deedbook.ledger.events.handoff import HandoffApproved, HandoffClaimed, HandoffCreated, HandoffQuestionAsked
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.format.envelope import commitment_to, decode_entry, event_id, signed_bytes
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.handoff import compute_version

if TYPE_CHECKING:
    from pathlib import Path

# Every allowed tag and attribute of the page. None of them runs code, loads a resource or links.
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "div", "p", "pre", "code", "em"}
TAGS |= {"strong", "span", "bdi", "br", "table", "tr", "th", "td"}
ATTRIBUTES: Final = {"lang", "charset", "http-equiv", "content", "name", "class"}


class Markup(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags, self.attributes, self.texts = set[str](), set[str](), list[str]()
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, as one line."""
        return re.sub(r"\s+", " ", " ".join(self.texts))


def page_of(path: Path) -> bytes:
    """Return the page in a bundle."""
    with Bundle(path) as bundle:
        return bundle.read("index.html")


@pytest.fixture
def forge() -> Forge:
    """A ledger in which alice handed over ``open``, and rita approved it."""
    return Forge()


def test_the_page_names_what_happened_who_signed_and_the_state(forge: Forge, tmp_path: Path) -> None:
    forge.emit("alice", "handoff/open", HandoffQuestionAsked(to="rita", question="what is it for?"))
    path = forge.export(tmp_path / "all.tar")
    shown = Markup(page_of(path)).text
    with Bundle(path) as bundle:
        manifest = bundle.manifest
    assert "given to bob reviewer" in shown  # rita got only a question
    assert "This page proves nothing." in shown
    assert f"python3 verify.py --root {fingerprint(forge.keys['root'].public)}" in shown
    assert f"a log of {manifest.size} entries with the tree head {manifest.root}" in shown
    assert "handoff/ open" in shown
    assert re.search(r"approved by (?!nobody)\w+ , entry \d+", shown)
    assert "result accepted by nobody" in shown
    assert forge.keys["alice"].public.hex() in shown
    left_out = (
        f"entries left out none up to entry {manifest.size - 1}. Newer entries of the ledger may be left out, too"
    )
    assert left_out in shown


def test_the_page_of_one_stream_says_what_is_left_out(forge: Forge, tmp_path: Path) -> None:
    path = forge.export(tmp_path / "part.tar", "handoff/open")
    with Bundle(path) as bundle:
        size, count = bundle.manifest.size, len(bundle.manifest.indexes)
    assert f"{size - count} of {size} entries" in Markup(page_of(path)).text
    assert [alone(path).word, ours(path).word] == ["VALID", "VALID"]


def test_an_approval_by_a_stolen_key_is_marked(forge: Forge, tmp_path: Path) -> None:
    before = Markup(page_of(forge.export(tmp_path / "before.tar"))).text
    [approver] = re.findall(r"approved by (?!nobody)(\w+) , entry", before)
    stolen = forge.keys[approver].public.hex()
    forge.emit("root", f"agent/{approver}", KeyCompromised(key=stolen, since=0, reason="the laptop was lost"))
    path = forge.export(tmp_path / "after.tar")
    shown = Markup(page_of(path)).text
    index = len(forge.entries) - 1
    assert re.search(
        rf"approved by {approver} , entry \d+, [^a-z]*UTC, signed by a key that entry {index} reports", shown
    )
    assert f"reported stolen by entry {index}" in shown
    assert "reason: the laptop was lost" in shown
    assert "reports stolen" not in before
    assert re.search(
        rf"state approved : [^,]*, but this rests on a key that entry {index} reports stolen created by", shown
    )
    for judgement in (alone(path), ours(path)):
        assert judgement.word == "SUSPECT_KEY"
        named = rf"SUSPECT_KEY at entry \d+: \d+ entr\w+ signed with stolen keys of {approver}:"
        assert re.search(named, judgement.text)
    named = rf"^entry \d+: rests on a stolen key: handoff.approved by {approver} on handoff/"
    assert re.search(named, alone(path).text, re.MULTILINE)


def test_an_approval_by_a_role_of_a_thief_is_marked(forge: Forge, tmp_path: Path) -> None:
    def grant(author: str, role: Role) -> None:
        forge.emit(author, "agent/alice", RoleGranted(agent="alice", role=role))

    since = len(forge.entries)
    grant("ada", "admin")
    forge.submit(forge.sign("alice", forge.registered("rob", ["reviewer"])))
    forge.emit("alice", "handoff/late", HandoffCreated(title="late", to="bob", reviewer="rob"))
    version = compute_version("alice", HandoffCreated(title="late", to="bob", reviewer="rob"))
    forge.emit("rob", "handoff/late", HandoffApproved(version=version))
    index = len(forge.entries) - 1
    before = Markup(page_of(forge.export(tmp_path / "before.tar"))).text
    assert "reports stolen" not in before
    stolen = forge.keys["ada"].public.hex()
    forge.emit("root", "agent/ada", KeyCompromised(key=stolen, since=since, reason="lost"))
    path, report = forge.export(tmp_path / "after.tar"), len(forge.entries) - 1
    shown = Markup(page_of(path)).text
    mark = f"by a role that rests on a key that entry {report} reports stolen"
    assert re.search(rf"approved by rob , entry {index}, [^a-z]*UTC, {mark}", shown)
    assert f"entry {index}: rests on a stolen key: handoff.approved by rob on handoff/late" in alone(path).text
    assert [alone(path).word, ours(path).word] == ["SUSPECT_KEY", "SUSPECT_KEY"]


def test_an_imported_status_is_called_a_claim(forge: Forge, tmp_path: Path) -> None:
    before = Markup(page_of(forge.export(tmp_path / "before.tar"))).text
    content = {"title": "the work", "to": "bob", "reviewer": "rita", "criteria": ["it is checked"]}
    claims = {"status": "completed (approved by rita)", "criteria": [0]}
    record = {"original": ORIGINAL_REF, "source": "x", "format": "x", "claimed_author": "eve", "claims": claims}
    data = record | {"mapped_kind": "handoff.created", "mapped": content}
    forge.submit(forge.sign("alice", Draft(stream="handoff/filed", kind="record.imported", data=data)))
    path = forge.export(tmp_path / "after.tar")
    shown = Markup(page_of(path)).text
    assert [alone(path).word, ours(path).word] == ["VALID", "VALID"]
    said = "its imported file says completed (approved by rita) . This is only a claim: nobody has confirmed it in this"
    assert f"{said} ledger imported by alice , entry" in shown
    assert "imported file" not in before


def test_verdict_names_the_newest_entry_unless_a_checkpoint_does(forge: Forge, tmp_path: Path) -> None:
    path, index = forge.export(tmp_path / "log.tar"), len(forge.entries) - 1
    said = f"newest entry here: {index}, "
    assert said + page.when(decode_entry(forge.entries[-1]).accepted_ms) in alone(path).text
    assert "newer ones may be left out, which only --checkpoint shows" in alone(path).text
    assert said not in alone(path, "--checkpoint", forge.checkpoint()).text


def test_verdict_names_the_newest_entry_also_if_it_was_not_permitted(forge: Forge, tmp_path: Path) -> None:
    forge.hand_over("unseen")
    forge.emit("bob", "handoff/unseen", HandoffClaimed())
    path, index = forge.export(tmp_path / "log.tar"), len(forge.entries) - 1
    said = alone(path).text
    assert f"entry {index}: NOT_APPROVED: handoff.claimed by bob on handoff/unseen: " in said
    assert "; all signatures are right, but rules are broken; index.html not checked (" in said.splitlines()[-1]
    assert f"newest entry here: {index}, " in said
    assert "approved by nobody: handoff/unseen" in said


def test_lines_before_the_verdict_name_handoffs_that_nobody_approved(forge: Forge, tmp_path: Path) -> None:
    before = forge.export(tmp_path / "before.tar")
    forge.hand_over("unseen")
    after = forge.export(tmp_path / "after.tar")
    assert [alone(path).word for path in (before, after)] == ["VALID", "VALID"]
    assert "approved by nobody" not in alone(before).text
    assert "approved by nobody: handoff/unseen\n" in alone(after).text
    assert verify_bundle(before).notes == []
    assert [note.message for note in verify_bundle(after).notes] == ["approved by nobody: handoff/unseen"]
    for number in range(6):
        forge.hand_over(f"h{number}")
    named = "handoff/h5, handoff/h4, handoff/h3, handoff/h2, handoff/h1 and 2 more\n"
    assert f"approved by nobody: {named}" in alone(forge.export(tmp_path / "many.tar")).text


def test_evidence_that_a_bundle_lacks_is_named(forge: Forge, tmp_path: Path) -> None:
    """The exporter may have left a file out together with its line in the manifest."""
    forge.emit("alice", SESSION, FindingLogged(finding="an event is evidence, too", evidence=[forge.put_blob(b"log")]))
    event = event_id(decode_entry(forge.entries[-1]).commitment)
    ref, at = forge.put_blob(b"312 passed"), len(forge.entries)
    forge.emit("alice", SESSION, FindingLogged(finding="it works", evidence=[f"see {ref}", event]))
    whole = alone(forge.export(tmp_path / "whole.tar"))
    assert (whole.word, "this bundle has no such" in whole.text) == ("VALID", False)
    del forge.blobs[ref]
    lacking = alone(forge.export(tmp_path / "lacking.tar"))
    line = f"entry {at}: names {ref}, and this bundle has no such file or event: finding.logged by alice on {SESSION}\n"
    assert line in lacking.text
    assert lacking.text.count("this bundle has no such") == 1


def test_both_verifiers_name_the_entry_and_the_person_of_work_without_approval(forge: Forge, tmp_path: Path) -> None:
    forge.hand_over("unseen")
    forge.emit("bob", "handoff/unseen", HandoffClaimed())
    index = len(forge.entries) - 1
    for stream in (None, "handoff/unseen"):
        path = forge.export(tmp_path / "unseen.tar", stream)
        for judgement in (alone(path), ours(path)):
            assert judgement.codes == {index: {"NOT_APPROVED"}}
            assert "handoff.claimed by bob on handoff/unseen: " in judgement.text
            assert f"INVALID at entry {index}: " in judgement.text


@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_an_edited_page_is_invalid(request: pytest.FixtureRequest, bundle: str, tmp_path: Path) -> None:
    path: Path = request.getfixturevalue(bundle)
    content = bytearray(path.read_bytes())
    offset, size = members(path)["index.html"]
    at = content.index(b"Nobody signed it", offset, offset + size)
    content[at : at + 6] = b"Root  "
    (tmp_path / "edited.tar").write_bytes(content)
    folder = unpacked(tmp_path / "edited.tar", tmp_path / "unpacked")
    for edited in (tmp_path / "edited.tar", folder):
        for judgement in (alone(edited), ours(edited)):
            assert judgement.word == "INVALID"
            assert judgement.codes == {None: {"CORRUPTED"}}
            assert "index.html" in judgement.text


def test_a_page_of_missing_entries_is_not_called_checked(partial: Path, tmp_path: Path) -> None:
    folder = unpacked(partial, tmp_path / "unpacked")
    max(folder.glob("entries/*.entry")).unlink()
    assert "index.html not checked" in alone(folder).text
    assert [alone(folder).word, ours(folder).word] == ["PARTIAL", "PARTIAL"]


def test_texts_of_an_attacker_are_text(tmp_path: Path) -> None:
    settings, path = hostile(tmp_path / ".deedbook"), tmp_path / "hostile.tar"
    with LocalClient(settings) as client:
        export_bundle(client, path)
    content = page_of(path)
    markup = Markup(content)
    assert markup.tags <= TAGS
    assert markup.attributes <= ATTRIBUTES
    assert "<script>window.hit=1</script>" in markup.text
    assert all(character.isprintable() or character == "\n" for character in content.decode())
    assert b"default-src 'none'" in content
    assert [alone(path).word, ours(path).word] == ["PARTIAL", "SUSPECT_KEY"]  # the bundle has searches and a stolen key


def test_long_texts_and_many_subjects_are_cut_and_counted(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        forge.approve(name, forge.hand_over(name, criteria=["W" * 400]))
    monkeypatch.setattr(page, "SUBJECTS_MAX", 2)
    shown = Markup(page_of(forge.export(tmp_path / "cut.tar"))).text
    assert "Handoffs (4) The newest 2 of 4 are shown." in shown
    assert "handoff/ two" in shown
    assert "handoff/ three" in shown
    assert "handoff/ open" not in shown
    assert "W" * 601 not in shown


def test_a_missing_blob_is_named(forge: Forge, tmp_path: Path) -> None:
    ref = "blake3:" + "ab" * 32
    forge.hand_over("filed", criteria=["it is checked"], template=ref)
    path = forge.export(tmp_path / "lacking.tar")
    row = "files that an entry needs, missing when this bundle was made"
    assert f"{row} 1 {ref}" in Markup(page_of(path)).text
    assert f"{row} none" in Markup(page_of(Forge().export(tmp_path / "whole.tar"))).text
    assert [alone(path).word, ours(path).word] == ["PARTIAL", "PARTIAL"]
    assert "index.html not checked" not in alone(path).text


def test_a_missing_blob_is_named_in_any_spelling_of_json(forge: Forge, tmp_path: Path) -> None:
    ref = "blake3:" + "ab" * 32
    data = HandoffCreated(title="filed", to="bob", reviewer="rita", template=ref)
    forge.edited("alice", "handoff/filed", data, ref, ref.replace("blake3:", "\\u0062lake3:"))
    path = forge.export(tmp_path / "lacking.tar")
    assert f"missing when this bundle was made 1 {ref}" in Markup(page_of(path)).text
    for judgement in (alone(path), ours(path)):
        assert judgement.word == "PARTIAL"
        assert ref.replace(":", "/") in judgement.text


def test_a_log_with_an_entry_that_no_gate_accepted_is_exported(forge: Forge, tmp_path: Path) -> None:
    """Its keeper can hand it over, and both verifiers name the entry."""
    forge.emit("alice", SESSION, FindingLogged(finding="x"))
    entry = decode_entry(forge.entries[-1])
    body = entry.body.replace(b'"kind":"finding.logged"', b'"kind":1.5')
    forge.entries[-1] = replace(
        entry, body=body, sig=forge.keys["alice"].sign(signed_bytes([commitment_to(body)]))
    ).encode()
    path = forge.export(tmp_path / "wrong.tar")
    assert [alone(path).word, ours(path).word] == ["INVALID", "INVALID"]
    assert alone(path).index == ours(path).index == len(forge.entries) - 1


def test_an_agent_with_a_role_of_a_wrong_type_is_left_out_of_the_page(forge: Forge, tmp_path: Path) -> None:
    draft = forge.registered("carl", ["agent"])
    forge.edited("root", draft.stream, draft.data, '"roles":["agent"]', '"roles":[1]')
    path = forge.export(tmp_path / "wrong.tar")
    assert b"carl" not in page_of(path)
    assert [alone(path).word, ours(path).word] == ["INVALID", "INVALID"]
