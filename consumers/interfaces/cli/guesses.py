"""First guesses on the command line and what they mean here: words of git, of gh and of other ledgers.

A guess only changes the text of an error; it never runs anything. ``hints`` reads these tables, and names an option or
argument only if the verb has it.
"""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, ...]]] = {
    "agent create": ("agent add NAME",),
    "agent delete": ("agent remove NAME",),
    "agent register": ("agent add NAME",),
    "agent rm": ("agent remove NAME",),
    "agent whoami": ("agent list",),
    "approve": ("handoff approve --as NAME ID",),
    "blocked": ("handoff list --status blocked", "handoff why ID", "handoff graph"),
    "bundle": ("export FILE",),
    "claim": ("handoff claim --as NAME ID",),
    "clone": ("join CODE", "agent invite NAME"),
    "close": ("settle QUESTION", "handoff complete ID", "session end"),
    "comment": ("handoff log ID", "ask NAME TEXT --about HANDOFF"),
    "commit": ("handoff complete ID --summary TEXT", "decide TEXT"),
    "complete": ("handoff complete --as NAME ID",),
    "config": ("join --address URL", "trust"),
    "connect": ("setup HARNESS", "join CODE"),
    "create": ("handoff create", "session start", "decide TEXT"),
    "decision": ("decide TEXT", "decisions"),
    "decision list": ("decisions",),
    "dep": ("handoff graph",),
    "dependencies": ("handoff graph",),
    "deps": ("handoff graph",),
    "diff": ("reasoning diff", "setup HARNESS --check"),
    "disconnect": ("setup HARNESS --remove", "uninstall"),
    "event": ("show INDEX|REF", "log"),
    "event list": ("log",),
    "event show": ("show INDEX|REF",),
    "findings": ("session show ID",),
    "follow": ("log --follow",),
    "get": ("show INDEX|REF", "log"),
    "get events": ("log", "log --follow"),
    "handoff TEXT": ("handoff create --title TEXT --to NAME",),
    "handoff accept": ("handoff claim --as NAME ID",),
    "handoff assign": ("handoff amend ID --to NAME",),
    "handoff attach": ("handoff amend ID --reasoning ID",),
    "handoff blocked": ("handoff list --status blocked", "handoff why ID", "handoff graph"),
    "handoff decline": ("handoff reject ID --reason TEXT",),
    "handoff deps": ("handoff graph",),
    "handoff edit": ("handoff amend ID", "handoff watch DIR"),
    "handoff export": ("handoff render ID --out FILE",),
    "handoff get": ("handoff show ID",),
    "handoff history": ("handoff show ID",),
    "handoff issue": ("handoff create",),
    "handoff next": ("next",),
    "handoff reassign": ("handoff amend ID --to NAME",),
    "handoff reopen": ("handoff request-changes ID --reason TEXT",),
    "handoff sync": ("handoff watch DIR --once",),
    "handoff tree": ("handoff graph",),
    "handoff undo": ("handoff cancel ID --reason TEXT",),
    "handoff update": ("handoff amend ID",),
    "handoff view": ("handoff show ID",),
    "harness": ("setup HARNESS", "setup HARNESS --check"),
    "history": ("log", "handoff show ID"),
    "import FILE": ("import handoffs FILE --as NAME",),
    "import markdown": ("import handoffs",),
    "import md": ("import handoffs",),
    "import old": ("import handoffs",),
    "import task": ("import handoffs FILE --as NAME",),
    "import tasks": ("import handoffs FILE --as NAME",),
    "install": ("setup HARNESS",),
    "invite": ("agent invite NAME",),
    "issue": ("handoff create", "handoff list"),
    "key passphrase": ("key rotate --as NAME --lost",),
    "key passwd": ("key rotate --as NAME --lost",),
    "key protect": ("key rotate --as NAME --lost",),
    "key stolen": ("key compromised KEY|AGENT --since INDEX|TIME",),
    "key unseal": ("key rotate --as NAME --lost --unprotected",),
    "kind create": ("kind declare x.NAME.NAME",),
    "leave": ("uninstall", "agent remove NAME"),
    "list": ("handoff list", "session list", "decisions", "questions"),
    "logout": ("uninstall",),
    "ls": ("handoff list", "log"),
    "note": ("session finding TEXT", "ask NAME TEXT"),
    "page": ("dashboard",),
    "passphrase": ("key rotate --as NAME --lost",),
    "passwd": ("key rotate --as NAME --lost",),
    "pr": ("handoff complete ID", "handoff check-files"),
    "proof": ("receipt INDEX",),
    "prove": ("receipt INDEX",),
    "publish": ("emit KIND STREAM FIELD=VALUE",),
    "pull": ("unread", "log", "spool send"),
    "push": ("spool send", "notes push"),
    "question": ("ask NAME TEXT", "questions"),
    "question list": ("questions",),
    "questions list": ("questions",),
    "reasoning add": ("reasoning step ID TEXT",),
    "reasoning amend": ("reasoning retract ID --step N --reason TEXT", "reasoning step ID TEXT"),
    "reasoning attach": ("handoff amend ID --reasoning ID",),
    "reasoning create": ("reasoning start --task TEXT",),
    "reasoning edit": ("reasoning retract ID --step N --reason TEXT", "reasoning step ID TEXT"),
    "reasoning limit": ("reasoning conclude ID TEXT --limitation TEXT",),
    "reasoning limitation": ("reasoning conclude ID TEXT --limitation TEXT",),
    "reasoning update": ("reasoning retract ID --step N --reason TEXT", "reasoning step ID TEXT"),
    "record": ("session finding TEXT",),
    "reopen": ("handoff request-changes ID --reason TEXT",),
    "report create": ("report generate ID",),
    "report find": ("report query --task-pattern TEXT", "search TEXT"),
    "report search": ("report query --task-pattern TEXT", "search TEXT"),
    "report submit": ("report generate ID",),
    "reset": ("uninstall", "restore FILE"),
    "resolve": ("session resolve REF --with TEXT",),
    "revert": ("withdraw DECISION --reason TEXT", "handoff cancel ID --reason TEXT"),
    "seal TEXT": ("session finding TEXT --seal SUBJECT",),
    "seal delete": ("erase SUBJECT --reason TEXT",),
    "seal destroy": ("erase SUBJECT --reason TEXT",),
    "seal erase": ("erase SUBJECT --reason TEXT",),
    "seal rm": ("erase SUBJECT --reason TEXT",),
    "session TEXT": ("session finding TEXT",),
    "session export": ("session move", "report generate"),
    "session findings": ("session show ID",),
    "session found": ("session finding TEXT",),
    "session note": ("session finding TEXT",),
    "session question": ("session unknown TEXT", "ask NAME TEXT"),
    "session questions": ("session show ID",),
    "session report": ("report generate ID",),
    "session resume": ("report resume", "session move", "session start --resumes ID"),
    "session stop": ("session end",),
    "session transfer": ("session move",),
    "session unknowns": ("session show ID",),
    "setup check": ("setup HARNESS --check",),
    "setup diff": ("setup HARNESS --check",),
    "setup list": ("setup HARNESS --check",),
    "setup remove": ("setup HARNESS --remove", "uninstall"),
    "setup status": ("setup HARNESS --check",),
    "setup team": ("setup HARNESS --team",),
    "setup user": ("setup HARNESS --user",),
    "stop": ("session end", "doctor"),
    "sync": ("spool send", "handoff watch DIR --once"),
    "task": ("handoff list", "handoff check --task N ID"),
    "task add": ("handoff create",),
    "task create": ("handoff create",),
    "task done": ("handoff check --task N ID",),
    "task import": ("import handoffs FILE --as NAME",),
    "task list": ("handoff list",),
    "tasks": ("handoff list",),
    "tree": ("handoff graph",),
    "ui": ("dashboard",),
    "undo": ("uninstall", "withdraw DECISION --reason TEXT", "session retract REF"),
    "unknowns": ("session show ID",),
    "web": ("dashboard",),
    "who": ("log --kind handoff.approved --author NAME",),
    "whoami": ("next", "agent list"),
}
"""The commands for a word that is no verb here, or for a group and such a word; the likeliest first.

TEXT is any text of several words.
"""

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "--after DATE": ("--since", "--as-of"),
    "--agent": ("--to", "--author", "--as"),
    "--assign": ("--to", "--as"),
    "--assignee": ("--to", "--as"),
    "--at": ("--as-of",),
    "--audience": ("--level minimal",),
    "--because": ("--reason", "--why"),
    "--before DATE": ("--until",),
    "--blocked": ("--status blocked",),
    "--blocked-by": ("--depends-on",),
    "--body-file": ("--body @FILE",),
    "--brief": ("--body @FILE",),
    "--by": ("--author", "--as"),
    "--comment": ("--reason", "--why", "--summary"),
    "--commit": ("--artifact",),
    "--deadline": ("--body", "--reason"),
    "--description": ("--body", "--summary"),
    "--diff": ("--check",),
    "--dry-run": ("--check",),
    "--due": ("--body", "--reason"),
    "--file": ("--path", "--from-file", "--out", "DIR", "FILE", "FILE|DIR", "--evidence FILE:LINE", "--body @FILE"),
    "--for": ("--to", "--as"),
    "--format": ("--markdown", "--json"),
    "--format json": ("--json",),
    "--format markdown": ("--markdown",),
    "--format md": ("--markdown",),
    "--from": ("--author", "--as"),
    "--from DATE": ("--since",),
    "--global": ("--user",),
    "--host": ("--url https://HOST",),
    "--max-tokens": ("--budget N",),
    "--message": ("--summary", "--reason", "--text", "--title", "--why", "--comment", "TEXT|@FILE", "TEXT"),
    "--mine": ("--to NAME", "--as"),
    "--name": ("NAME", "[ID]", "ID", "--id"),
    "--needs": ("--depends-on",),
    "--not-before": ("--body", "--reason"),
    "--offline": ("--spool",),
    "--oneline": ("--limit",),
    "--out": ("--file", "FILE", "FILE|DIR", "FILE|DIR/"),
    "--output": ("--out", "FILE", "FILE|DIR", "FILE|DIR/"),
    "--owner": ("--to", "--author"),
    "--reason": ("--why", "--summary", "--comment"),
    "--result": ("--summary",),
    "--role": ("ROLE",),
    "--session": ("[ID]", "ID"),
    "--short": ("--level minimal",),
    "--since": ("--from-start",),
    "--status": ("--check", "--all"),
    "--tasks": ("--task",),
    "--text": ("TEXT|@FILE", "TEXT", "--body", "--summary"),
    "--title": ("--task", "TEXT|@FILE", "TEXT"),
    "--to": ("NAME", "FILE|DIR", "FILE|DIR/"),
    "--tokens": ("--budget",),
    "--type": ("--kind",),
    "--until": ("--body", "--reason"),
    "--why": ("--reason", "--body", "--summary"),
    "-C": ("--home",),
    "-a": ("--to", "--as"),
    "-b": ("--body", "--reason", "--text"),
    "-f": ("--file", "--from-file"),
    "-m": ("--summary", "--reason", "--text", "--title", "--why", "--comment", "TEXT|@FILE", "TEXT"),
    "-n": ("--limit",),
    "-o": ("--out", "--file"),
    "-p": ("--path", "--to"),
    "-r": ("--reviewer",),
    "-s": ("--status",),
    "-t": ("--title", "--type", "--task"),
}
"""Maps an option that a verb lacks to options (some with a value) and arguments; a hint names the first that it has."""

OPTIONS_OF_VERB: Final[dict[str, str]] = {
    "ask --to": "ask NAME TEXT",
    "handoff create -p": "handoff create --body TEXT",
    "handoff create --label": "handoff create --criterion TEXT",
    "handoff list --blocked-by": "handoff graph",
    "handoff list --why": "handoff why ID",
    "mcp --stdio": "mcp",
    "log --after-date": "log --since TIME",
    "log --grep": "search TEXT",
    "log -f": "log --follow",
    "log -w": "log --follow",
    "export --format": "log --json",
    "export -o json": "log --json",
    "log --oneline": "log --limit N",
    "reasoning brief --to": "reasoning brief ID --level minimal",
    "reasoning settle --false": "reasoning settle ID --step N --refuted --how TEXT",
    "reasoning settle --outcome false": "reasoning settle ID --step N --refuted --how TEXT",
    "reasoning settle --outcome true": "reasoning settle ID --step N --holds --how TEXT",
    "reasoning settle --true": "reasoning settle ID --step N --holds --how TEXT",
    "reasoning step --type limitation": "reasoning conclude ID TEXT --limitation TEXT",
    "restore --to": "restore FILE --home DIR",
    "search --as": "search TEXT --author NAME",
    "search --path": "decisions --path PATH",
    "search -i": "search TEXT",
    "serve --dashboard": "dashboard",
    "setup --undo": "uninstall",
    "setup --uninstall": "uninstall",
    "setup --remove": "uninstall",
    "handoff list --format markdown": "handoff render ID --out FILE",
    "handoff list -o": "handoff render ID --out FILE",
    "handoff render --all": "handoff watch DIR --once",
    "report show --last": "report query --limit 1",
    "export --entry": "receipt INDEX",
    "log --approved-by": "log --kind handoff.approved --author NAME",
    "receipt --entry": "receipt INDEX",
    "verify --receipt": "receipt verify FILE",
}
"""Maps a verb with an option that it lacks to another command, which does that."""

_REACHED: Final = "it listens on 127.0.0.1; other machines come through an SSH tunnel or a TCP proxy (deploy/README.md)"
_APPEND_ONLY: Final = "the log is append-only, so nothing is removed from it, but "
_ERASING: Final = (
    "`deed redact INDEX --reason TEXT` erases the texts of an entry, and `deed erase SUBJECT --reason TEXT` all that "
    "is sealed for a subject"
)
_CANCELLING: Final = "`deed handoff cancel ID --reason TEXT` cancels a handoff"
_RETRACTING: Final = "`deed session retract REF --reason TEXT` retracts a finding or dead end"
_REMOVALS: Final = {
    "": f"{_RETRACTING}, {_CANCELLING}, `deed withdraw DECISION --reason TEXT` withdraws a decision, "
    f"`deed agent remove NAME` removes an agent, {_ERASING}",
    "finding": f"{_RETRACTING}, {_ERASING}",
    "handoff": f"{_CANCELLING}, {_ERASING}",
    "reasoning": f"`deed reasoning retract ID --step N --reason TEXT` retracts a step, {_ERASING}",
    "report": _ERASING,
    "session": f"`deed session end ID` ends a session, {_RETRACTING}, {_ERASING}",
    "session dead-end": f"{_RETRACTING}, {_ERASING}",
    "session finding": f"{_RETRACTING}, {_ERASING}",
    "session unknown": f"`deed session resolve REF --with TEXT` answers an unknown, {_ERASING}",
}
EXPLANATIONS: Final[dict[str, str]] = {
    f"{path} {word}".lstrip(): _APPEND_ONLY + removal
    for path, removal in _REMOVALS.items()
    for word in ("del", "delete", "remove", "rm")
} | {
    "serve --address": _REACHED,
    "serve --bind": _REACHED,
    "serve --host": _REACHED,
    "serve --listen": _REACHED,
    "serve --port 0": "leave --port out: then it takes the port of its last run, or a free one",
    "serve status": "`deed doctor` says whether it runs, and where",
    "serve stop": "Ctrl-C ends it, or SIGTERM; a second `deed serve` names its process",
    "watch --follow": "it follows anyway: leave --follow out",
}
"""Maps a group or verb with an option or word that it lacks to an explanation, if no command does that."""

SPOOLED: Final = "--spool stores only reports that need no answer, such as findings of the session in DEEDBOOK_SESSION"
"""The end of a text about a call that --spool did not store."""

NO_DATES: Final = frozenset({"--deadline", "--due", "--not-before", "--until"})
"""Options for a date. A handoff has no field for one, so its text must say it."""

DATE: Final = "DATE"
"""Stands for a date or time as the value of an option, in the keys of the tables of options."""

PASSPHRASES: Final = ("--passphrase", "--passphrase-fd")
"""Options for a passphrase. The first does not exist, because other programs see arguments."""

WITHOUT_ARGUMENT: Final = {
    "handoff show": "handoff list",
    "report show": "report query",
    "search": "log --since TIME",
    "show": "log",
    "watch": "log --follow",
}
"""Maps a verb that was called without its argument to the command that lists possible values of the argument."""

WORDS: Final[dict[str, str]] = {
    "all": "--all",
    "false": "--refuted",
    "holds": "--holds",
    "link": "--link",
    "me": "--to NAME",
    "mine": "--to NAME",
    "open": "--status pending",
    "ready": "--ready",
    "refuted": "--refuted",
    "true": "--holds",
}
"""Maps a surplus word after a verb to the option that means it; a hint names the option if the verb has it."""

ARGUMENTS: Final = {
    "reasoning diff": "A and B are refs of versions, which `deed reasoning show ID --versions` lists, or ids",
}
"""Maps a verb to an explanation of its arguments, for calls with another number of arguments."""

TEXT_ARGUMENTS: Final = ("TEXT", "APPROACH")
"""Names of arguments that are one text of several words."""

TEXT_OPTIONS: Final = ("--summary", "--reason", "--why", "--comment", "--text", "--title", "--task")
"""Options for a text. A text in the wrong place is taken as the value of the first of these that the verb has."""

NUMBER_OPTIONS: Final = ("--task", "--criterion", "--step", "--limit")
"""Options for a number."""

FILE_OPTIONS: Final = ("--path ", "--file ", "--from-file ", "--body @", "--artifact ", "--bundle ", "--out ")
"""Options for a file, the likeliest first."""

COMMANDS_OF_WORD: Final = {
    "handoff approve": "handoff approve --as BEFORE WORD",
    "handoff claim": "handoff claim --as BEFORE WORD",
    "handoff complete N": "handoff check --task WORD BEFORE",
    "init": "init --name WORD",
    "key rotate": "key rotate --as WORD",
    "log ID": "log --stream handoff/WORD",
    "log N": "show WORD",
    "log create": "kind declare x.NAME.NAME",
    "log show": "show WORD",
    "next": "next --as WORD",
    "receipt check": "receipt verify WORD",
    "report query": "report query --task-pattern WORD",
    "session resolve": "session resolve BEFORE --with WORD",
    "setup HARNESS": "setup BEFORE && deed setup WORD",
    "uninstall HARNESS": "setup WORD --remove",
    "unread": "unread --as WORD",
    "verify": "handoff verify WORD",
    "watch": "handoff watch WORD",
}
"""Maps a verb that got one word too many, WORD, to the right command. BEFORE is the word before it.

Behind the verb, a key may have BEFORE or WORD itself, or the form of WORD: HARNESS for the name of a harness, N for a
number, ID for a word with a digit or a dash.
"""

OTHER_VALUES: Final = {
    "setup": "another program takes `deed mcp --as NAME` as an MCP server on stdio",
}
"""Maps a verb to advice for a value that its argument does not take."""

SHOWING_WORDS: Final = frozenset({"show", "get", "view"})
"""Words that a hint drops between a verb and an id, because the verb shows one thing when it gets an id."""
