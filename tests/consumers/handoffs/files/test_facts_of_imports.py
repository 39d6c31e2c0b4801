"""Lists and answers for those who act agree on every handoff that real files describe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from agreement import assert_agreement

from deedbook.consumers.handoffs.agent_names import AgentNames
from deedbook.consumers.handoffs.files.imports import changed_records, read_records
from deedbook.consumers.importers.records import import_records
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events.handoff import HandoffApproved
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from syncing import SyncedFolder

CASES: Final = Path(os.environ.get("DEEDBOOK_CASES", Path(__file__).parents[5] / "shared" / "cases")) / "handoffs"
compared_min: Final = 200


@pytest.mark.skipif(not CASES.is_dir(), reason="needs real files of handoffs (DEEDBOOK_CASES)")
def test_facts_from_states_are_those_of_lists_for_real_files(folder: SyncedFolder) -> None:
    folder.ledger.register("iris")
    author = folder.hand("iris").author
    compared, confirmed = 0, 0
    with LocalClient(folder.ledger.settings(), log=folder.ledger.log, views=Reader) as client:
        for path in sorted(CASES.glob("*.md")):  # one after the other, as they came
            (folder.path / path.name).write_bytes(path.read_bytes())
            found = read_records(folder.path, author.put_blob, agents=AgentNames(reviewer="rita"))
            plan = changed_records(found.records, folder.answer)
            import_records(author, plan.records, unchanged=plan.unchanged)
            names = assert_agreement(client)
            compared += len(names)
            for name in names[::3]:
                state = folder.ledger.handoff(name)
                if state.claimed_status is not None:
                    folder.ledger.emit("rita", f"handoff/{name}", HandoffApproved(version=state.version))
                    confirmed += 1
        compared += len(assert_agreement(client))
        assert_agreement(client, client.head().size // 2)
    assert compared >= compared_min
    assert confirmed
