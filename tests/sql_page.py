"""``proto/SQL.md``, written out of the tables of the views: what people find there with tools of their own."""

from __future__ import annotations

import re
from typing import Any, Final

from deedbook.projections.stores.store import columns_sql
from deedbook.projections.views.projection import Projection, Table
from deedbook.projections.views.registry import VIEWS

_HEAD: Final = """# The views as SQL tables

Generated: `make contract`. For Grafana, psql, DuckDB, a notebook. Everything here follows from the log and can be made
again from it (`deed project --rebuild`), so read, and change nothing.

- **SQLite**: `.deedbook/views.db`. A reader that only looks: `sqlite3 "file:.deedbook/views.db?mode=ro"`.
- **PostgreSQL** (16 or newer): with `[views] store = "postgresql://views@db.example/deedbook"` in `config.toml` (`deed
  trust`), or `deed project --follow --store URL`, in a schema of the ledger's own. `SELECT * FROM deedbook` names
  its ledger; `\\\\dn deedbook_*` lists the schemas.

Tables and columns listed here are stable within a view's version (`deedbook_views`): a column may be added, and a
change of meaning raises the version. Names that begin with `deedbook_` are books: of them `deedbook_views` (how far
each view is; `is_live` is 0 while it is built) is for reading. In PostgreSQL `INTEGER` is `bigint`, `REAL` is `double
precision`, `TEXT` is `text COLLATE "C"`.

A role that reads, made by whoever owns the schema (SCHEMA is its name):

```sql
CREATE ROLE grafana LOGIN;
ALTER ROLE grafana SET default_transaction_read_only = on;
ALTER ROLE grafana SET statement_timeout = '30s';
ALTER ROLE grafana SET search_path = SCHEMA;
GRANT USAGE ON SCHEMA SCHEMA TO grafana;
GRANT SELECT ON ALL TABLES IN SCHEMA SCHEMA TO grafana;
ALTER DEFAULT PRIVILEGES IN SCHEMA SCHEMA GRANT SELECT ON TABLES TO grafana;
```

How many handoffs wait in which status, and how long ago the last event came:

```sql
SELECT status, count(*) AS handoffs FROM handoffs GROUP BY status ORDER BY status;
SELECT to_timestamp(max(accepted_ms) / 1000.0) AS last_event FROM events;
```

A question of several statements is of one moment in `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`. U+0000, which
PostgreSQL's text cannot hold, stands there as U+E000 and `0`, and U+E000 as U+E000 and `e`.

What columns mean by their names: `…_index` is the number of an entry in the log, `…_ms` Unix milliseconds by the
ledger's clock, `is_…` and other truths are 1 or 0, `…_by` and `author` are agents, `…_ref` and `ref` are digests
(`sha256:`, `blake3:`), `position` counts from 0; other columns are the fields of the same name in the events
(`schemas/`). NULL: it is not known, or not yet so.
"""
_MEANINGS: Final = {
    "event_index": "the entry in the log: `events.event_index`",
    "accepted_ms": "when the ledger took it in",
    "happened_ms": "when it happened: of an imported record as it claims, where that can be true",
    "session_id": "`sessions.id`",
    "handoff_id": "`handoffs.id`",
    "reasoning_id": "`reasonings.id`",
    "task_id": "`tot_tasks.id`",
    "event_id": "`events.id`",
    "stream": "the stream: FAMILY/ID",
    "stream_version": "which event of its stream it is, from 1",
    "kind": "the kind of the event (`schemas/`)",
    "key": "the public key that signed, or that it is, in hex",
    "corr": "what its author ties events together by",
    "body_ref": "SHA-256 of the body as it was signed",
    "ai_id": "the agent's own name for itself",
    "imported": "JSON: where an imported record comes from; NULL: it was recorded here",
    "importer": "who brought it in; NULL: it was written here",
    "updated_index": "its last event",
    "started_index": "its first event",
    "ended_index": "the event that ended it",
    "created_index": "its first event",
    "is_announced": "whether it was announced as ready",
    "depends_on": "`handoffs.id` of what it waits for",
    "version": "how often it changed, or the digest of what it says now",
    "via": "how it is named",
    "size": "bytes",
    "data": "JSON: the event's data",
    "delta": "JSON: what changed since `base`",
    "words": "indexed words; SQLite keeps no text of them",
    "text": "as people read it",
}
_ENDINGS: Final = (("_index", "an entry in the log"), ("_ms", "Unix milliseconds"), ("_ref", "a digest"))


def sql_page() -> str:
    """Return the page."""
    return _HEAD.replace("\\\\", "\\") + "".join(_view(view) for view in VIEWS)


def _view(view: Projection[Any]) -> str:
    return f"\n## {view.name}, version {view.version}\n" + "".join(map(_table, view.tables))


def _table(table: Table) -> str:
    about = re.sub(r"\s+", " ", table.row.__doc__ or "").replace("``", "`").strip()
    lines = [f"\n### `{table.name}`\n", *([about] if about else []), f"Primary key: {_listed(table.primary_key)}."]
    if table.indexes:
        lines[-1] += f" Indexes: {'; '.join(map(_listed, table.indexes))}."
    rows = [
        f"| `{name.strip(chr(34))}` | {kind}{null} | {_meaning(name.strip(chr(34)))} |"
        for name, kind, null in columns_sql(table.row)
    ]
    return "\n".join([lines[0], *lines[1:], "", "| column | type | |", "|---|---|---|", *rows, ""])


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{column}`" for column in columns)


def _meaning(column: str) -> str:
    return _MEANINGS.get(column) or next((words for end, words in _ENDINGS if column.endswith(end)), "")
