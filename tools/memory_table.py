"""Prints what graphs held in measured launches beside what `graph_lines` says of the same, row by row.

usage: python tools/memory_table.py

Each row is one figure that somebody measured, with its source.  Rows that no formula reaches stay in the table.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from servespec.compiler.graphs.shape import Shape  # noqa: E402
from servespec.compiler.lower import Lowering  # noqa: E402
from servespec.compiler.memory.graph_pools import (  # noqa: E402
    GraphRemedy,
    added_by_capture,
    engine_estimate,
    graph_lines,
)
from servespec.compiler.memory.line import MemoryLine  # noqa: E402
from servespec.compiler.pipeline import compile_spec  # noqa: E402
from servespec.compiler.plan import Plan  # noqa: E402
from servespec.compiler.resolve.resolution import Resolution  # noqa: E402
from servespec.runtime.gather import Options, compile_request  # noqa: E402
from servespec.schema.source import read_source  # noqa: E402

GIB = 1 << 30
Json = Mapping[str, Any]

H200 = "two launches of each model on one H200, vLLM 0.33.0, 2026-11-29; FlashInfer absent, one launch a row"
GB200 = "vLLM on GB200, 4 ranks, separate prefill and decode graph sizes against one list; one traced start-up a row"

_QWEN3: Json = {"dtype": "bfloat16", "max_position_embeddings": 40960, "vocab_size": 151936, "head_dim": 128}
_DENSE_8B: Json = {
    **_QWEN3,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 36,
}
_EXPERTS_30B: Json = {
    **_QWEN3,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 48,
}
_DRAFT_ONLY: Json = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "draft_vocab_size": 151936,
}
_DEEPSEEK_V4: Json = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "max_position_embeddings": 1048576,
    "vocab_size": 129280,
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "index_topk": 512,
    "n_routed_experts": 256,
    "hc_mult": 4,
    "compress_ratios": [0, 0, *(4, 128) * 20, 4],
}
_MINIMAX_M3: Json = {
    "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
    "model_type": "minimax_m3",
    "hidden_size": 6144,
}


@dataclass(frozen=True, slots=True)
class Launch:
    """One spec with what was measured in it; a figure's name picks the lines that it sums, or is a total."""

    name: str
    source: str
    stock: bool
    target: Json
    draft: Json | None
    spec: Json
    measured_gib: Mapping[str, float]


def _h200(requests: int, k: int) -> Json:
    return {
        "hardware": {"gpu": "h200"},
        "model": {"max_model_len": 4096},
        "scheduler": {"max_num_seqs": requests, "max_num_batched_tokens": 8192},
        "speculative": {"method": "eagle3", "num_speculative_tokens": k},
        "engine": {"lowering": "extension"},
    }


_WIDE: Json = {
    "max_prefill_cudagraph_capture_tokens": 8192,
    "max_decode_cudagraph_capture_tokens": 4096,
}


def _pair(
    name: str, source: str, target: Json, draft: Json | None, spec: Json, stock: Json, planned: Json
) -> Iterator[Launch]:
    yield Launch(f"{name}, stock", source, True, target, draft, spec, stock)
    yield Launch(f"{name}, plan", source, False, target, draft, spec, planned)


def launches() -> Iterator[Launch]:
    for name, target, requests, k, stock, planned in (
        ("30B-A3B EAGLE3 K=7", _EXPERTS_30B, 256, 7, (0.96, 1.78), (3.54, 5.71)),
        ("8B EAGLE3 K=3", _DENSE_8B, 512, 3, (1.35, 1.85), (8.77, 9.01)),
    ):
        draft = {**target, **_DRAFT_ONLY}
        figures = [dict(zip(("added", "estimate"), pair, strict=True)) for pair in (stock, planned)]
        spec = {
            **_h200(requests, k),
            "compilation": {**_WIDE, "max_decode_cudagraph_capture_requests": requests},
        }
        yield from _pair(name, H200, target, draft, spec, *figures)
    dspark: Json = {
        "hardware": {"gpu": "gb200", "count": 4},
        "parallel": {"tensor_parallel_size": 4, "enable_expert_parallel": True},
        "speculative": {"method": "dspark", "num_speculative_tokens": 7},
        "memory": {"kv_cache_dtype": "fp8", "block_size": 256},
    }
    yield from _pair(
        "DeepSeek-V4-Flash DSpark K=7",
        GB200,
        _DEEPSEEK_V4,
        None,
        dspark,
        _stages(0.912, 2.674, 0.740, added=5.81, estimate=8.56),
        _stages(3.531, 10.525, 2.994, added=18.66, estimate=29.19),
    )
    adaptive = {**dspark, "speculative": {**dspark["speculative"], "enable_adaptive_verification": True}}
    yield Launch(
        "DeepSeek-V4-Flash DSpark K=7 adaptive, plan",
        GB200,
        False,
        _DEEPSEEK_V4,
        None,
        adaptive,
        _stages(3.531, 13.654, 2.994),
    )
    eagle3: Json = {
        "hardware": {"gpu": "gb200", "count": 4},
        "parallel": {"tensor_parallel_size": 4},
        "speculative": {"method": "eagle3", "num_speculative_tokens": 3, "use_local_argmax_reduction": True},
    }
    yield from _pair(
        "MiniMax-M3 EAGLE3 K=3",
        GB200,
        _MINIMAX_M3,
        {**_DRAFT_ONLY, "hidden_size": 6144, "vocab_size": 200064, "draft_vocab_size": 200064},
        eagle3,
        {"target PIECEWISE": 1.273, "target FULL": 0.229, "added": 3.15, "estimate": 4.60},
        {"target PIECEWISE": 4.619, "target FULL": 0.662, "added": 7.72, "estimate": 9.23},
    )


@dataclass(frozen=True, slots=True)
class Saving:
    """What remedies took away, one after the other, on an earlier grid without a limit of decode tokens."""

    launch: Launch
    before: frozenset[GraphRemedy]
    added: frozenset[GraphRemedy]
    measured_gib: float


def savings() -> Iterator[Saving]:
    unlimited = {"max_decode_cudagraph_capture_tokens": "unlimited"}
    deepseek, minimax = (
        replace(launch, spec={**launch.spec, "compilation": unlimited})
        for launch in launches()
        if launch.source == GB200 and launch.name.endswith("K=7, plan" if "Deep" in launch.name else "K=3, plan")
    )
    steps = (
        (frozenset({GraphRemedy.INDEXER_ROW_CHUNKS}), 25.35 - 15.35),
        (frozenset({GraphRemedy.STEPWISE_DRAFT_LOGITS, GraphRemedy.WEAK_AUX_OUTPUTS}), 15.35 - 8.43),
        (frozenset({GraphRemedy.ONE_CAPTURE_STREAM}), 8.43 - 6.00),
    )
    before: frozenset[GraphRemedy] = frozenset()
    for added, measured in steps:
        yield Saving(deepseek, before, added, measured)
        before |= added
    yield Saving(minimax, frozenset(), frozenset({GraphRemedy.WEAK_AUX_OUTPUTS}), 9.33 - 4.51)


def saved(saving: Saving) -> float:
    """GiB that the remedies take away, as predicted."""
    resolution, shapes, lowering = subject_of(saving.launch)
    with_and_without = (
        added_by_capture(resolution, graph_lines(resolution, shapes, lowering, remedies))
        for remedies in (saving.before, saving.before | saving.added)
    )
    without, with_them = with_and_without
    return (without - with_them) / GIB


def _stages(piecewise: float, full: float, block: float, **more: float) -> dict[str, float]:
    return {"target PIECEWISE": piecewise, "target FULL": full, "block FULL": block, **more}


def plan_of(launch: Launch) -> Plan:
    with tempfile.TemporaryDirectory() as folder:
        spec = json.loads(json.dumps(launch.spec))
        spec.setdefault("model", {})["id"] = _model_folder(folder, "target", launch.target)
        if launch.draft is not None:
            spec["speculative"]["model"] = _model_folder(folder, "draft", launch.draft)
        spec.setdefault("engine", {})["version"] = "0.33.0"
        source = read_source(json.dumps({"servespec": 1, **spec}), "spec.yaml")
        return compile_spec(compile_request(source, replace(Options(), with_stock=launch.stock)))


def _model_folder(folder: str, name: str, config: Json) -> str:
    path = Path(folder) / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


Lines = tuple[MemoryLine, ...]
Subject = tuple[Resolution, tuple[Shape, ...], Lowering]


def subject_of(launch: Launch) -> Subject:
    """The graphs as that launch captured them; none of them bounded the KV splits as the extension does."""
    plan = plan_of(launch)
    if launch.stock:
        assert plan.stock is not None
        return plan.resolution, plan.stock.graphs.shapes, Lowering.NONE
    return plan.resolution, plan.graphs.shapes, Lowering.LEGACY


def predicted(launch: Launch, remedies: frozenset[GraphRemedy] = frozenset()) -> dict[str, float]:
    """Every figure of the launch in GiB, by name."""
    resolution, shapes, lowering = subject_of(launch)
    lines = graph_lines(resolution, shapes, lowering, remedies)
    figures: dict[str, float] = {}
    for name in launch.measured_gib:
        figures[name] = _figure(name, resolution, shapes, lowering, lines) / GIB
    return figures


def _figure(name: str, resolution: Resolution, shapes: tuple[Shape, ...], lowering: Lowering, lines: Lines) -> int:
    if name == "added":
        return added_by_capture(resolution, lines)
    if name == "estimate":
        return engine_estimate(resolution, shapes, lines, lowering).size
    runner, mode = name.split()
    return sum(
        line.size
        for line in lines
        if line.owner.startswith(runner) and mode in line.owner and "objects" not in line.owner
    )


def rows() -> Iterator[tuple[str, str, float, float]]:
    """(launch, figure, measured GiB, predicted GiB)."""
    for launch in launches():
        for name, value in predicted(launch).items():
            yield launch.name, name, launch.measured_gib[name], value


def main() -> None:
    errors = []
    for launch, name, measured, value in rows():
        error = value / measured - 1
        if name != "estimate":
            errors.append(abs(error))
        print(f"{launch:45} {name:17} {measured:7.3f} {value:7.3f} {error:+7.0%}")
    for saving in savings():
        value = saved(saving)
        error = value / saving.measured_gib - 1
        words = ", ".join(sorted(saving.added))
        print(f"{saving.launch.name:45} saved by {words:40} {saving.measured_gib:7.3f} {value:7.3f} {error:+7.0%}")
    print(f"median error without the estimates: {statistics.median(errors):.0%} of {len(errors)} figures")


if __name__ == "__main__":
    main()
