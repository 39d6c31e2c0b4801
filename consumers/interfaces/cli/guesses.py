"""First guesses on the command line and what they mean here: words of git, of gh and of other ledgers.

A guess only changes the text of an error; it never runs anything. ``hints`` reads these tables, and names an option or
argument only if the verb has it.
"""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, ...]]] = {
    "blocked": ("handoff list --status blocked", "handoff why ID", "handoff graph"),
    "close": ("settle QUESTION", "handoff complete ID", "session end"),
    "clone": ("join CODE", "agent invite NAME"),
    "comment": ("handoff log ID", "ask NAME TEXT --about HANDOFF"),
    "config": ("join --address URL", "trust"),
    "commit": ("handoff complete ID --summary TEXT", "decide TEXT"),
    "connect": ("setup HARNESS", "join CODE"),
    "create": ("handoff create", "session start", "decide TEXT"),
    "delete": (
        "redact INDEX --reason TEXT",
        "withdraw DECISION --reason TEXT",
        "handoff cancel ID --reason TEXT",
        "agent remove NAME",
    ),
    "dep": ("handoff graph",),
    "diff": ("reasoning diff", "setup HARNESS --check"),
    "disconnect": ("setup HARNESS --remove", "uninstall"),
    "dependencies": ("handoff graph",),
    "deps": ("handoff graph",),
    "harness": ("setup HARNESS", "setup HARNESS --check"),
    "history": ("log", "handoff show ID"),
    "invite": ("agent invite NAME",),
    "install": ("setup HARNESS",),
    "issue": ("handoff create", "handoff list"),
    "leave": ("uninstall", "agent remove NAME"),
    "list": ("handoff list", "session list", "decisions", "questions"),
    "logout": ("uninstall",),
    "ls": ("handoff list", "log"),
    "note": ("session finding TEXT", "ask NAME TEXT"),
    "pull": ("unread", "log", "spool send"),
    "push": ("spool send", "notes push"),
    "pr": ("handoff complete ID", "handoff check-files"),
    "record": ("session finding TEXT",),
    "reopen": ("handoff request-changes ID --reason TEXT",),
    "reset": ("uninstall", "restore FILE"),
    "revert": ("withdraw DECISION --reason TEXT", "handoff cancel ID --reason TEXT"),
    "stop": ("session end", "doctor"),
    "sync": ("spool send", "handoff watch DIR --once"),
    "tree": ("handoff graph",),
    "undo": ("uninstall", "withdraw DECISION --reason TEXT", "session retract REF"),
    "whoami": ("next", "agent list"),
    "agent create": ("agent add NAME",),
    "agent delete": ("agent remove NAME",),
    "agent register": ("agent add NAME",),
    "agent rm": ("agent remove NAME",),
    "agent whoami": ("agent list",),
    "handoff TEXT": ("handoff create --title TEXT --to NAME",),
    "handoff accept": ("handoff claim --as NAME ID",),
    "handoff attach": ("handoff amend ID --reasoning ID",),
    "reasoning add": ("reasoning step ID TEXT",),
    "reasoning amend": ("reasoning retract ID --step N --reason TEXT", "reasoning step ID TEXT"),
    "reasoning attach": ("handoff amend ID --reasoning ID",),
    "reasoning create": ("reasoning start --task TEXT",),
    "reasoning edit": ("reasoning retract ID --step N --reason TEXT", "reasoning step ID TEXT"),
    "reasoning limit": ("reasoning conclude ID TEXT --limitation TEXT",),
    "reasoning limitation": ("reasoning conclude ID TEXT --limitation TEXT",),
    "reasoning update": ("reasoning retract ID --step N --reason TEXT", "reasoning step ID TEXT"),
    "handoff blocked": ("handoff list --status blocked", "handoff why ID", "handoff graph"),
    "handoff deps": ("handoff graph",),
    "handoff history": ("handoff show ID",),
    "handoff reopen": ("handoff request-changes ID --reason TEXT",),
    "handoff tree": ("handoff graph",),
    "handoff issue": ("handoff create",),
    "handoff next": ("next",),
    "handoff undo": ("handoff cancel ID --reason TEXT",),
    "handoff delete": ("handoff cancel ID --reason TEXT",),
    "handoff decline": ("handoff reject ID --reason TEXT",),
    "import markdown": ("import handoffs",),
    "import md": ("import handoffs",),
    "import old": ("import handoffs",),
    "report find": ("report query --task-pattern TEXT", "search TEXT"),
    "report submit": ("report generate ID",),
    "report search": ("report query --task-pattern TEXT", "search TEXT"),
    "session TEXT": ("session finding TEXT",),
    "session export": ("session move", "report generate"),
    "session found": ("session finding TEXT",),
    "session note": ("session finding TEXT",),
    "session resume": ("report resume", "session move", "session start --resumes ID"),
    "session stop": ("session end",),
    "session transfer": ("session move",),
    "setup check": ("setup HARNESS --check",),
    "setup diff": ("setup HARNESS --check",),
    "setup list": ("setup HARNESS --check",),
    "setup remove": ("setup HARNESS --remove", "uninstall"),
    "setup status": ("setup HARNESS --check",),
    "setup user": ("setup HARNESS --user",),
    "setup team": ("setup HARNESS --team",),
    "approve": ("handoff approve --as NAME ID",),
    "claim": ("handoff claim --as NAME ID",),
    "complete": ("handoff complete --as NAME ID",),
    "decision": ("decide TEXT", "decisions"),
    "decision list": ("decisions",),
    "findings": ("session show ID",),
    "import FILE": ("import handoffs FILE --as NAME",),
    "import task": ("import handoffs FILE --as NAME",),
    "import tasks": ("import handoffs FILE --as NAME",),
    "page": ("dashboard",),
    "resolve": ("session resolve REF --with TEXT",),
    "question": ("ask NAME TEXT", "questions"),
    "question list": ("questions",),
    "questions list": ("questions",),
    "task": ("handoff list", "handoff check --task N ID"),
    "task add": ("handoff create",),
    "task create": ("handoff create",),
    "task done": ("handoff check --task N ID",),
    "task import": ("import handoffs FILE --as NAME",),
    "task list": ("handoff list",),
    "tasks": ("handoff list",),
    "ui": ("dashboard",),
    "unknowns": ("session show ID",),
    "web": ("dashboard",),
    "handoff assign": ("handoff amend ID --to NAME",),
    "handoff edit": ("handoff amend ID", "handoff watch DIR"),
    "handoff export": ("handoff render ID --out FILE",),
    "handoff get": ("handoff show ID",),
    "handoff reassign": ("handoff amend ID --to NAME",),
    "handoff sync": ("handoff watch DIR --once",),
    "handoff update": ("handoff amend ID",),
    "handoff view": ("handoff show ID",),
    "event": ("show INDEX|REF", "log"),
    "event list": ("log",),
    "event show": ("show INDEX|REF",),
    "follow": ("log --follow",),
    "get": ("show INDEX|REF", "log"),
    "get events": ("log", "log --follow"),
    "key passphrase": ("key rotate --as NAME --lost",),
    "key passwd": ("key rotate --as NAME --lost",),
    "key protect": ("key rotate --as NAME --lost",),
    "key stolen": ("key compromised KEY|AGENT --since INDEX|TIME",),
    "kind create": ("kind declare x.NAME.NAME",),
    "passphrase": ("key rotate --as NAME --lost",),
    "passwd": ("key rotate --as NAME --lost",),
    "publish": ("emit KIND STREAM FIELD=VALUE",),
    "seal TEXT": ("session finding TEXT --seal SUBJECT",),
    "seal delete": ("erase SUBJECT --reason TEXT",),
    "seal destroy": ("erase SUBJECT --reason TEXT",),
    "seal erase": ("erase SUBJECT --reason TEXT",),
    "seal rm": ("erase SUBJECT --reason TEXT",),
    "key unseal": ("key rotate --as NAME --lost --unprotected",),
    "report create": ("report generate ID",),
    "session findings": ("session show ID",),
    "session question": ("session unknown TEXT", "ask NAME TEXT"),
    "session questions": ("session show ID",),
    "session report": ("report generate ID",),
    "session unknowns": ("session show ID",),
    "bundle": ("export FILE",),
    "proof": ("receipt INDEX",),
    "prove": ("receipt INDEX",),
    "who": ("log --kind handoff.approved --author NAME",),
}
"""The commands for a word that is no verb here, or for a group and such a word; the likeliest first.

TEXT is any text of several words.
"""

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
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
    "--agent": ("--to", "--author", "--as"),
    "--assign": ("--to", "--as"),
    "--audience": ("--level minimal",),
    "--assignee": ("--to", "--as"),
    "--because": ("--reason", "--why"),
    "--blocked": ("--status blocked",),
    "--blocked-by": ("--depends-on",),
    "--body-file": ("--body @FILE",),
    "--by": ("--author", "--as"),
    "--description": ("--body", "--summary"),
    "--file": ("--path", "--from-file", "--out", "DIR", "FILE", "FILE|DIR", "--evidence FILE:LINE", "--body @FILE"),
    "--for": ("--to", "--as"),
    "--from": ("--author", "--as"),
    "--max-tokens": ("--budget N",),
    "--message": ("--summary", "--reason", "--text", "--title", "--why", "--comment", "TEXT|@FILE", "TEXT"),
    "--mine": ("--to NAME", "--as"),
    "--name": ("NAME", "[ID]", "ID", "--id"),
    "--offline": ("--spool",),
    "--needs": ("--depends-on",),
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
    "--text": ("TEXT|@FILE", "TEXT", "--body", "--summary"),
    "--to": ("NAME", "FILE|DIR", "FILE|DIR/"),
    "--tokens": ("--budget",),
    "--why": ("--reason", "--body", "--summary"),
    "--after DATE": ("--since", "--as-of"),
    "--before DATE": ("--until",),
    "--brief": ("--body @FILE",),
    "--comment": ("--reason", "--why", "--summary"),
    "--commit": ("--artifact",),
    "--diff": ("--check",),
    "--dry-run": ("--check",),
    "--global": ("--user",),
    "--deadline": ("--body", "--reason"),
    "--due": ("--body", "--reason"),
    "--format": ("--markdown", "--json"),
    "--format json": ("--json",),
    "--format markdown": ("--markdown",),
    "--format md": ("--markdown",),
    "--host": ("--url https://HOST",),
    "--from DATE": ("--since",),
    "--not-before": ("--body", "--reason"),
    "--tasks": ("--task",),
    "--title": ("--task", "TEXT|@FILE", "TEXT"),
    "--type": ("--kind",),
    "--until": ("--body", "--reason"),
    "--at": ("--as-of",),
}
"""By an option that the verb lacks: options (with a value, perhaps) or arguments; the first that it has is meant."""

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
"""By a verb and an option that it lacks: the command that does it, where it is another one."""

_REACHED: Final = "it listens on 127.0.0.1; other machines come through an SSH tunnel or a TCP proxy (deploy/README.md)"
EXPLANATIONS: Final[dict[str, str]] = {
    "serve --address": _REACHED,
    "serve --bind": _REACHED,
    "serve --host": _REACHED,
    "serve --listen": _REACHED,
    "serve --port 0": "leave --port out: then it takes the port of its last run, or a free one",
    "serve status": "`deed doctor` says whether it runs, and where",
    "serve stop": "Ctrl-C ends it, or SIGTERM; a second `deed serve` names its process",
    "watch --follow": "it follows anyway: leave --follow out",
}
"""By a verb and an option or word that it lacks: how it works here, where no command does that."""

SPOOLED: Final = "--spool stores only reports that need no answer, such as findings of the session in DEEDBOOK_SESSION"
"""The end of a text about a call that --spool did not store."""

NO_DATES: Final = frozenset({"--deadline", "--due", "--not-before", "--until"})
"""Options for a date, which a handoff does not have: its text says it."""

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
"""By a verb that lacks its argument: the command that lists the things from which it takes one."""

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
"""By a word after a verb that takes no more of them: the option that means it, if the verb has it."""

ARGUMENTS: Final = {
    "reasoning diff": "A and B are refs of versions, which `deed reasoning show ID --versions` lists, or ids",
}
"""By a verb: its arguments, which a call with another number of them is told."""

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
    "log create": "kind declare x.NAME.NAME",
    "next": "next --as WORD",
    "report query": "report query --task-pattern WORD",
    "session resolve": "session resolve BEFORE --with WORD",
    "unread": "unread --as WORD",
    "verify": "handoff verify WORD",
    "setup HARNESS": "setup BEFORE && deed setup WORD",
    "uninstall HARNESS": "setup WORD --remove",
    "log ID": "log --stream handoff/WORD",
    "log N": "show WORD",
    "log show": "show WORD",
    "receipt check": "receipt verify WORD",
    "watch": "handoff watch WORD",
}
"""The commands for one word too many, WORD, and the word before it, BEFORE, by the verb.

After the verb may be the word before it, or the form of WORD: HARNESS for the name of one, N for a number, ID for a
word with a digit or a dash.
"""

OTHER_VALUES: Final = {
    "setup": "another program takes `deed mcp --as NAME` as an MCP server on stdio",
}
"""By a verb: the way for a value that is none of those that its argument takes."""

SHOWING_WORDS: Final = frozenset({"show", "get", "view"})
"""Words that are left out before the id of a verb that shows one thing when it gets an id."""
