"""`deed mcp --server` gives the same tools on a ledger behind `deed serve`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from building import trusted
from mcp_clients import calling, over_stdio
from serving import CAROL, ServeProcess, make_home

from deedbook.ledger.home.membership import Membership, write_membership

if TYPE_CHECKING:
    from pathlib import Path


def test_tools_work_on_a_ledger_behind_a_server(home: Path) -> None:
    settings = make_home(home)
    served = ServeProcess(settings)

    async def work() -> None:
        async with over_stdio(home, "--as", CAROL, "--server", served.url) as call:
            found = {"type": "finding", "finding": "The pool leaks"}
            done = await asyncio.gather(
                *(call("record_reasoning", session_id=f"s{number}", task="t", entries=[found]) for number in range(4))
            )
            assert [one.data["session_id"] for one in done] == ["s0", "s1", "s2", "s3"]
            made = await call("generate_handoff_report", session_id="s0", task_summary="t", key_findings=["a"])
            assert made.data["status"] == "success"
            assert (await call("resume_previous_session", ai_id=CAROL)).data["total_sessions"] == 1
            assert (await call("record_reasoning", session_id="s0", task="t", entries=[])).code == "INVALID_FIELD"
            assert (await call("fetch_reasoning", ref="nothing")).code == "NOT_FOUND"

    try:
        asyncio.run(work())
    finally:
        served.stop()


def test_server_says_that_its_folder_has_another_client_file_than_it_began_with(home: Path) -> None:
    settings = make_home(home)
    member = Membership("0" * 32, "0" * 64, [], CAROL)
    write_membership(settings.home, member)
    trusted(settings.home)

    async def work() -> None:
        async with calling(settings.home, None) as call:
            assert (await call("resume_previous_session", ai_id=CAROL)).code == ""
            write_membership(settings.home, msgspec.structs.replace(member, servers=["nats://127.0.0.1:4222"]))
            refused = await call("resume_previous_session", ai_id=CAROL)
            assert refused.code == "USAGE"
            assert "restart" in refused.error["message"]
            write_membership(settings.home, member)
            assert (await call("resume_previous_session", ai_id=CAROL)).code == ""

    asyncio.run(work())
