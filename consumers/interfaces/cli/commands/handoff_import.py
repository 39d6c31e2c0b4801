"""`deed handoff import`: imports handoff files as claims, and prints the commands that add missing names."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from deedbook.consumers.handoffs.agent_names import AgentNames, Naming, read_agents
from deedbook.consumers.handoffs.files.imports import (
    UNREAD,
    ImportBatch,
    ImportPlan,
    changed_records,
    existing_rows,
    planned_rows,
    read_records,
)
from deedbook.consumers.handoffs.files.missing_names import ImportNeeds, needs_of
from deedbook.consumers.handoffs.names_file import check_named, read_names
from deedbook.consumers.importers.records import blob_ref, import_records, rehearsed
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.imports import (
    SEAL,
    counts_line,
    print_unmapped,
    sealed_import,
    show_sealed,
)
from deedbook.consumers.interfaces.cli.output import print_lines
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.files import read_file
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.errors import Refused
from deedbook.ledger.system.files import absent

files_shown_max: Final = 5
names_shown_max: Final = 5


@click.command("import", cls=Command, params=[SEAL])
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|DIR")
@click.option("--to", metavar="NAME", help="The receiver of handoffs that name none.")
@click.option(
    "--reviewer",
    metavar="NAME",
    help="The reviewer of handoffs that name none (default: default_reviewer, else the only human).",
)
@click.option(
    "--names",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A TOML file that says which agents the names in the files are.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be imported.")
@click.option("--keep-unmapped", is_flag=True, help="Store a FILE that is no handoff, as files of a folder are.")
def import_(
    app: App,
    path: Path,
    *,
    names: Path | None,
    dry_run: bool,
    keep_unmapped: bool,
    seal: str | None,
    **options: str | None,
) -> None:
    """Import handoff files, proposals and `active.md` tables as claims.

    An imported handoff is pending until its reviewer approves or verifies it, even if its file says otherwise. One
    whose status says that it is over (done, merged, superseded, rejected, 已完成, ...) waits for nobody, and only `deed
    handoff list --over` lists it. Every file is stored byte for byte. A table has the columns Task (or Title), From, To
    (or Owner) and Status; a column ID identifies its rows. Importing it again adds nothing, except names
    that are missing: give them with --to, --reviewer or --names. That approves nothing. A names file has these lines,
    all optional:

    \b
    to = "kuro"                     # of handoffs that name no receiver
    reviewer = "alex"               # of handoffs that name no reviewer
    [agents]                        # a name in the files = an agent here
    github = "alex"
    "Claude Code" = "claude-code"
    nobody-here = ""                # "" is nobody
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with backslash b
    if seal is not None:
        _import_sealed(app, path, seal, is_dry=dry_run)
        return
    if not path.exists():
        raise absent(path, f"there is no file or folder {path}")
    author = None if dry_run else app.author()
    importer = app.settings().agent if author is None else author.name
    agents = _names_for(app, names, **options)
    put_blob = blob_ref if author is None else author.put_blob
    with progress("reading", is_shown=not app.as_json) as step:
        reading = read_records(path, put_blob, agents=agents, step=step)
    _check_readable(reading, is_allowed=author is None or keep_unmapped or path.is_dir())
    before = existing_rows(reading.records, app.query_with)
    plan = changed_records(reading.records, app.query_with, agents, importer)
    if author is None:
        counts = rehearsed(plan.records, unchanged=plan.unchanged, repeats=plan.repeats)
    else:
        with progress("importing", is_shown=not app.as_json) as step:
            counts = import_records(author, plan.records, step, unchanged=plan.unchanged)
    rows = existing_rows(reading.records, app.query_with) if author else before
    needs = needs_of((rows if author else planned_rows(plan, rows, importer)).values(), agents, importer)
    lists = {name: [item._asdict() for item in getattr(reading, name)] for name in ("unread", "warnings")}
    only_in_file = {id_: headings for id_, headings in reading.only_in_file.items() if id_ in _sources_in(plan)}
    refused = {record.source for record in counts.unmapped_records}
    changed = sorted(id_ for id_, source in _sources_in(plan).items() if id_ in before and source not in refused)
    more = {"copies": plan.copies, "named": plan.named, "needs": needs._asdict(), "dry_run": dry_run}
    more |= {"changed": changed, "only_in_file": only_in_file}
    answer = counts.answer() | more | lists

    def text() -> None:
        for warning in reading.warnings:
            echo(f"{warning.source}:{warning.line}: {warning.text}", err=True)
        print_unmapped(answer)
        if plan.copies:
            phrase = "was made in this ledger" if len(plan.copies) == 1 else "were made in this ledger"
            echo(f"{len(plan.copies)} {phrase}, and kept in step by `deed handoff watch`: nothing to import")
        echo(counts_line(answer))
        print_lines(*_content_text(changed, only_in_file))
        if counts.unmapped and counts.added:
            echo("an unmapped file that is corrected becomes a new record; the old one stays (`deed import list`)")
        print_lines(*_needs_text(needs, plan.named, path, agents, importer))

    app.show("imported", answer, text)


def _check_readable(reading: ImportBatch, *, is_allowed: bool) -> None:
    """Refuse a single file that is no handoff, before it is stored for good. Raises Refused."""
    reasons = [record.data.reason for record in reading.records if record.data.format == UNREAD]
    if reasons and not is_allowed:
        code, _, message = reasons[0].partition(": ")
        raise Refused(code, f"{message}; nothing was stored (--keep-unmapped stores it)")


def _sources_in(plan: ImportPlan) -> dict[str, str]:
    """Return the sources of the handoffs that a plan imports, by their ids."""
    records = (record for record in plan.records if record.data.mapped_kind is not None)
    return {record.stream.partition("/")[2]: record.data.source for record in records}


def _content_text(changed: Sequence[str], only_in_file: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the handoffs that were here before, and the parts of files that no field has."""
    if changed:
        yield f"changed: {_some(changed)}"
    for id_, headings in [*only_in_file.items()][:files_shown_max]:
        yield f"{id_}: only its file has {_some(headings)}"
    if len(only_in_file) > files_shown_max:
        yield f"{len(only_in_file) - files_shown_max} more have such sections: `deed handoff show ID` prints them"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - names_shown_max} more" if len(names) > names_shown_max else ""
    return sanitize_line(", ".join(names[:names_shown_max])) + more


def _import_sealed(app: App, path: Path, subject: str, *, is_dry: bool) -> None:
    if is_dry:
        raise Refused("USAGE", "a sealed import maps nothing that --dry-run could print: omit one of them")
    importing = sealed_import(app, subject)
    agents = read_agents(app.query_with, app.settings().config.default_reviewer)
    with progress("sealing", is_shown=not app.as_json) as step:
        reading = read_records(path, importing.put_blob, agents=agents, step=step)
        counts = importing.import_records(reading.records)
    show_sealed(app, subject, counts)


def _names_for(app: App, file: Path | None, *, to: str | None, reviewer: str | None) -> AgentNames:
    """Return the agents of the ledger, with the names that the options give."""
    agents = read_agents(app.query_with, app.settings().config.default_reviewer)
    given = Naming(to, reviewer)
    check_named(given, agents)
    naming = Naming()
    if file is not None:
        content = read_file(file)
        if content is None:
            raise absent(file)
        naming = read_names(content, str(file), agents)
    naming = Naming(to or naming.to, reviewer or naming.reviewer, naming.aliases)
    return agents._replace(naming=naming, reviewer=naming.reviewer or agents.reviewer)


def _needs_text(needs: ImportNeeds, named: int, path: Path, agents: AgentNames, importer: str | None) -> Iterator[str]:
    """Yield the result of the import, and what its handoffs still need from whom, each with the command."""
    if named:
        yield f"{named} of them only for names that were missing"
    if needs.history:
        over = _counted(needs.history, "claims to be over and waits", "claim to be over and wait")
        yield f"{over} for nobody: `deed handoff list --over`"
    for name, count in needs.reviewers.items():
        yield f"{_counted(count, 'waits', 'wait')} for {name} to confirm: `deed next --as {name}`"
    again = ("deed", "handoff", "import", str(path), *(("--as", importer) if importer else ()))
    yield from _missing_text(needs, agents, again)
    if needs.unknown:
        names = ", ".join(f"{name} ({count})" for name, count in needs.unknown.items())
        yield (
            f"no agent here is named {names}, so nobody can act as them: --names FILE says which agents they are "
            "(`deed handoff import --help`). --to and --reviewer count only where a file names nobody"
        )
    for name, count in needs.others.items():
        yield f"{_counted(count, 'was', 'were')} imported by {name}: only --as {name} can add names"


def _missing_text(needs: ImportNeeds, agents: AgentNames, again: tuple[str, ...]) -> Iterator[str]:
    def command(*options: str) -> str:
        return f"`{sanitize_line(shlex.join((*again, *options)))}`"

    text = _counted(needs.no_reviewer, "names no reviewer", "name no reviewer")
    if needs.reviewable:
        of = "" if needs.reviewable == needs.no_reviewer else f" {needs.reviewable} of"
        yield f"{text}: {command('--reviewer', needs.reviewer)} gives{of} them one"
    if needs.reviewable < needs.no_reviewer:
        party = "its" if needs.no_reviewer == 1 else "their"
        yield f"{text} who is not {party} sender or receiver: `deed agent add NAME --role reviewer` makes another"
    if needs.no_receiver:
        worker = next(iter(agents.having("agent")), "NAME")
        text = _counted(needs.no_receiver, "names no receiver", "name no receiver")
        yield f"{text}: {command('--to', worker)} gives them one"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
