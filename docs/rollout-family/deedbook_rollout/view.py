"""The view: a row for each rollout; and the query that lists them."""

from msgspec.structs import replace

from deedbook.projections.answers.answer import Index, Marked, Page, Untrusted
from deedbook.projections.answers.query import ListArguments, Listing, QueryContext, Where, list_of
from deedbook.projections.views.projection import Projection, Row, Table, kinds_of, names_of
from deedbook_rollout import FAMILY


class RolloutRow(Row, frozen=True):
    """A rollout: ``running``, ``done`` or ``failed``."""

    id: str
    service: str = ""
    author: str = ""
    started_index: int = -1
    status: str = "running"


def fold(state, event):
    """Return the rollout after one more of its events. The gate has checked their order."""
    if event.kind == "rollout.finished":
        return replace(state, status="done" if event.data.ok else "failed")
    return replace(state, service=event.data.service, author=event.author, started_index=event.index)


VIEW = Projection(
    name="rollout",
    version=FAMILY.views["rollout"],
    handles=kinds_of("rollout"),
    tables=(Table("rollout_runs", RolloutRow, primary_key=("id",), owner="id", indexes=(("started_index",),)),),
    state=RolloutRow,
    keys=names_of("rollout"),
    fold=fold,
    rows=lambda run: (run,),
)


class Rollout(Marked, frozen=True, kw_only=True):
    """A rollout: ``running``, ``done`` or ``failed``."""

    id: str
    service: Untrusted
    author: str
    started_index: Index
    status: str


def list_rollouts(context: QueryContext, args: ListArguments) -> Page[Rollout]:
    """Return rollouts, newest first."""
    listing = Listing("SELECT * FROM rollout_runs", "rollout_runs", "started_index")
    return list_of(context, listing, Where(), args, lambda row: Rollout(**row))
