"""What a log says of a message whose agent wrote no line about it itself, in the seed's words (003, "日志规范").

Each event gives at most one line, in the file of the agent that signed it: an agent that never ran has no line here,
whoever talked about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger.events import tot as kinds

if TYPE_CHECKING:
    from ledger.events.body import Event

line_chars_max: Final = 2_000


def derived_line(event: Event, config: kinds.SearchConfig | None) -> kinds.LogEntry | None:
    """Return the line of an event of a task; None for one that is no step of it."""
    data = event.data
    if isinstance(data, kinds.TotError):
        return _failed(data.sender, data.error)
    if isinstance(data, kinds.Message):
        if data.error is not None:
            return _failed(data.sender, data.error)
        return _answer_line(data) or _request_line(data)
    return _search_line(data, config)


def _request_line(data: kinds.Message) -> kinds.LogEntry | None:
    match data:
        case kinds.DecomposeTask():
            return _line("progress", "📋 开始分解问题...", problem=data.payload.problem)
        case kinds.InitializeSearch():
            config = data.payload.search_config
            said = f"配置: {config.strategy}, 分支={config.branching_factor}, 深度={config.max_depth}"
            return _line("info", f"🔍 {said}, 阈值={config.pruning_threshold:g}")
        case kinds.GenerateThoughts():
            parent, count = data.payload.parent_node, data.payload.num_candidates
            said = f"⏳ [Explorer - 第{parent.depth + 1}层] 准备扩展 1 个节点"
            return _line("progress", said, parent_node=parent.id, num_candidates=count)
        case kinds.EvaluateThoughts():
            nodes = data.payload.candidates
            said = f"⏳ [Explorer - 第{nodes[0].depth}层] 准备评估 {len(nodes)} 个候选"
            return _line("progress", said, candidates=[node.id for node in nodes])
        case kinds.SynthesizeSolution():
            path = [node.id for node in data.payload.best_path]
            return _line("progress", f"⏳ [Explorer] 传递最佳路径: {len(path)} 个节点", best_path=path)
        case _:
            return None


def _answer_line(data: kinds.Message) -> kinds.LogEntry | None:
    match data:
        case kinds.DecompositionResult(payload=kinds.Decomposition() as shape):
            return _line(
                "info",
                "✅ 分解完成",
                thought_granularity=shape.thought_granularity,
                depth_estimate=shape.depth_estimate,
            )
        case kinds.GeneratedThoughts(payload=kinds.GeneratedPayload() as made):
            said = f"[Generator] 已生成 {len(made.candidates)} 个候选"
            if not made.candidates:
                return _line("warning", f"⚠️ {said}")
            return _line("progress", f"✓ {said}", candidates=[one.content for one in made.candidates])
        case kinds.EvaluationResults(payload=kinds.ResultsPayload() as found):
            scores = {one.node_id: one.score for one in found.evaluations}
            return _line("progress", f"✓ [Evaluator] 已评估 {len(scores)} 个候选", scores=scores)
        case kinds.FinalSolution(payload=kinds.Solution() as solution):
            if solution.verification.is_valid:
                return _line("info", f"✅ [Synthesizer] 答案: {solution.answer}", confidence=solution.confidence)
            errors = solution.verification.validation_errors
            return _line("warning", f"⚠️ [Synthesizer] 验证未通过: {solution.answer}", validation_errors=errors)
        case kinds.SearchComplete():
            stats = data.payload.stats
            said = f"✅ [Explorer] 搜索完成: {stats.total_nodes} 个节点, 回溯 {stats.total_backtracks} 次"
            return _line("info", said, best_path=[node.id for node in data.payload.best_path])
        case _:
            return None


def _search_line(data: Any, config: kinds.SearchConfig | None) -> kinds.LogEntry | None:
    match data:
        case kinds.TotStarted():
            return _line("info", f"📋 问题类型: {data.task_type}", thinker=data.thinker)
        case kinds.TotNodesAdded() if data.nodes[0].parent_id is None:
            said = "🔍 [Explorer] 初始化完成"
            return (
                _line("info", said, strategy=config.strategy, depth=config.max_depth) if config else _line("info", said)
            )
        case kinds.TotNodesAdded():
            ids = {temp_id: node.id for temp_id, node in zip(data.temp_ids, data.nodes, strict=False)}
            return _line("progress", f"✓ [Explorer - 第{data.nodes[0].depth}层] 加入 {len(data.nodes)} 个节点", ids=ids)
        case kinds.TotNodesMarked(status="pruned"):
            return _line(
                "warning", f"✂️ [Explorer] 剪枝 {len(data.node_ids)} 个节点: {data.reason}", nodes=data.node_ids
            )
        case kinds.TotNodesMarked():
            said = f"🎯 [Explorer] {len(data.node_ids)} 个终端节点: {data.reason}"
            return _line("info", said, nodes=data.node_ids)
        case kinds.TotBacktracked():
            to = data.to_node_id or "-"
            return _line("progress", f"↩️ [Explorer] 回溯: {data.node_id} → {to}: {data.reason}")
        case _:
            return None


def _failed(sender: str, error: kinds.Failure) -> kinds.LogEntry:
    said = f"❌ [{sender.capitalize()}] {error.code}: {error.message}"
    return _line("error", said, code=error.code, recoverable=error.recoverable)


def _line(level: Any, msg: str, **data: Any) -> kinds.LogEntry:
    return kinds.LogEntry(level=level, msg=msg[:line_chars_max], data=data)
