"""Folds are pure functions of their events: equal in every process, and without imports that do I/O."""

from __future__ import annotations

import ast
import json
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from folding import digests_of

from deedbook import projections
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.authority import RoleGranted
from deedbook.ledger.families import find, sources
from deedbook.ledger.format.forms import OWN
from deedbook.projections.answers.query import Arguments
from deedbook.projections.views.projection import NoState, row_of
from deedbook.projections.views.registry import QUERIES, VIEWS

CORE_VIEWS = [view for view in VIEWS if find(view.name) is None]
FORBIDDEN = {"asyncio", "http", "lmdb", "nats", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "subprocess"}
FORBIDDEN |= {"threading", "time", "urllib", "uuid"}
FOLDER = Path(projections.__file__).parent
PURE = ["graph.py", "facts.py", "record.py", "waits.py", "why.py", "fold.py"]
PURE += ["calibration.py", "compressed.py", "markdown.py", "messages.py", "report.py", "tree.py"]
PURE += ["marks.py", "words.py"]

_DIGESTS = """
import json, sys
from pathlib import Path
from deedbook.ledger.home.config import Config, Settings
from deedbook.ledger.client.local import LocalClient
from deedbook.projections.stores.sqlite import SqliteStore
from deedbook.projections.views.registry import VIEWS
from deedbook.projections.views.runner import Runner
settings = Settings(home=Path(sys.argv[1]), config=Config(map_size_bytes=int(sys.argv[3])))
with LocalClient(settings) as client:
    store = SqliteStore(Path(sys.argv[2]), ledger=client.ledger)
    runner = Runner(client, store, VIEWS)
    runner.catch_up()
    with store.reading() as reading:
        print(json.dumps({view.name: reading.table_digests(view) for view in VIEWS}))
    store.close()
"""


def test_folds_in_fresh_processes_give_equal_digests(ledger, reader, tmp_path):
    ledger.fill()
    ledger.register("many", "agent", "reviewer", "human", "admin", "service")
    for role in ("reviewer", "admin", "human", "service"):
        ledger.emit("root", "agent/bob", RoleGranted(agent="bob", role=role))
    reader.catch_up()
    here = digests_of(reader.store)
    for seed in ("0", "1", "4242"):
        found = subprocess.run(
            [
                sys.executable,
                "-c",
                _DIGESTS,
                str(ledger.home.path),
                str(tmp_path / f"{seed}.db"),
                str(ledger.settings().config.map_size_bytes),
            ],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        )
        assert json.loads(found.stdout) == here


def pure_files():
    """Return the files that contain folds and the functions they call."""
    return sorted(path for path in FOLDER.glob("*/*.py") if path.name in PURE)


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_fold_modules_import_nothing_that_reads_the_world(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported.isdisjoint(FORBIDDEN)


def test_every_package_has_a_fold_and_is_in_the_list_of_views():
    packages = {path.parent.name for path in FOLDER.glob("*/__init__.py")} - {"answers", "stores", "views"}
    assert packages == {path.parent.name for path in FOLDER.glob("*/fold.py")} == {view.name for view in CORE_VIEWS}


def test_a_query_bears_the_name_of_its_package_or_of_a_module_that_asks_all_views_and_has_no_tables():
    families = {query.partition(".")[0] for query in QUERIES} - {"resolve", *sources()}
    packages = {view.name for view in CORE_VIEWS}
    assert packages <= families
    assert all(any(FOLDER.glob(f"*/{family}.py")) for family in families - packages)


def test_no_two_views_own_a_table_of_the_same_name():
    names = [table.name for view in VIEWS for table in view.tables]
    assert len(names) == len(set(names))


def test_no_two_tables_have_rows_of_one_type():
    rows = [table.row for view in VIEWS for table in view.tables]
    assert len(rows) == len(set(rows))


def test_a_column_that_no_source_or_more_than_one_can_give_is_named():
    row = VIEWS[0].tables[0].row(*range(16))
    with pytest.raises(TypeError, match="event_index of EventRow is in 0 of its sources"):
        row_of(type(row), NoState())
    with pytest.raises(TypeError, match="id of EventRow is in 2 of its sources"):
        row_of(type(row), row, row, event_index=1)


def test_every_query_is_a_function_of_a_moment_and_its_arguments():
    for name in QUERIES:
        assert issubclass(QUERIES[name].arguments, Arguments)


def test_views_handle_kinds_that_exist():
    for view in VIEWS:
        assert view.handles is None or view.handles <= KINDS.keys() | {OWN}


def test_every_kind_is_folded_by_more_than_the_catalog():
    folded = {kind for view in VIEWS if view.handles is not None for kind in view.handles}
    # No view folds the statements of root and nodes about the ledger itself, or the intent of an upload, which is
    # stored beside the log.
    of_ledger = {"ledger.history_reset", "ledger.clock_set", "entry.redaction_proposed"}
    assert folded == (KINDS.keys() - {*of_ledger, "blob.stored"}) | {OWN}


def test_states_survive_their_packed_form(ledger, reader):
    ledger.fill()
    reader.catch_up()
    for view in (view for view in VIEWS if view.state is not NoState):
        with reader.store.reading() as reading:
            packed = [row["data"] for row in reading.rows(f"SELECT data FROM deedbook_states_{view.name}")]
        decoder = msgspec.msgpack.Decoder(view.state)
        assert packed
        for data in packed:
            assert msgspec.msgpack.encode(decoder.decode(data)) == data


def test_every_module_can_be_imported():
    names = [module.name for module in pkgutil.walk_packages([str(FOLDER)], "deedbook.projections.")]
    assert "deedbook.projections.answers.reader" in names
    for name in names:
        import_module(name)


def test_a_table_whose_key_does_not_begin_with_its_owner_is_refused():
    table = VIEWS[0].tables[0]
    with pytest.raises(ValueError, match="begins with its owner"):
        msgspec.structs.replace(table, owner="kind")
