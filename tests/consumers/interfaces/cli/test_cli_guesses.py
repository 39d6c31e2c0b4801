"""Users who know git and gh guess a command: the error names the command or option that does it here."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

import click
import pytest
from calling import with_passphrase

from deedbook.consumers.interfaces.cli import guesses
from deedbook.consumers.interfaces.cli.program import deed as program

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Deed

GUESSES: Final = [
    ('create "Fix it" kuro --as alex', "deed handoff create"),
    ("create --assignee kuro", "deed handoff create"),
    ("handoff create -t T -b B", "--title"),
    ("handoff create --title T -b B", "--body"),
    ("handoff create --title T --assignee kuro --as alex", "--to"),
    ("handoff create --title T --body-file body.md --as alex", "--body @FILE"),
    ('handoff create "Fix it" kuro --as alex', "--to kuro"),
    ('handoff complete h1 -m "all done"', "--summary"),
    ("session dead-end --session s1 x --why y", "deed session dead-end [ID]"),
    ('handoff complete h1 "all done"', "--summary"),
    ('handoff complete h1 --result "all done"', "--summary"),
    ("handoff reopen h1", "deed handoff request-changes"),
    ("reopen h1", "deed handoff request-changes"),
    ("close which-port", "deed settle"),
    ('handoff request-changes h1 "not ok"', "--reason"),
    ('handoff reject h1 --why "no"', "--reason"),
    ('handoff cancel h1 "no need"', "--reason"),
    ("next kuro", "next --as kuro"),
    ("next --for kuro", "--as"),
    ("handoff list --mine", "--to"),
    ("handoff list --assignee kuro", "--to"),
    ("handoff list open", "--status pending"),
    ("issue create", "deed handoff create"),
    ("commit -m x", "deed handoff complete"),
    ("-C /tmp next", "--home"),
    ("next -C /tmp", "--home"),
    ("agent grant-role kuro --role reviewer", "deed agent grant-role NAME ROLE"),
    ("agent create ana", "deed agent add"),
    ("agent add --name ana", "deed agent add NAME"),
    ('ask --to claude-code "is it ok" --as alex', "deed ask NAME TEXT"),
    ("ask claude-code is it ok --as alex", 'deed ask claude-code "is it ok"'),
    ("unread kuro", "unread --as kuro"),
    ("questions show which-port", "deed questions which-port"),
    ("questions --mine", "--to"),
    ("questions --status open", "--all"),
    ("whoami", "deed next"),
    ("whoami --as ana", "deed next"),
    ("clone nats://h:1", "deed join CODE"),
    ("config set server nats://h:1", "deed join --address URL"),
    ("invite second", "deed agent invite second"),
    ("agent create second", "deed agent add second"),
    ("report submit", "deed report generate ID"),
    ("sync", "deed spool send"),
    ("push", "deed spool send"),
    ("next --offline", "--spool"),
    ("watch --as ana", "without it: `deed log --follow`"),
    ("watch --kind handoff.completed --since 1d", "--from-start"),
    ("watch --kind handoff.completed --follow", "leave --follow out"),
    ("serve --host 0.0.0.0", "SSH tunnel"),
    ("serve --port 0", "leave --port out"),
    ("serve status", "deed doctor"),
    ("serve stop", "Ctrl-C"),
    ("key protect a", "deed key rotate --as NAME --lost"),
    ("key passwd a", "deed key rotate --as NAME --lost"),
    ("passphrase a", "deed key rotate --as NAME --lost"),
    ("key stolen a", "deed key compromised KEY|AGENT --since"),
    ("key rotate codex", "deed key rotate --as codex"),
    ("delete 7", "deed redact INDEX"),
    ("log 7", "deed show 7"),
    ('seal "a text"', "deed session finding TEXT --seal SUBJECT"),
    ("seal delete s", "deed erase SUBJECT"),
    ("publish x.deploy.finished", "deed emit KIND"),
    ("follow", "deed log --follow"),
    ("tail -f", "deed log --follow"),
    ("log -f", "deed log --follow"),
    ("get events -w", "deed log --follow"),
    ("events create", "deed kind declare"),
    ("kind create x.a.b", "deed kind declare"),
    ("kinds", "deed kind list"),
    ("event show 7", "deed show INDEX"),
    ("export --format json", "deed log --json"),
    ("export -o json", "deed log --json"),
    ("log --type x.a.b", "--kind"),
    ('record "x y"', "deed session finding"),
    ('session found "x y"', "deed session finding"),
    ('session note "x y"', "deed session finding"),
    ("session stop", "deed session end"),
    ("session finding the cache is slow --as claude-code", 'deed session finding "the cache is slow"'),
    ("search -i foo", "deed search TEXT"),
    ("log --after-date 7d", "deed log --since"),
    ("log -n 5", "--limit"),
    ("log --oneline", "--limit"),
    ("history", "deed log"),
    ("report find x", "deed report query"),
    ("report search x", "deed report query"),
    ("search x --path src/api.py", "deed decisions --path"),
    ("import old x", "deed import handoffs"),
    ("import markdown x", "deed import handoffs"),
    ("handoff create --blocked-by h1 --title t", "--depends-on"),
    ("blocked", "deed handoff list --status blocked"),
    ("handoff blocked", "deed handoff list --status blocked"),
    ("handoff list --blocked", "--status blocked"),
    ("handoff list blocked", "--status blocked"),
    ("handoff list --why", "deed handoff why"),
    ("tree", "deed handoff graph"),
    ("handoff deps", "deed handoff graph"),
    ("handoff tree", "deed handoff graph"),
    ("dep tree", "deed handoff graph"),
    ('handoff block h1 "waits for x" --as claude-code', "--reason"),
    ("session export", "deed session move"),
    ("session resume", "deed report resume"),
    ('decide "use tabs" src/api.py --as alex', "--path src/api.py"),
    ('decide "use tabs" --file src/api.py --as alex', "--path"),
    ('decide src/api.py "use tabs" --as alex', "deed decide 'use tabs' --path src/api.py"),
    ("decisions show use-tabs", "deed decisions use-tabs"),
    ("withdraw x --because y", "--reason"),
    ("withdraw x -m y", "--reason"),
    ("delete x", "deed withdraw"),
    ("pr", "deed handoff"),
    ("handoff render h1 -o x", "--out"),
    ("backup --to x", "deed backup FILE|DIR"),
    ("export --to x", "deed export"),
    ("restore --to x", "--home"),
    ("verify body.md", "--bundle body.md"),
    ("undo", "deed uninstall"),
    ("leave", "deed uninstall"),
    ("reset", "deed uninstall"),
    ("agent delete kuro", "deed agent remove"),
    ("rm 7", "the log is append-only, so nothing is removed from it, but `deed session retract REF --reason TEXT`"),
    ("session rm s1", "append-only, so nothing is removed from it, but `deed session end ID` ends a session"),
    ("session delete s1", "`deed session retract REF --reason TEXT` retracts a finding or dead end"),
    ("session remove s1", "`deed erase SUBJECT --reason TEXT` all that is sealed for a subject"),
    ("handoff rm h1", "append-only, so nothing is removed from it, but `deed handoff cancel ID --reason TEXT`"),
    ("handoff delete h1", "`deed redact INDEX --reason TEXT` erases the texts of an entry"),
    ("finding remove 7", "append-only, so nothing is removed from it, but `deed session retract REF --reason TEXT`"),
    ("reasoning rm r1", "append-only, so nothing is removed from it, but `deed reasoning retract ID --step N"),
    ("setup claude-code --undo", "deed uninstall"),
    ("ls", "deed handoff list"),
    ("handoff list -n 5", "--limit"),
    ('note "x y"', "deed session finding"),
    ("stop", "deed session end"),
    ("init ana", "did you mean `deed init --name ana`?"),
    ("handoff cancel h1", "needs --reason"),
    ("handoff block h1", "needs --reason"),
    ("session dead-end A B", "needs --why"),
    ('ask "is it ok" claude-code', "the name comes first: `deed ask claude-code 'is it ok'`"),
    ('search "-dash in a text"', "write `--` before a text that begins with a dash"),
    ('handoff "Fix the cache"', "deed handoff create --title TEXT"),
    ("handoff check h1 2", "did you mean --task 2 or --criterion 2?"),
    (
        "reasoning settle r1 1",
        "did you mean `deed reasoning settle r1 --step 1 --how TEXT`, with --holds or --refuted?",
    ),
    ("reasoning settle r1 7 false", "did you mean `deed reasoning settle r1 --step 7 --refuted --how TEXT`?"),
    ("reasoning settle r1 --step 7 --false", "did you mean `deed reasoning settle ID --step N --refuted --how TEXT`?"),
    ("reasoning settle r1 --outcome false", "did you mean `deed reasoning settle ID --step N --refuted --how TEXT`?"),
    ("reasoning retract r1 2", "did you mean `deed reasoning retract r1 --step 2 --reason TEXT`?"),
    ("reasoning retract r1 2 --reason wrong", "did you mean --step 2?"),
    ("reasoning step r1 x --confidence 90%", "write 0.9"),
    ("reasoning step r1 x --confidence 90", "write 0.9"),
    ("reasoning step r1 x --type limitation", "did you mean `deed reasoning conclude ID TEXT --limitation TEXT`?"),
    ("reasoning limitation r1 x", "did you mean `deed reasoning conclude ID TEXT --limitation TEXT`?"),
    ("reasoning create x", "did you mean `deed reasoning start --task TEXT`?"),
    ("reasoning add r1 x", "did you mean `deed reasoning step ID TEXT`?"),
    ("reasoning edit r1 2", "did you mean `deed reasoning retract ID --step N --reason TEXT`"),
    ("reasoning attach h1 r1", "did you mean `deed handoff amend ID --reasoning ID`?"),
    ("handoff attach h1 r1", "did you mean `deed handoff amend ID --reasoning ID`?"),
    ("handoff accept h1", "did you mean `deed handoff claim --as NAME ID`?"),
    ("reasoning brief r1 --short", "did you mean --level minimal?"),
    ("reasoning brief r1 --max-tokens 500", "did you mean --budget N?"),
    ("reasoning brief r1 --audience kuro", "did you mean --level minimal?"),
    ("reasoning brief r1 --to kuro", "did you mean `deed reasoning brief ID --level minimal`?"),
    ("reasoning diff r1", "needs B: A and B are refs of versions, which `deed reasoning show ID --versions` lists"),
    ("reasoning diff r1 1 2", "A and B are refs of versions, which `deed reasoning show ID --versions` lists"),
    ("reasoning brief r1 --tokens 500", "did you mean --budget?"),
    ("watch handoff.created", "did you mean --kind handoff.created?"),
    ("emit finding.logged --data x", "--stream session/ID --data @FILE"),
    ("agents add ana", "did you mean `deed agent add ana`?"),
    ("agents", "did you mean `deed agent list`?"),
    ("sessions", "did you mean `deed session list`?"),
    ("handoffs list", "did you mean `deed handoff list`?"),
    ("reports", "did you mean `deed report list`?"),
    ("report near-1", "did you mean `deed report show near-1`?"),
    ("report create", "`deed report generate ID`"),
    ("session report", "`deed report generate ID`"),
    ("session findings", "did you mean `deed session show ID`?"),
    ("unknowns", "did you mean `deed session show ID`?"),
    ("session question", "`deed session unknown TEXT`"),
    ("question add", "`deed ask NAME TEXT`"),
    ("claim codex h1", "`deed handoff claim --as NAME ID`"),
    ("handoff claim codex h1", "did you mean `deed handoff claim --as codex h1`?"),
    ("handoff approve rita h1", "did you mean `deed handoff approve --as rita h1`?"),
    ("handoff done h1 1", "did you mean `deed handoff check --task 1 h1`?"),
    ("task done 1", "`deed handoff check --task N ID`"),
    ("tasks list", "did you mean `deed handoff list`?"),
    ("task import", "`deed import handoffs FILE --as NAME`"),
    ("import tasks x.md", "`deed import handoffs FILE --as NAME`"),
    ("import x.md", "`deed import handoffs FILE --as NAME`"),
    ("handoff view h1", "`deed handoff show ID`"),
    ("handoff edit h1", "`deed handoff amend ID`"),
    ("handoff sync h1", "`deed handoff watch DIR --once`"),
    ("handoff export h1", "`deed handoff render ID --out FILE`"),
    ("handoff assign h1 kuro", "`deed handoff amend ID --to NAME`"),
    ("web", "`deed dashboard`"),
    ("key unseal kuro", "`deed key rotate --as NAME --lost --unprotected`"),
    ("verify h1", "did you mean `deed handoff verify h1`?"),
    ("resolve 9 x", "`deed session resolve REF --with TEXT`"),
    ("session resolve 9 x", "did you mean `deed session resolve 9 --with x`?"),
    ("report query subtracts", "did you mean `deed report query --task-pattern subtracts`?"),
    ("report show --last", "`deed report query --limit 1`"),
    ("report show h1 --format markdown", "did you mean --markdown?"),
    ("handoff list --format json", "did you mean --json?"),
    ("handoff list --format markdown", "`deed handoff render ID --out FILE`"),
    ("handoff list -o x.md", "`deed handoff render ID --out FILE`"),
    ("handoff render --all", "`deed handoff watch DIR --once`"),
    ("session start --title x", "did you mean --task?"),
    ("session finding --file x.py:1 y", "did you mean --evidence FILE:LINE?"),
    ("log --type finding.logged", "did you mean --kind?"),
    ("search --from 2026-12-01 x", "did you mean --since?"),
    ("search x --after 2026-12-01", "did you mean --since?"),
    ("log --before yesterday", "did you mean --until?"),
    ("search x --after seven", "not a valid integer range (see"),
    ("search --since 2026-12-01", "needs TEXT; without it: `deed log --since TIME`"),
    ("handoff create --from kuro", "did you mean --as?"),
    ("handoff create --due tomorrow", "there are no dates: write it in --body"),
    ("handoff block h1 --until tomorrow", "there are no dates: write it in --reason"),
    ("handoff create --brief body.md", "did you mean --body @FILE?"),
    ("handoff amend h1 --file body.md", "did you mean --body @FILE?"),
    ("handoff amend h1 body.md", "did you mean --body @body.md?"),
    ("handoff reject h1 --comment no", "did you mean --reason?"),
    ("handoff check h1 --tasks 1,2", "did you mean --task?"),
    ("handoff complete h1 --commit abc", "did you mean --artifact?"),
    ("dashboard --host x", "did you mean --url https://HOST?"),
    ("init --passphrase x --name ana", "deed init --name ana --passphrase-fd 3 3<FILE"),
    ("init --passphrase-fd", "deed init --passphrase-fd 3 3<FILE"),
    ("init --passphrase-fd 99", "deed init --passphrase-fd 3 3<FILE"),
    ("handoff create Document calc --as a", 'deed handoff create --title "Document calc" --as a'),
    ("handoff create --title Fix the bug --as a", 'deed handoff create --title "Fix the bug" --as a'),
    ("handoff create fix-it Fix it now", "--title 'Fix it now'"),
    ("session start --task Fix add in x", 'deed session start --task "Fix add in x"'),
    ("ask lea Which one --about h1", 'deed ask lea "Which one" --about h1'),
    ("session finding it is --evidence x.py:1 not so", "read as 4 arguments: it takes [ID] TEXT|@FILE"),
    ("session dead-end --why too slow a cache", "read as 3 arguments: it takes [ID] APPROACH"),
    ("bundle", "`deed export FILE`"),
    ("prove 5", "`deed receipt INDEX`"),
    ("receipt --entry 5", "did you mean `deed receipt INDEX`?"),
    ("export --entry 5", "did you mean `deed receipt INDEX`?"),
    ("receipt check r.txt", "did you mean `deed receipt verify r.txt`?"),
    ("verify --receipt r.txt", "did you mean `deed receipt verify FILE`?"),
    ("verify nosuch.zip", "did you mean --bundle nosuch.zip?"),
    ('next --at "10 minutes ago"', "did you mean --as-of?"),
    ("log show 5", "did you mean `deed show 5`?"),
    ("log fix-cache", "did you mean `deed log --stream handoff/fix-cache`?"),
    ("log kuro", "it takes no argument"),
    ("log --approved-by alex", "`deed log --kind handoff.approved --author NAME`"),
    ("watch handoffs", "did you mean `deed handoff watch handoffs`?"),
    ("connect codex", "did you mean `deed setup HARNESS` or `deed join CODE`?"),
    ("install codex", "did you mean `deed setup HARNESS`?"),
    ("disconnect codex", "did you mean `deed setup HARNESS --remove`"),
    ("diff", "`deed setup HARNESS --check`"),
    ("setup diff", "did you mean `deed setup HARNESS --check`?"),
    ("setup codex --status", "did you mean --check?"),
    ("setup codex --dry-run", "did you mean --check?"),
    ("setup codex --global", "did you mean --user?"),
    ("setup claude-code codex", "did you mean `deed setup claude-code && deed setup codex`?"),
    ("setup claude-code other", "it takes HARNESS"),
    ("setup claude", "did you mean claude-code?"),
    ("setup copilot", "another program takes `deed mcp --as NAME` as an MCP server on stdio"),
    ("uninstall claude-code", "did you mean `deed setup claude-code --remove`?"),
    ("uninstall other", "it takes no argument"),
    ("mcp --stdio --as kuro", "did you mean `deed mcp --as kuro`?"),
    ("session transfer", "did you mean `deed session move`?"),
    ("handoff h1", "did you mean `deed handoff show h1`?"),
    ("handoff done h1 1 --as kuro", "did you mean `deed handoff check --task 1 h1 --as kuro`?"),
    ("handoff claim codex h1 --as kuro", "did you mean `deed handoff claim --as codex h1`?"),
    ("handoff create --cheese", "No such option '--cheese' (see"),
    ("report show --last-one x", "No such option '--last-one' (see"),
]
"""A call, and the text that its error must contain."""


@pytest.mark.parametrize(("words", "hint"), GUESSES)
def test_guess_is_answered_with_its_command(
    nowhere: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, hint: str
) -> None:
    (tmp_path / "src").mkdir()
    for name in ("body.md", "src/api.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    message = nowhere.refuses("USAGE", *shlex.split(words))["message"]
    assert hint in message or hint in message.replace(" --json", "")  # a hint may repeat the whole call


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("next --as Rita", "did you mean rita?"),
        ("next --server 127.0.0.1:4555", "did you mean nats://127.0.0.1:4555?"),
        ("next --server http://h:4222/", "did you mean nats://h:4222/?"),
        ("next --server 127.0.0.1:99999", "nats://HOST:PORT, as `deed serve` prints it"),
        ('agent add "Ana Lopez"', "did you mean ana-lopez?"),
        ("agent add ???", "begin with a letter or digit"),
    ],
)
def test_value_that_is_no_name_or_server_is_answered_with_one(alone: Deed, words: str, hint: str) -> None:
    assert alone.refuses("INVALID_FIELD", *shlex.split(words))["message"].endswith(hint)


def test_answer_before_its_question_is_turned_round(deed: Deed) -> None:
    deed("ask", "b", "Which port do the guesses use", "--as", "a")
    question = deed.data("questions", "--to", "b")["items"][0]["id"]
    message = deed.refuses("USAGE", "answer", "80 80", question, "--as", "b")["message"]
    assert f"the question comes first: `deed answer {question} '80 80'`" in message
    deed.refuses("NOT_FOUND", "answer", "8080", "no-such-question", "--as", "b")


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [
        (
            "INVALID_FORMAT",
            "emit finding.logged --stream session/s --data '{\"finding\": '",
            "in single quotes, or --data @FILE",
        ),
        ("INVALID_FIELD", "emit finding.logged --stream session/s --data [1]", "in single quotes, or --data @FILE"),
        ("NOT_FOUND", "import empirica --as a", "run this in a repository, or name one with --git REPO"),
        ("NOT_FOUND", "review show x", "`deed review list` lists"),
        ("NOT_FOUND", "snapshot receive x", "`deed snapshot list`"),
        ("NOT_FOUND", f"blob get blake3:{'0' * 64} -o y", "`deed blob list`"),
        ("INVALID_FIELD", "blob get x -o y", "`deed blob list`"),
        ("AGENT_UNKNOWN", "next --as nobody", "`deed agent list`"),
        ("LEDGER_EXISTS", "init --unprotected", "`deed next`"),
        ("USAGE", "notify run", "[[notify]] with agents"),
        ("NOT_FOUND", "settle health --as a", "health is a handoff: name one of its questions, for example health:1"),
        ("FILE_EXISTS", "export .", "name a file, such as log.tar, or a new folder"),
    ],
)
def test_error_leads_to_the_next_command(
    alone: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str, hint: str
) -> None:
    for name in ("a", "b"):
        alone("agent", "add", name)
    alone("agent", "add", "r", "--role", "reviewer", "--unprotected")
    alone("handoff", "create", "health", "--as", "a", "--to", "b", "--reviewer", "r", "--title", "Health")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert hint in alone.refuses(code, *(shlex.split(words)))["message"]


def test_path_where_a_decision_is_named_is_answered_with_the_option(deed: Deed) -> None:
    message = deed.refuses("NOT_FOUND", "decisions", "src/none.py")["message"]
    assert message.endswith("did you mean `deed decisions --path src/none.py`?")


def test_unquoted_text_after_the_id_of_a_session_leaves_the_id_out(deed: Deed) -> None:
    deed("session", "start", "quoted-1", "--task", "x", "--as", "a")
    words = "session finding quoted-1 calc has no tests --as a"
    message = deed.refuses("USAGE", *words.split())["message"]
    assert 'deed session finding quoted-1 "calc has no tests" --as a' in message


def test_sealed_key_without_a_terminal_is_answered_with_the_whole_call(deed: Deed) -> None:
    with_passphrase("a secret", deed, "agent", "add", "sealed-one")
    message = deed.refuses("KEY_LOCKED", "session", "start", "--task", "Why so", "--as", "sealed-one")["message"]
    assert "\n  next: deed " in message
    assert message.endswith(" session start --task 'Why so' --as sealed-one --json --passphrase-fd 3 3<FILE")


@pytest.mark.parametrize(
    "words",
    [
        "import handoffs DIR/bod.md",
        "handoff render --from-file DIR/bod.md",
        "receipt verify DIR/bod.md",
        "restore DIR/bod.md",
        "verify --bundle DIR/bod.md",
        "emit finding.logged --stream session/s --data @DIR/bod.md --as a",
    ],
)
def test_missing_file_is_answered_with_the_nearest(deed: Deed, tmp_path: Path, words: str) -> None:
    (tmp_path / "body.md").touch()
    message = deed.refuses("NOT_FOUND", *words.replace("DIR", str(tmp_path)).split())["message"]
    assert message.endswith(f"there is no file {tmp_path}/bod.md: did you mean {tmp_path}/body.md?") or (
        f"there is no file or folder {tmp_path}/bod.md: did you mean {tmp_path}/body.md?" in message
    )


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("search x --since today --until yesterday", "until is before since: nothing can be in between"),
        ("log --since 2d --until 2025-01-01", "until is before since: nothing can be in between"),
    ],
)
def test_period_without_time_is_refused(deed: Deed, words: str, end: str) -> None:
    assert deed.refuses("INVALID_FIELD", *words.split())["message"] == end


def test_task_in_place_of_a_sessions_id_is_refused_with_the_whole_call(deed: Deed) -> None:
    refused = deed.refuses("USAGE", "session", "start", "fix the parser", "--as", "a")
    (call,) = refused["details"]["next"]
    assert call == "deed session start --task 'fix the parser' --as a"
    deed(*shlex.split(call)[1:])


def test_future_is_refused(deed: Deed) -> None:
    assert deed.refuses("NOT_FOUND", "log", "--as-of", "2099-01-01")["message"] == "as_of is in the future: 2099-01-01"


def test_session_that_ends_without_a_report_is_answered_with_the_command_that_makes_it(deed: Deed) -> None:
    for name, options in (("taskless", "--task-summary TEXT"), ("empty-one", "--task-summary TEXT --finding TEXT")):
        deed("session", "start", name, "--as", "a")
        if name == "taskless":
            deed("session", "finding", name, "The cache is slow", "--as", "a")
        assert deed("session", "end", name, "--as", "a").endswith(f"\ndeed report generate {name} {options} --as a\n")
    assert "--task-summary" in deed.refuses("INVALID_FIELD", "report", "generate", "taskless", "--as", "a")["message"]
    deed("report", "generate", "taskless", "--summary", "Found why the cache is slow", "--as", "a")


def test_decision_by_the_wrong_agent_names_the_right_one(deed: Deed) -> None:
    words = ("handoff", "create", "whose", "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t")
    deed(*words)
    assert deed.refuses("USAGE", "handoff", "approve", "whose")["message"].endswith("is rita, so add --as rita")
    message = deed.refuses("NOT_AUTHORIZED", "handoff", "approve", "whose", "--as", "b")["message"]
    assert message.endswith("\n  next, for rita: deed handoff show --as rita whose")
    message = deed.refuses("NOT_FOUND", "handoff", "approve", "whose", "--as", "ritta")["message"]
    assert message == "there is no agent ritta: did you mean rita?"


def test_reviewer_who_is_missing_is_answered_with_the_command_that_registers_one(deed: Deed) -> None:
    words = ("handoff", "create", "--as", "a", "--to", "b", "--title", "t", "--reviewer")
    assert "`deed agent add zoe --role reviewer`" in deed.refuses("AGENT_UNKNOWN", *words, "zoe")["message"]
    deed("agent", "add", "c-agent")
    message = deed.refuses("NOT_AUTHORIZED", *words, "c-agent")["message"]
    assert "`deed agent add NAME --role human` registers a person" in message


def test_agent_sealed_by_mistake_is_answered_with_the_command_that_unseals_it(deed: Deed) -> None:
    command = "deed key rotate --as sealed-two --lost --unprotected"
    assert with_passphrase("a secret", deed, "agent", "add", "sealed-two").endswith(f"\n  {command}\n")
    error = deed.refuses("AGENT_EXISTS", "agent", "add", "sealed-two", "--unprotected")
    assert error["message"].endswith(f"`{command}`")
    assert command not in deed.refuses("AGENT_EXISTS", "agent", "add", "rita")["message"]
    deed(*command.split()[1:])
    deed("session", "start", "--task", "x", "--as", "sealed-two")


def test_open_task_comes_before_the_completion(deed: Deed) -> None:
    words = ("--title", "t", "--task", "one", "--criterion", "it works")
    deed("handoff", "create", "in-order", "--as", "rita", "--to", "b", *words)
    deed("handoff", "claim", "in-order", "--as", "b")
    said = deed("handoff", "check", "in-order", "--criterion", "1", "--evidence", "ok", "--as", "b")
    assert said.endswith("\nnext: deed handoff check --task 1 --as b in-order\n")
    assert deed("handoff", "check", "in-order", "--task", "1", "--as", "b").endswith("complete --as b in-order\n")
    message = deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "verify", "in-order", "--as", "rita")["message"]
    assert message.endswith("\n  next, for b: deed handoff complete --as b in-order")
    deed("handoff", "complete", "in-order", "--summary", "done", "--as", "b")
    result = deed.data("handoff", "show", "in-order")["result"]
    words = ("--result", result, "--reason", "no proof", "--as", "rita")
    assert "criterion 1 is open" in deed("handoff", "request-changes", "in-order", *words)


def test_title_without_its_option_is_answered_with_it(deed: Deed) -> None:
    message = deed.refuses("USAGE", "handoff", "create", "Fix the cache", "--to", "b", "--as", "a")["message"]
    assert message == "a handoff needs --title: did you mean --title 'Fix the cache'?"


def test_ledger_without_an_agent_names_the_command_that_registers_one(alone: Deed) -> None:
    message = alone.refuses("USAGE", "session", "start", "--task", "x")["message"]
    assert "(`deed agent add NAME` registers an agent)" in message


def test_named_file_that_does_not_exist_is_told(deed: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "calc.py").touch()
    monkeypatch.chdir(tmp_path)
    deed("session", "start", "clacs", "--task", "x", "--as", "a")
    words = ("session", "finding", "clacs", "It adds wrongly", "--as", "a", "--evidence")
    told = "there is no file clac.py: did you mean calc.py?"
    assert deed.run(*words, "clac.py").err == f"warning: evidence of finding 'It adds wrongly': {told}\n"
    for evidence in ("calc.py", "pytest passes", "https://example.org/x.html", "version 1.5"):
        assert deed.run(*words, evidence).err == ""
    deed("handoff", "create", "adds", "--as", "rita", "--to", "b", "--title", "t")
    deed("handoff", "claim", "adds", "--as", "b")
    said = deed.run("handoff", "complete", "adds", "--summary", "done", "--artifact", "clac.py", "--as", "b")
    assert f"warning: {told}\n" in said.err


def test_removal_of_an_agent_names_its_open_sessions_and_work(deed: Deed) -> None:
    deed("agent", "add", "leaver")
    deed("session", "start", "left-open", "--task", "x", "--as", "leaver")
    deed("handoff", "create", "for-leaver", "--as", "rita", "--to", "leaver", "--title", "t")
    said = deed.run("agent", "remove", "leaver")
    assert "warning: open sessions of leaver, which nobody can end now: left-open; " in said.err
    assert "`deed session start --resumes left-open --as NAME` continues one as another agent" in said.err
    assert "warning: work that waits for leaver: for-leaver" in said.err
    deed("agent", "add", "nothing-left")
    assert deed.run("agent", "remove", "nothing-left").err == "signed by root\n"


def test_text_in_a_hint_is_quoted_for_the_shell(nowhere: Deed) -> None:
    message = nowhere.refuses("USAGE", "session", "finding", "it", "costs", "$HOME")["message"]
    assert "put the text in quotes: deed session finding 'it costs $HOME'" in message


def test_hint_does_not_repeat_a_secret(nowhere: Deed) -> None:
    secret = "ghp_" + "a1B2" * 9
    assert secret not in nowhere.refuses("USAGE", "session", "finding", "the", "token", secret)["message"]


def test_each_guess_names_a_command_that_exists() -> None:
    lines = [line for lines in guesses.VERBS.values() for line in lines]
    lines += [*guesses.OPTIONS_OF_VERB.values(), *guesses.COMMANDS_OF_WORD.values(), *guesses.WITHOUT_ARGUMENT.values()]
    lines += [line for text in guesses.EXPLANATIONS.values() for line in re.findall("`deed ([^`]+)`", text)]
    for line in lines:
        if line == "receipt INDEX":  # a word after this group need not be a verb
            continue
        command: click.Command = program
        for word in line.split():
            if not isinstance(command, click.Group):
                options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
                assert not word.startswith("--") or word in options, line
                continue
            found = command.get_command(click.Context(command), word)
            assert found is not None, line
            command = found
        assert not isinstance(command, click.Group), line


def test_no_guess_hides_a_verb() -> None:
    for guess in guesses.VERBS:
        *groups, word = guess.split()
        command: click.Command | None = program
        for group in groups:
            if not isinstance(command, click.Group):
                break
            command = command.get_command(click.Context(command), group)
        if isinstance(command, click.Group):  # the group may be a guess itself: `task done`
            assert command.get_command(click.Context(command), word) is None, guess
