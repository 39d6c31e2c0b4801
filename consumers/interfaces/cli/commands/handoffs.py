"""`deed handoff create` and `deed handoff amend`: the operations that give a handoff its content."""

from __future__ import annotations

from shlex import quote
from typing import Any, Final

import click
from msgspec.structs import asdict, replace

from deedbook.consumers.handoffs import composition, content
from deedbook.consumers.handoffs.agent_names import read_agents
from deedbook.consumers.handoffs.decisions import standing, touched_paths
from deedbook.consumers.handoffs.files.mapping import arguments_of_file, content_from
from deedbook.consumers.handoffs.files.syntax.document import SECTIONS
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import with_done_as_notes, write
from deedbook.consumers.handoffs.operations import OPERATIONS
from deedbook.consumers.handoffs.receiver import notices, notices_of_amendment
from deedbook.consumers.handoffs.short_ids import by_whole_id
from deedbook.consumers.interfaces.cli.app import App, Command, read_argument, with_contents
from deedbook.consumers.interfaces.cli.arguments import parameters, seal_option, values_of
from deedbook.consumers.interfaces.cli.commands.handoff_steps import check_ref, emit, read_first, session_lines
from deedbook.consumers.interfaces.cli.output import warn
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffAmended

# No option is required, because the file of --file may have the values.
_OF_FILE_OR_LINE: Final = [replace(argument, is_needed=False) for argument in OPERATIONS["create"].arguments]


_SEALED: Final = "all texts except title, proposal and artifacts' names"


@click.command(cls=Command, params=[*parameters(_OF_FILE_OR_LINE), seal_option(_SEALED)])
@click.argument("id_", metavar="[ID]", required=False)
@click.option(
    "--file", "source", metavar="FILE|-", help="Read it from a file like `handoff render` writes; - is stdin."
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Print the file of the handoff; sign nothing.")
def create(app: App, /, id_: str | None, source: str | None, *, is_dry: bool, seal: str | None, **options: Any) -> None:
    """Create a handoff from the acting agent to NAME; it waits for its reviewer's approval.

    ID is also the name of its file. Without ID it gets day and title. Tell the receiver what only you know, with
    --reproduce, --baseline, --trap and their neighbours. Your session's records are attached automatically (see
    --session, --topic). An option replaces what --file says.
    """
    sealer = None if seal is None else app.sealer(seal)
    # The file is not encrypted, so a sealed handoff gets no template.
    of_file, unread = ({}, []) if source is None else _arguments_in(app, source, stores=not is_dry and sealer is None)
    given = of_file | values_of(OPERATIONS["create"].arguments, options)
    if "artifacts" in given and not is_dry:
        given["artifacts"] = with_contents(app, given["artifacts"], sealer)
    if missing_options := [f"--{name}" for name in ("title", "to") if name not in given]:
        hint = f": did you mean --title {quote(id_)}?" if id_ and " " in id_ and "title" not in given else ""
        raise Refused("USAGE", f"a handoff needs {' and '.join(missing_options)}{hint}", fields=missing_options)
    name, data, added = composition.creation(app.query_with, app.acting(), app.settings(), id_, given)
    of_session = {"of_session": added.notes, "left_out": added.left_out}
    warnings = [*unread, *filter(None, [added.warning]), *notices(data, name, app.acting())]
    if is_dry:
        text = write(data, app.acting()).decode()
        whole = "" if source is None else "Its version includes every line of the file that you gave."
        lines = [text, *session_lines(of_session), *filter(None, [whole]), "Nothing was signed."]
        app.show("handoff_plan", {"id": name, "file": text, "warnings": warnings, **of_session}, lines)
        warn(() if app.as_json else warnings)
        return
    about = standing(app.query_with, touched_paths(asdict(data.notes)))["items"]
    data = data if sealer is None else sealer.event(data)
    emit(app, name, data, warnings=warnings, of_session=of_session, decisions=about)


def _arguments_in(app: App, source: str, *, stores: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments that a handoff's file holds, and a warning for each section that no argument represents.

    The file itself is stored, with ticked tasks as notes of finished work: its version includes every line.
    """
    content = read_argument(source if source == "-" else f"@{source}", "--file")
    agents = read_agents(app.query_with, app.settings().config.default_reviewer)
    file = parse(content := with_done_as_notes(parse(content)))
    arguments = arguments_of_file(file, agents, app.acting())
    others = [section for section in file.sections if not section.name]
    read = f"read are {', '.join(SECTIONS[1:-1])}"
    warnings = [f"line {at.start + 1}: only the file has the section {at.heading!r}: {read}" for at in others]
    return arguments | ({"template": app.author().put_blob(content)} if stores else {}), warnings


_LISTS: Final = {"tasks": "task", "criteria": "criterion"}


@click.command(cls=Command, params=[*parameters(OPERATIONS["amend"].arguments), seal_option(_SEALED)])
@click.argument("id_", metavar="ID")
@click.option("--add-task", multiple=True, help="A further step.")
@click.option("--add-criterion", multiple=True, help="A further acceptance criterion.")
@click.option("--edit-task", type=(int, str), multiple=True, metavar="N TEXT", help="The new text of task N.")
@click.option("--edit-criterion", type=(int, str), multiple=True, metavar="N TEXT", help="The new text of criterion N.")
def amend(app: App, /, id_: str, reason: str | None, seal: str | None, **options: Any) -> None:
    """Change a handoff before work on it begins. It then needs a new approval, and its ticks are removed.

    If you are human, and sent or imported it, and it names no reviewer, then this approves all of it: read it first.
    For an imported handoff, name the --version that you read; on a terminal it is shown, and you are asked.

    --task, --criterion, --depends-on and --reasoning replace all earlier values; --add-task and --add-criterion add
    one, --edit-task and --edit-criterion change one. The notes for the receiver, --found to --artifact, add to the
    earlier values. The value `none` of --reviewer, --depends-on, --reasoning or a note removes the earlier values. Only
    the present reviewer may name another reviewer, with --reviewer alone.
    """
    sealer = None if seal is None else app.sealer(seal)
    lists = {name: {each: options.pop(f"{each}_{label}") for each in ("add", "edit")} for name, label in _LISTS.items()}
    changes = values_of(OPERATIONS["amend"].arguments, options)
    check_ref("version", changes)
    if changes.get("reviewer") == "none":
        changes["reviewer"] = None
    handoff = by_whole_id(app.query("handoffs.show", id=id_), "handoff", id_)
    if "version" not in changes and composition.approves_import(handoff, changes):
        handoff = read_first(app, "amend", id_, "version", asks=True)
        changes["version"] = handoff["version"]
    if "artifacts" in changes:
        changes["artifacts"] = with_contents(app, changes["artifacts"], sealer)
    warnings = [
        f"--{label} replaced the earlier ones; --add-{label} adds one"
        for name, label in _LISTS.items()
        if changes.get(name) and handoff[name]
    ]
    for name, given in lists.items():
        texts = changes.get(name, [item["text"] for item in handoff[name]])
        for number, text in given["edit"]:
            texts[content.position_of(texts, _LISTS[name], number)] = text
        if twice := [text for text in given["add"] if text in texts]:
            message = f"{_LISTS[name]} {texts.index(twice[0]) + 1} of {handoff['id']} says that already: leave it out"
            raise Refused("NOTHING_CHANGED", message)
        if any(given.values()):
            changes[name] = [*texts, *given["add"]]
    changes |= {name: [] for name in ("reasoning", "depends_on") if changes.get(name) == ["none"]}
    with content.of_version(app.client(), handoff["id"], changes.get("version")):
        (data,) = composition.events_of("amend", handoff, changes | {"reason": reason or ""}, app.author())
    assert isinstance(data, HandoffAmended)  # noqa: S101 - what an amendment signs
    warnings += notices_of_amendment(data, handoff["id"], changes)
    data = data if sealer is None else sealer.event(data)
    changed = composition.changes_between(content_from(handoff), data)
    emit(app, handoff["id"], data, changes=changed, warnings=warnings, was=handoff["status"])
