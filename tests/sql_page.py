"""``proto/SQL.md``, generated from the tables of the views, for people who query them with their own tools."""

from __future__ import annotations

import re
from typing import Any, Final

from deedbook.projections.stores.store import columns_sql
from deedbook.projections.views.projection import Projection, Table
from deedbook.projections.views.registry import VIEWS

_HEAD: Final = """# The views as SQL tables

Generated: `make contract`. For Grafana, psql, DuckDB, a notebook. All data here is derived from the log and can be
rebuilt from it (`deed project --rebuild`). Read the tables, and change nothing.

- **SQLite**: `.deedbook/views.db`. Open it read-only: `sqlite3 "file:.deedbook/views.db?mode=ro"`.
- **PostgreSQL** (16 or newer): with `[views] store = "postgresql://views@db.example/deedbook"` in `config.toml` (`deed
  trust`), or with `deed project --follow --store URL`. Each ledger has its own schema. `SELECT * FROM deedbook` names
  its ledger; `\\\\dn deedbook_*` lists the schemas.

After a redaction, Deedbook deletes `views.db`, or drops the tables, and folds the log again. PostgreSQL keeps the
erased texts in its write-ahead log until it recycles the segments, in archives of that log, in standbys that lag, in
its own log if it logs statements, and in your backups. If the role of Deedbook does not own the database, run `VACUUM
(FULL) pg_catalog.pg_statistic` as its owner: statistics of the planner contain frequent values. Views and copies that
you made of these tables are yours to clean.

Tables and columns listed here are stable within a view's version (`deedbook_views`): a column may be added, and a
change of meaning raises the version. Tables whose names begin with `deedbook_` are bookkeeping. Only `deedbook_views`
is for reading: it has the position of each view, and `is_live` is 0 while a view is built. In PostgreSQL `INTEGER` is
`bigint`, `REAL` is `double precision`, `TEXT` is `text COLLATE "C"`.

To create a read-only role, run this as the owner of the schema (SCHEMA is its name):

```sql
CREATE ROLE grafana LOGIN;
ALTER ROLE grafana SET default_transaction_read_only = on;
ALTER ROLE grafana SET statement_timeout = '30s';
ALTER ROLE grafana SET search_path = SCHEMA;
GRANT USAGE ON SCHEMA SCHEMA TO grafana;
GRANT SELECT ON ALL TABLES IN SCHEMA SCHEMA TO grafana;
ALTER DEFAULT PRIVILEGES IN SCHEMA SCHEMA GRANT SELECT ON TABLES TO grafana;
```

Count handoffs by status, and get the time of the last event:

```sql
SELECT status, count(*) AS handoffs FROM handoffs GROUP BY status ORDER BY status;
SELECT to_timestamp(max(accepted_ms) / 1000.0) AS last_event FROM events;
```

To run several statements on one snapshot, use `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`. PostgreSQL's text
cannot hold U+0000: there it is U+E000 and `0`, and U+E000 itself is U+E000 and `e`.

Column names have fixed meanings: `…_index` is the index of an entry in the log, `…_ms` Unix milliseconds by the
ledger's clock, `is_…` and other booleans are 1 or 0, `…_by` and `author` are agents, `…_ref` and `ref` are digests
(`sha256:`, `blake3:`), `position` counts from 0. Other columns are the fields of the same name in the events
(`schemas/`). NULL means unknown, or not yet.
"""
_MEANINGS: Final = {
    "event_index": "the entry in the log: `events.event_index`",
    "accepted_ms": "when the ledger accepted it",
    "happened_ms": "when it happened; for an imported record the claimed time, if possible",
    "session_id": "`sessions.id`",
    "handoff_id": "`handoffs.id`",
    "reasoning_id": "`reasonings.id`",
    "task_id": "`tot_tasks.id`",
    "event_id": "`events.id`",
    "stream": "the stream: FAMILY/ID",
    "stream_version": "its number in its stream, from 1",
    "kind": "the kind of the event (`schemas/`)",
    "key": "the public key (of the signature, or itself), in hex",
    "corr": "the correlation id that its author chose",
    "body_ref": "SHA-256 of the signed body",
    "ai_id": "the agent's own name for itself",
    "imported": "JSON: the origin of an imported record; NULL: recorded here",
    "importer": "the agent that imported it; NULL: written here",
    "updated_index": "its last event",
    "started_index": "its first event",
    "ended_index": "the event that ended it",
    "created_index": "its first event",
    "is_announced": "whether it was announced as ready",
    "depends_on": "`handoffs.id` of the dependency",
    "version": "the number of changes, or the digest of the present content",
    "via": "how the reference is made",
    "size": "bytes",
    "data": "JSON: the event's data",
    "delta": "JSON: the changes since `base`",
    "words": "indexed words; SQLite stores no text of them",
    "text": "as it was written",
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
