"""`deed session assess`: the agent's own assessment, and after the last one the report.

The assessment is committed first, and stays if the report fails. In that case stderr and the JSON have the error, the
exit code is 0, and `deed session sweep` makes the report later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

import click
from msgspec.structs import asdict

from deedbook.consumers.interfaces.cli.app import App, Command, parse_json, with_contents
from deedbook.consumers.interfaces.cli.arguments import parameters, values_of
from deedbook.consumers.interfaces.cli.commands import session_report
from deedbook.consumers.interfaces.cli.commands.session_report import inputs_from, print_made
from deedbook.consumers.interfaces.cli.output import warn
from deedbook.consumers.interfaces.cli.session_choice import append, session_and
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sessions.operations import OPERATIONS
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.session import AssessmentRecorded, Phase, Vectors
from deedbook.ledger.home.environment import wants_traceback
from deedbook.projections.snapshots.vectors import read_vectors

if TYPE_CHECKING:
    from deedbook.consumers.sessions.generator import ReportInputs

OF_EVENT: Final = [argument for argument in OPERATIONS["assess"].arguments if argument.name not in {"phase", "vectors"}]
REPORT_OPTIONS: Final = ("task_summary", "findings", "unknowns", "context", "artifacts", "no_report")


@click.command(cls=Command, params=parameters(OF_EVENT))
@click.argument("arguments", nargs=-1, metavar="[ID] PHASE")
@click.option(
    "--vector",
    "vector_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A self-assessment from 0 to 1, such as know=0.7. Repeatable.",
)
@click.option(
    "--vectors", "document", metavar="JSON|@FILE|-", help='Several vectors at once, such as {"know": 0.7, "do": 0.9}.'
)
@click.option("--task-summary", metavar="TEXT|@FILE", help="With POSTFLIGHT: what was done (default: the task).")
@click.option("--finding", "findings", multiple=True, help="With POSTFLIGHT: a finding of the report.")
@click.option("--unknown", "unknowns", multiple=True, help="With POSTFLIGHT: an open question of the report.")
@click.option("--context", metavar="TEXT|@FILE", help="With POSTFLIGHT: what the next session should know.")
@click.option("--artifact", "artifacts", multiple=True, help="With POSTFLIGHT: a file, commit or page that was made.")
@click.option("--keep", is_flag=True, help="With --artifact: store the content of each artifact that is a local file.")
@click.option("--no-report", is_flag=True, help="With POSTFLIGHT: make no report.")
def assess(app: App, /, arguments: tuple[str, ...], **more: Any) -> None:
    """Assess your knowledge, ability and uncertainty at one phase of the work.

    PHASE is PREFLIGHT, THINK, PLAN, INVESTIGATE, CHECK, ACT or POSTFLIGHT. Vectors, each from 0 to 1: engagement, know,
    do, context, clarity, coherence, signal, density, state, change, completion, impact, uncertainty. Assess those that
    you can. A missing vector counts as not assessed, never as 0.

    After POSTFLIGHT the report is made from the options and the session's records. If that fails, the assessment
    stays, and `deed session sweep` tries again.
    """
    name, word = session_and(app, arguments, "PHASE")
    phases: tuple[Phase, ...] = get_args(Phase)
    phase = next((phase for phase in phases if phase == word.upper()), None)
    if phase is None:
        raise Refused("USAGE", f"{word!r} is not a phase: {', '.join(phases)}")
    vectors = read_vectors(parse_vectors(more["vector_options"], more["document"]))
    check_assessment(phase, vectors, more)
    given = values_of(OF_EVENT, {argument.name: more[argument.name] for argument in OF_EVENT})
    data = AssessmentRecorded(phase=phase, vectors=vectors, **given)
    inputs: ReportInputs | None = None
    if phase == "POSTFLIGHT" and not more["no_report"]:
        more["artifacts"] = with_contents(app, more["artifacts"]) if more["keep"] else more["artifacts"]
        inputs = inputs_from(more)  # read before anything is signed, because a file may be missing
    name, accepted = append(app, name, data)
    # If we crash here, the assessment is stored, and `deed session sweep` finds a POSTFLIGHT without its report.
    answer: dict[str, Any] = {"id": name, "phase": phase, "accepted": asdict(accepted[0])}
    if phase == "POSTFLIGHT":
        answer["report"] = {"status": "not_asked"} if inputs is None else report_on(app, name, inputs)
    app.show("assessment", answer, lambda: _print_assessment(answer, vectors))


def check_assessment(phase: Phase, vectors: Vectors, more: dict[str, Any]) -> None:
    """Refuse an assessment without values, and options that only a report can hold."""
    if vectors == Vectors() and more["overall_confidence"] is None and not more["reasoning"]:
        raise Refused("USAGE", "there are no vectors: give --vector NAME=VALUE or --vectors JSON")
    if phase != "POSTFLIGHT":
        for option in REPORT_OPTIONS:
            if more[option]:
                name = option.removesuffix("s").replace("_", "-")
                raise Refused("USAGE", f"--{name} needs POSTFLIGHT; {phase} makes no report")


def report_on(app: App, name: str, inputs: ReportInputs) -> dict[str, Any]:
    """Return the report, or how making it failed: the assessment is recorded, so a failure is part of the answer."""
    try:
        report = session_report.make_report(app, name, inputs)
    except Exception as failure:
        if wants_traceback():
            raise
        # Any failure: the assessment is in the ledger, and its author must learn that together with the failure.
        message = f"{type(failure).__name__}: {failure} (please report it)"
        error = failure if isinstance(failure, DeedbookError) else DeedbookError("UNEXPECTED", message)
        command = session_report.remedy(name, error.code)
        warn([f"no report was made: {error.code}: {error.message}"])
        echo(f"  the assessment is recorded; to make the report again: {command}", err=True)
        return {"status": "failed", "error": error.to_dict(), "command": command}
    warn(report["warnings"])
    return report


def _print_assessment(answer: dict[str, Any], vectors: Vectors) -> None:
    assessed = sum(getattr(vectors, name) is not None for name in vectors.__struct_fields__)
    at = answer["accepted"]["index"]
    echo(f"{answer['id']}: {answer['phase']} recorded, {assessed} of 13 vectors (entry {at})")
    report = answer.get("report", {})
    if report.get("status") == "success":
        print_made(report)


def parse_vectors(options: tuple[str, ...], document: str | None = None) -> dict[str, Any]:
    """Return the vectors of ``NAME=VALUE`` options and of a JSON object, with the names as written."""
    vectors: dict[str, Any] = {} if document is None else parse_json(document, "--vectors")
    for option in options:
        name, _, value = option.partition("=")
        try:
            number = float(value)
        except ValueError as error:
            text = f"--vector is NAME=VALUE with a number, not {option!r}"
            raise Refused("INVALID_FIELD", text, field=name) from error
        if name in vectors:
            raise Refused("INVALID_FIELD", f"the vector {name} is given twice", field=name)
        vectors[name] = number
    return vectors
