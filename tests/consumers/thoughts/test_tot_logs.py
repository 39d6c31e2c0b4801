"""The log folder of a task, made from its events alone: every name and field is right."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import tot_story
from tot_story import BEST, N11, N12, N21, N22, ROOT, STORY, TASK, Said

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.logs import log_files
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event

NAMES = [
    "00-task-info.json",
    "01-orchestrator.log",
    "02-decomposer.log",
    "03-explorer.log",
    "04-generator-round1.log",
    "05-evaluator-round1.log",
    "06-generator-round2.log",
    "07-evaluator-round2.log",
    "08-generator-round3.log",
    "09-evaluator-round3.log",
    "10-generator-round4.log",
    "11-evaluator-round4.log",
    "12-synthesizer.log",
    "99-merged-timeline.log",
]
STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def said_again(said: list[Said]) -> list[Event]:
    """Return events as a ledger gives them: decoded from their canonical bytes."""
    return [
        msgspec.structs.replace(
            event,
            data=msgspec.json.decode(msgspec.json.encode(event.data, order="sorted"), type=type(event.data)),
        )
        for event in tot_story.events(said)
    ]


def lines(content: bytes) -> list[dict[str, Any]]:
    """Return the entries of a JSON Lines file."""
    return [json.loads(line) for line in content.decode().splitlines()]


def logged(role: kinds.Role, msg: str, *causes: int, **fields: Any) -> Said:
    """Return a line that an agent logs."""
    entry = kinds.LogEntry(level="warning", msg=msg, data=fields.pop("data", {}))
    return Said(role, kinds.TotLogWritten(sender=role, task_id=TASK, entries=[entry], **fields), causes)


def many_rounds(count: int) -> list[Event]:
    """Return the events of a task whose generator and evaluator were called ``count`` times."""
    said = tot_story.opening()
    for _ in range(count):
        said += tot_story.level(len(said), ROOT, [N11, N12])
    return tot_story.events(said)


def test_folder_has_its_files_by_number_and_agent() -> None:
    assert list(log_files(tot_story.events())) == NAMES


def test_task_info_has_its_fields_in_order() -> None:
    info = json.loads(log_files(tot_story.events())["00-task-info.json"])
    assert info == {
        "task_id": TASK,
        "problem": "4 9 10 13",
        "task_type": "math_reasoning",
        "start_time": "2026-02-12T10:00:00.000Z",
        "end_time": "2026-02-12T10:00:33.000Z",
        "duration_ms": 33000,
        "search_config": {"strategy": "DFS", "max_depth": 3, "branching_factor": 2, "pruning_threshold": 5.0},
        "final_stats": {"total_nodes": 7, "llm_calls": 8, "best_score": 9.5},
    }
    order = ["task_id", "problem", "task_type", "start_time", "end_time", "duration_ms", "search_config", "final_stats"]
    assert list(info) == order


def test_every_line_has_its_fields_and_no_other() -> None:
    levels = set()
    for name, content in log_files(tot_story.events()).items():
        if not name.endswith(".log") or name.startswith("99-"):
            continue
        assert content.endswith(b"\n")
        entries = lines(content)
        for entry in entries:
            assert list(entry) in (["ts", "seq", "level", "msg"], ["ts", "seq", "level", "msg", "data"])
            assert STAMP.fullmatch(entry["ts"])
            assert entry["msg"]
            levels.add(entry["level"])
        assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert levels == {"info", "progress", "warning", "error"}


def test_line_of_the_generator_counts_its_candidates() -> None:
    (entry,) = lines(log_files(tot_story.events())["04-generator-round1.log"])
    assert (entry["level"], entry["msg"]) == ("progress", "✓ [Generator] 已生成 2 个候选")
    assert entry["data"] == {"candidates": [N11.content, N12.content]}


def test_time_is_the_ledgers_to_the_millisecond() -> None:
    told = tot_story.events()
    told[0] = msgspec.structs.replace(told[0], accepted_ms=told[0].accepted_ms + 7, at="1999-01-01T00:00:00Z")
    first = lines(log_files(told)["01-orchestrator.log"])[0]
    assert first["ts"] == "2026-02-12T10:00:00.007Z"


def test_timeline_is_text_in_its_one_form() -> None:
    text = log_files(tot_story.events())["99-merged-timeline.log"].decode()
    assert text.startswith(
        "# ToT 执行时间线\n\n"
        f"任务 ID: {TASK}\n"
        "问题: 4 9 10 13\n\n"
        "任务开始: 2026-02-12T10:00:00.000Z\n\n"
        "[10:00:00.000] [01-orchestrator] 📋 问题类型: math_reasoning\n"
    )
    assert '[10:00:02.000] [02-decomposer] ✅ 分解完成\n         数据: {"depth_estimate":3,' in text
    assert text.endswith(
        "\n\n任务结束: 2026-02-12T10:00:33.000Z\n总耗时: 33秒\n\n---\n\n统计信息:\n"
        "- 总日志条目: 34 条\n- Agent 调用次数: 11\n- LLM 调用次数: 8 次\n"
    )


def test_english_task_is_logged_in_english_alone_and_in_the_same_files() -> None:
    files = log_files(
        tot_story.events([tot_story.STORY[0]._replace(data=tot_story.started(language="en")), *STORY[1:]])
    )
    assert list(files) == NAMES
    text = files["99-merged-timeline.log"].decode()
    assert text.startswith("# ToT timeline\n\nTask: ")
    assert "✂️ [Explorer] " in text
    assert text.endswith("- Log entries: 34\n- Agent calls: 11\n- LLM calls: 8\n")
    assert not re.search("节点|候选|分解|任务", b"".join(files.values()).decode())


def test_timeline_has_every_line_once_in_the_order_of_the_log() -> None:
    files = log_files(tot_story.events())
    entries = [
        (entry["ts"], entry["seq"], name.removesuffix(".log"), entry["msg"])
        for name, content in files.items()
        if name.endswith(".log") and not name.startswith("99-")
        for entry in lines(content)
    ]
    merged = [f"[{ts[11:-1]}] [{name}] {msg}" for ts, _, name, msg in sorted(entries)]
    told = [line for line in files["99-merged-timeline.log"].decode().splitlines() if line.startswith("[")]
    assert told == merged


def test_timeline_keeps_the_order_of_the_log_within_one_millisecond() -> None:
    told = [msgspec.structs.replace(event, accepted_ms=tot_story.GIVEN_MS) for event in tot_story.events()]
    text = log_files(told)["99-merged-timeline.log"].decode()
    asked, answered = text.index("[03-explorer] ⏳ [Explorer - 第1层]"), text.index("[04-generator-round1]")
    assert asked < answered < text.index("[03-explorer] ✓ [Explorer - 第1层]")


def test_same_events_give_the_same_bytes_from_a_ledger_or_by_hand() -> None:
    assert log_files(tot_story.events()) == log_files(said_again(STORY)) == log_files(iter(tot_story.events()))


def test_what_an_agent_wrote_itself_stands_instead_of_the_derived_line() -> None:
    asked = len(tot_story.opening())
    said = [*STORY[: asked + 2], logged("generator", "我生成了两个", asked + 1, data={"k": 2}, round=1)]
    files = log_files(tot_story.events(said))
    (entry,) = lines(files["04-generator-round1.log"])
    assert (entry["level"], entry["msg"], entry["data"]) == ("warning", "我生成了两个", {"k": 2})


def test_line_about_another_agents_message_hides_nothing() -> None:
    asked = len(tot_story.opening())
    said = [*STORY[: asked + 2], logged("explorer", "收到", asked + 1)]
    files = log_files(tot_story.events(said))
    assert len(lines(files["04-generator-round1.log"])) == 1
    assert [entry["msg"] for entry in lines(files["03-explorer.log"])][-1] == "收到"


def test_evaluation_is_of_the_round_that_gave_its_nodes() -> None:
    said = tot_story.opening()
    at = len(said)
    first = tot_story.level(at, ROOT, [N11, N12])
    nothing = [
        Said("explorer", tot_story.generate(N11), (at + 2,)),
        Said("generator", tot_story.generated([]), (at + 3,)),
    ]
    evaluated = [first[3], Said("evaluator", first[4].data, (at + 5,))]
    names = list(log_files(tot_story.events([*said, *first[:3], *nothing, *evaluated])))
    assert names[4:7] == ["04-generator-round1.log", "05-evaluator-round1.log", "06-generator-round2.log"]


def test_line_that_names_nothing_is_of_its_agents_last_round() -> None:
    said = tot_story.opening()
    for parent, nodes in ((ROOT, [N11, N12]), (N11, [N21, N22])):
        said += tot_story.level(len(said), parent, nodes)
    files = log_files(tot_story.events([*said, logged("generator", "休息")]))
    assert [entry["msg"] for entry in lines(files["06-generator-round2.log"])][-1] == "休息"
    assert len(lines(files["04-generator-round1.log"])) == 1


def test_agent_that_never_ran_has_no_file() -> None:
    names = list(log_files(tot_story.events(STORY[:2])))
    assert names == ["00-task-info.json", "01-orchestrator.log", "99-merged-timeline.log"]


def test_explorer_is_the_third_file_even_without_a_decomposer() -> None:
    said = [*STORY[:2], logged("explorer", "等待")]
    assert list(log_files(tot_story.events(said)))[1:3] == ["01-orchestrator.log", "03-explorer.log"]


def test_unfinished_search_has_no_end_and_counts_what_there_is() -> None:
    files = log_files(tot_story.events(STORY[:12]))
    info = json.loads(files["00-task-info.json"])
    assert (info["end_time"], info["duration_ms"]) == (None, None)
    assert info["final_stats"] == {"total_nodes": 3, "llm_calls": 2, "best_score": 7.5}
    assert "任务结束: 尚未结束\n总耗时: 尚未结束\n" in files["99-merged-timeline.log"].decode()


def test_failed_search_is_logged_as_an_error_and_has_ended() -> None:
    nothing = kinds.Failure(code="SEARCH_EXHAUSTED", message="No path is left.", recoverable=False)
    complete = tot_story.complete(best_path=[])
    said = [*STORY[:-3], Said("explorer", msgspec.structs.replace(complete, error=nothing), (3,))]
    files = log_files(tot_story.events(said))
    last = lines(files["03-explorer.log"])[-1]
    assert (last["level"], last["data"]) == ("error", {"code": "SEARCH_EXHAUSTED", "recoverable": False})
    assert json.loads(files["00-task-info.json"])["end_time"] is not None
    assert "12-synthesizer.log" not in files


def test_task_that_cannot_begin_ends_with_the_orchestrators_error() -> None:
    failure = kinds.Failure(code="INVALID_FORMAT", message="Four numbers are needed.", recoverable=False)
    answer = msgspec.structs.replace(STORY[2].data, payload=None, error=failure)
    said = [*STORY[:2], Said("decomposer", answer, (1,))]
    assert json.loads(log_files(tot_story.events(said))["00-task-info.json"])["end_time"] is None
    said.append(Said("orchestrator", kinds.TotError(sender="orchestrator", task_id=TASK, error=failure), (2,)))
    info = json.loads(log_files(tot_story.events(said))["00-task-info.json"])
    assert (info["end_time"], info["search_config"]) == ("2026-02-12T10:00:03.000Z", None)


@pytest.mark.parametrize(("rounds", "digits"), [(47, 2), (48, 3)])
def test_prefixes_have_three_digits_from_98_files_on(rounds: int, digits: int) -> None:
    names = list(log_files(many_rounds(rounds)))
    assert names == sorted(names)
    assert {len(name.partition("-")[0]) for name in names} == {digits}
    assert len(names) == 2 * rounds + 5
    assert names[-2:] == [
        f"{2 * rounds + 3:0{digits}}-evaluator-round{rounds}.log",
        f"{'9' * digits}-merged-timeline.log",
    ]


def test_prefixes_have_three_digits_at_98_files() -> None:
    said = tot_story.opening()
    for _ in range(47):
        said += tot_story.level(len(said), ROOT, [N11, N12])
    names = list(log_files(tot_story.events([*said, logged("synthesizer", "完成")])))
    assert names[:2] == ["000-task-info.json", "001-orchestrator.log"]
    assert names[-2:] == ["098-synthesizer.log", "999-merged-timeline.log"]


def test_thought_cannot_forge_a_line_of_the_timeline() -> None:
    forged = "x\n[10:00:00.000] [01-orchestrator] forged\x1b[2J"
    opened = tot_story.started(problem=forged)
    said = [Said("orchestrator", opened), logged("orchestrator", forged, data={"a": forged})]
    files = log_files(tot_story.events(said))
    text = files["99-merged-timeline.log"].decode()
    assert not any(line.startswith("[10:00:00.000] [01-orchestrator] forged") for line in text.splitlines())
    assert "\x1b" not in text
    assert lines(files["01-orchestrator.log"])[-1]["msg"] == forged


def test_what_is_no_task_has_no_log() -> None:
    with pytest.raises(Refused, match=r"the first one must be tot\.started"):
        log_files([])
    with pytest.raises(Refused, match=r"the first one must be tot\.started"):
        log_files(tot_story.events()[1:])


def test_duration_is_told_in_hours_minutes_and_seconds() -> None:
    told = tot_story.events()
    told[-1] = msgspec.structs.replace(told[-1], accepted_ms=tot_story.GIVEN_MS + 86_666)
    assert "总耗时: 1分26秒" in log_files(told)["99-merged-timeline.log"].decode()
    told[-1] = msgspec.structs.replace(told[-1], accepted_ms=tot_story.GIVEN_MS + 3_600_000)
    assert "总耗时: 1小时0分0秒" in log_files(told)["99-merged-timeline.log"].decode()


def test_best_path_is_named_when_the_search_ends() -> None:
    last = lines(log_files(tot_story.events())["03-explorer.log"])[-1]
    assert last["data"] == {"best_path": BEST}
