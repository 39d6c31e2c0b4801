"""A search replayed from an exported bundle, without its ledger, has the same tree at every index."""

from __future__ import annotations

import tot_story as told
from folding import rows_of
from tot_story import STORY, TASK

from deedbook.consumers.thoughts.views.fold import VIEW as THOUGHT_VIEW
from deedbook.ledger.bundle.archive import Bundle
from deedbook.ledger.bundle.export import export_bundle
from deedbook.ledger.bundle.layout import tile_name, tiles_of
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import entry_leaf


def replayed(path):
    """Return the events of a bundle of a whole log, read from its bytes alone."""
    events = []
    with Bundle(path) as bundle:
        for number, width in tiles_of(bundle.manifest.size, 0):
            hashes = bundle.read(tile_name(0, number, width))
            for at, entry in enumerate(bundle.read_tile(number, width)):
                assert entry_leaf(entry) == hashes[32 * at : 32 * at + 32]
                events.append(read_event(len(events), entry))
    return events


def test_search_replayed_from_a_bundle_gives_the_same_tree_at_every_index(ledger, reader, tmp_path):
    told.register(ledger)
    start = ledger.size
    told.play(ledger)
    export_bundle(ledger.reads, tmp_path / "bundle.tar")
    events = [event for event in replayed(tmp_path / "bundle.tar") if event.stream == f"tot/{TASK}"]
    assert len(events) == len(STORY)
    for count in range(1, len(events) + 1):
        rows = rows_of(THOUGHT_VIEW, TASK, events[:count])
        tree, shown = (reader.answer(of, {"id": TASK}, start + count - 1) for of in ("tot.tree", "tot.show"))
        assert shown["tree_digest"] == rows["tot_tasks"][0]["tree_digest"]
        assert [(id_, one["status"], one["content"]) for id_, one in tree["nodes"].items()] == [
            (one["id"], one["status"], one["content"]) for one in rows.get("tot_nodes", [])
        ]
