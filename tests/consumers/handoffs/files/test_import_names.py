"""A second import gives imported handoffs the names that their files lack: signed, once, and without approving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.handoffs.agent_names import AgentNames, Naming, alias_key, read_agents
from deedbook.consumers.handoffs.files.imports import (
    ImportPlan,
    changed_records,
    existing_rows,
    planned_rows,
    read_records,
)
from deedbook.consumers.handoffs.files.missing_names import ImportNeeds, needs_of
from deedbook.consumers.handoffs.names_file import check_named, read_names
from deedbook.consumers.importers.records import import_records
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds

if TYPE_CHECKING:
    from syncing import SyncedFolder

AGENTS = AgentNames(
    ("alex", "bob", "iris", "rita"),
    roles={"alex": frozenset({"human"}), "rita": frozenset({"reviewer"}), "bob": frozenset({"agent"})},
)


# The names file


@pytest.mark.parametrize(
    ("text", "naming"),
    [
        ("", Naming()),
        ('to = "bob"\nreviewer = "rita"\n', Naming("bob", "rita")),
        ('to = ""', Naming()),
        ('[agents]\n"Git Hub" = "alex"\n"ann + bo" = "bob"\n', Naming(aliases={"github": "alex", "annbo": "bob"})),
        ('\ufeff[agents]\r\nghost = ""\r\n', Naming(aliases={"ghost": ""})),
    ],
)
def test_names_file_is_read(text: str, naming: Naming) -> None:
    assert read_names(text.encode(), "names.toml", AGENTS) == naming


@pytest.mark.parametrize(
    ("text", "code", "line", "message"),
    [
        ("[agents", "INVALID_FORMAT", 1, "this is not TOML"),
        ('to = "bob"\nto = "bob"', "INVALID_FORMAT", 2, "this is not TOML"),
        ("\n\nreviewr = 'rita'", "UNKNOWN_FIELD", 3, "unknown field 'reviewr': did you mean reviewer?"),
        ("agents = 'rita'", "INVALID_FIELD", 1, "begin it with [agents]"),
        ("[agents]\n# github\n  github = 3", "INVALID_FIELD", 3, "github must be the name of an agent in quotes"),
        ("to = ['bob']", "INVALID_FIELD", 1, "to must be the name of an agent in quotes"),
        ("[agents]\ngithub = 'bobb'", "AGENT_UNKNOWN", 2, "no agent here is named 'bobb': did you mean bob?"),
        ("to = 'bob'\nreviewer = 'zoe'", "AGENT_UNKNOWN", 2, "`deed agent add zoe` registers it"),
        (
            "reviewer = 'bob'",
            "NOT_AUTHORIZED",
            1,
            "bob has neither the role reviewer nor the role human; alex, rita can",
        ),
        (
            "[agents]\nGitHub = 'bob'\n'git-hub' = 'alex'",
            "INVALID_FIELD",
            3,
            "'git-hub' and 'GitHub' on line 2 are one",
        ),
        ("[agents]\n'+' = 'bob'", "INVALID_FIELD", 2, "'+' has no letter or digit"),
    ],
)
def test_names_file_is_refused_with_its_line(text: str, code: str, line: int, message: str) -> None:
    with pytest.raises(Refused) as refused:
        read_names(text.encode(), "names.toml", AGENTS)
    assert (refused.value.code, refused.value.details["line"], refused.value.details["file"]) == (
        code,
        line,
        "names.toml",
    )
    assert refused.value.message.startswith(f"names.toml:{line}: ")
    assert message in refused.value.message


def test_names_file_that_is_no_text_or_too_large_is_refused() -> None:
    for content, code in ((b"\xff", "INVALID_FORMAT"), (b"#" * 10**6, "TOO_LARGE")):
        with pytest.raises(Refused) as refused:
            read_names(content, "names.toml", AGENTS)
        assert refused.value.code == code


def test_name_of_an_option_is_checked() -> None:
    check_named(Naming("bob", "alex"), AGENTS)
    for naming, code in ((Naming("ghost"), "AGENT_UNKNOWN"), (Naming(reviewer="bob"), "NOT_AUTHORIZED")):
        with pytest.raises(Refused) as refused:
            check_named(naming, AGENTS)
        assert refused.value.code == code


def test_alias_counts_before_a_name_and_is_no_problem() -> None:
    agents = AGENTS._replace(naming=Naming(aliases={alias_key("git hub"): "alex", alias_key("bob"): ""}))
    assert [agents.named(text) for text in ("GitHub (bot)", "git-hub", "bob", "rita")] == ["alex", "alex", None, "rita"]
    assert agents.problem("Git Hub") == ""


# A second import


def file(status: str = "draft", **names: str) -> bytes:
    """Return a handoff file that names these parties."""
    meta = [f"- {key}: {value}" for key, value in {"Status": status, **names}.items()]
    return "\n".join(["# Handoff: fix it", "", "## Meta", *meta, "", "## Task", "Look.", ""]).encode()


class Import:
    """Imports of one folder by iris, who is no human."""

    def __init__(self, folder: SyncedFolder, files: dict[str, bytes]) -> None:
        self.folder = folder
        for name, content in files.items():
            (folder.path / f"{name}.md").write_bytes(content)
        for name, *roles in (("iris", "agent"), ("ruth", "reviewer")):
            folder.ledger.register(name, *roles)

    def run(self, naming: Naming = Naming(), name: str = "iris") -> tuple[ImportPlan, ImportNeeds, int]:  # noqa: B008 - a constant
        """Import the folder; return the plan, the remaining needs, and the number of new events."""
        agents = read_agents(self.folder.answer, None)._replace(naming=naming)
        agents = agents._replace(reviewer=naming.reviewer)
        author = self.folder.hand(name).author
        records = read_records(self.folder.path, author.put_blob, agents=agents).records
        plan = changed_records(records, self.folder.answer, agents, name)
        planned = planned_rows(plan, existing_rows(records, self.folder.answer), name)
        added = import_records(author, plan.records, unchanged=plan.unchanged).added
        needs = needs_of(existing_rows(records, self.folder.answer).values(), agents, name)
        assert needs_of(planned.values(), agents, name) == needs  # a dry run says the same
        return plan, needs, added

    def parties(self, id_: str) -> tuple[Any, ...]:
        """Return the parties of a handoff, and its status."""
        row = self.folder.answer("handoffs.show", {"id": id_})
        return row["from"], row["to"], row["reviewer"], row["status"], row["claimed_status"]


def test_second_import_adds_names_once_and_approves_nothing(folder: SyncedFolder) -> None:
    importing = Import(folder, {"h": file(From="kuro"), "over": file("done", From="kuro")})
    plan, needs, added = importing.run()
    assert (len(plan.records), plan.named, added) == (2, 0, 2)
    assert (needs.history, needs.no_reviewer, needs.no_receiver, needs.reviewers) == (1, 1, 1, {})
    assert importing.run()[2] == 0
    naming = Naming("bob", "ruth")
    plan, needs, added = importing.run(naming)
    assert (plan.named, added) == (1, 1)
    assert (needs.no_reviewer, needs.no_receiver, needs.reviewers) == (0, 0, {"ruth": 1})
    assert importing.parties("h") == ("kuro", "bob", "ruth", "pending", "draft")
    log = folder.answer("handoffs.show", {"id": "h"})["log"]
    assert log[-1]["text"] == "imported from h.md, which says draft: names to bob, reviewer ruth"
    assert importing.parties("over") == ("kuro", "", None, "pending", "done")  # handoffs that are over need no names
    assert importing.run(naming)[2] == importing.run()[2] == 0
    assert importing.parties("h")[:3] == ("kuro", "bob", "ruth")


def test_each_option_adds_its_own_name(folder: SyncedFolder) -> None:
    importing = Import(folder, {"h": file(From="kuro")})
    importing.run()
    importing.run(Naming(reviewer="rita"))
    assert importing.parties("h")[:3] == ("kuro", "", "rita")
    assert importing.run(Naming("rita"))[2] == 0  # nobody reviews their own work
    importing.run(Naming("bob"))
    assert importing.run(Naming(reviewer="ruth"))[2] == 0  # a reviewer from an earlier import stays
    assert importing.parties("h")[:3] == ("kuro", "bob", "rita")


def test_names_file_names_agents_and_takes_no_name_away(folder: SyncedFolder) -> None:
    importing = Import(folder, {"a": file(From="github", To="Old Bot"), "b": file(From="github", Reviewer="ruth")})
    needs = importing.run()[1]
    assert needs.unknown == {"old-bot": 1}
    naming = Naming(aliases={"github": "ruth", "oldbot": "bob"})
    plan, needs, _ = importing.run(naming)
    assert (plan.named, needs.unknown) == (1, {})
    assert importing.parties("a")[:3] == ("ruth", "bob", None)
    assert importing.parties("b")[:3] == ("github", "", "ruth")  # as its sender, ruth could not review it
    assert importing.run()[2] == importing.run(naming)[2] == 0
    assert importing.parties("a")[:3] == ("ruth", "bob", None)


def test_changed_file_keeps_names_that_it_does_not_have(folder: SyncedFolder) -> None:
    importing = Import(folder, {"h": file(From="kuro")})
    importing.run(Naming("bob", "ruth"))
    (folder.path / "h.md").write_bytes(file("review", From="kuro"))
    assert importing.run()[2] == 1
    assert importing.parties("h") == ("kuro", "bob", "ruth", "pending", "review")
    (folder.path / "h.md").write_bytes(file("review", From="kuro", To="alice", Reviewer="rita"))
    importing.run()
    assert importing.parties("h")[:3] == ("kuro", "alice", "rita")


def test_confirmed_handoff_and_those_of_another_importer_stay(folder: SyncedFolder) -> None:
    importing = Import(folder, {"mine": file(From="kuro", Reviewer="rita"), "theirs": file(From="kuro")})
    importing.run()
    version = folder.answer("handoffs.show", {"id": "mine"})["version"]
    folder.ledger.emit("rita", "handoff/mine", kinds.HandoffApproved(version=version))
    folder.ledger.register("paul")
    plan, needs, added = importing.run(Naming("bob", "ruth"), "paul")
    assert (plan.named, added, needs.others) == (0, 0, {"iris": 1})
    plan, needs, added = importing.run(Naming("bob", "ruth"))
    assert (plan.named, added, needs.others) == (1, 1, {})
    assert importing.parties("mine") == ("kuro", "", "rita", "approved", None)


def test_human_who_sent_the_work_may_confirm_it_and_others_need_a_reviewer(folder: SyncedFolder) -> None:
    rows = [
        {"status": "pending", "claimed_status": "draft", "importer": "iris", "reviewer": None} | parties
        for parties in (
            {"from": "alex", "to": "bob"},
            {"from": "rita", "to": "alex"},
            {"from": "bob", "to": ""},
        )
    ]
    needs = needs_of(rows, AGENTS, "iris")
    assert (needs.reviewers, needs.no_reviewer, needs.no_receiver) == ({"alex": 1}, 2, 1)
    assert (needs.reviewer, needs.reviewable) == ("alex", 1)
