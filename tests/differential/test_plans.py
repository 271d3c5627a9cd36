"""Whole plans against the engine: what we tell it to do gives what we planned.

A random spec is compiled; from the plan only the command line goes to the other side, where the engine's own code
makes its list and its graph managers of it and dispatches every batch.  The plan's rows and coverage must be theirs.

Two things are taken from the plan, because other tests compare them with the engine: the graph mode that the workers
end with, and what the drafter's attention can do.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import DEVICES, is_sm100
from servespec.compiler.facts.mtp_drafters import uncompiled_mtp_drafter
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from tests.differential import engine_oracle as oracle
from tests.differential.engine_oracle import Graph
from tests.differential.sides import Case as Limits
from tests.differential.sides import Ranges, Step, k_of_each
from tests.differential.stand_ins import Speculation
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("quiet_shell")]

every_root = pytest.mark.parametrize(
    "root",
    oracle.available_roots() or [pytest.param(None, marks=pytest.mark.skip(reason="no engine under .engines"))],
    ids=lambda root: root.name if root else "none",
)

SPECS = 200
"""Random specs for each version and lowering."""


# -- Random specs -----------------------------------------------------------------------------------------


class Drafts(NamedTuple):
    model: str
    method: str
    draft: str | None
    ks: tuple[int, ...]


DRAFTS = (
    Drafts("qwen3-8b", "eagle3", "eagle3-draft", (1, 2, 3, 5, 7, 15)),
    Drafts("gpt-oss-20b", "eagle3", "eagle3-draft", (2, 3)),
    Drafts("minimax-m3", "eagle3", "eagle3-draft", (3, 5)),
    Drafts("qwen3-8b", "dspark", "dspark-draft", (1, 3, 5, 7)),
    Drafts("qwen3-8b", "dspark", "dspark-draft-without-anchor", (3, 7)),
    Drafts("qwen3-8b", "dflash", "dflash-draft", (3, 7, 15)),
    Drafts("deepseek-v4-flash", "dspark", "dspark-draft", (3, 5, 7)),
    Drafts("glm-4.5-air", "mtp", None, (1, 2, 3)),
    Drafts("gemma-4", "mtp", "gemma-4-mtp", (1, 3)),
    Drafts("three-mtp-modules", "mtp", None, (1, 2, 3, 6)),
    Drafts("qwen3-30b-a3b", "ngram", None, (3, 5)),
)
PLAIN_MODELS = ("qwen3-8b", "gpt-oss-20b", "deepseek-v3", "llama-3.1-8b", "qwen3-next-80b-a3b")


def random_spec(dice: random.Random, version: str, lowering: str) -> Json:
    gpu = dice.choice(["h200", "gb200", "h100", "b300", "rtx-pro-6000", "a100-80"])
    seqs = dice.choice([1, 6, 8, 17, 64, 100, 256, dice.randint(1, 300)])
    drafts = dice.choice(DRAFTS) if dice.random() < 0.65 else None
    scheduler = {"max_num_seqs": seqs, "max_num_batched_tokens": max(seqs, dice.choice([512, 2048, 8192]))}
    sections: Json = {
        "engine": {"version": version, "lowering": lowering},
        "scheduler": scheduler if dice.random() < 0.9 else {},
        "compilation": random_compilation(dice, lowering, seqs),
        "performance_mode": dice.choice(["balanced", "balanced", "interactivity"]),
    }
    if drafts is not None:
        sections["speculative"] = random_speculative(dice, drafts, seqs)
    elif dice.random() < 0.4:
        sections["lora"] = random_lora(dice)
    elif dice.random() < 0.5:
        sections.update(microbatches(dice, sections["engine"]))
    model = drafts.model if drafts else dice.choice(PLAIN_MODELS)
    count = sections.get("parallel", {}).get("data_parallel_size", 1)
    return spec_of(model, gpu, **{"hardware": {"gpu": gpu, "count": count}, **sections})


def random_compilation(dice: random.Random, lowering: str, seqs: int) -> Json:
    """New fields under the legacy lowering, the engine's own fields under both, or nothing."""
    mode = dice.choice([None, None, None, "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "PIECEWISE", "FULL", "NONE"])
    fields: Json = {} if mode is None else {"cudagraph_mode": mode}
    if dice.random() < 0.15:
        fields["breakable_cudagraph"] = dice.random() < 0.7
    kind = dice.choice(["new", "new", "legacy", "nothing"] if lowering == "legacy" else ["legacy", "legacy", "nothing"])
    if kind == "new":
        fields.update(random_new_fields(dice, seqs))
    elif kind == "legacy":
        fields.update(random_legacy_fields(dice))
    return fields


def random_new_fields(dice: random.Random, seqs: int) -> Json:
    every: Json = {
        "max_prefill_cudagraph_capture_tokens": dice.choice([64, 300, 1024, 4096]),
        "prefill_cudagraph_capture_token_sizes": sorted(dice.sample(range(1, 512), dice.randint(1, 6))),
        "max_decode_cudagraph_capture_requests": dice.randint(1, seqs),
        "decode_cudagraph_capture_request_sizes": sorted(
            dice.sample(range(1, seqs + 1), min(seqs, dice.randint(1, 5)))
        ),
        "max_decode_cudagraph_capture_tokens": dice.choice([64, 512, 2048, "unlimited"]),
    }
    names = dice.sample(list(every), dice.randint(0, 3))
    both = ("max_prefill_cudagraph_capture_tokens", "prefill_cudagraph_capture_token_sizes")
    dropped = {both[0]} if set(both) <= set(names) else set()
    both = ("max_decode_cudagraph_capture_requests", "decode_cudagraph_capture_request_sizes")
    dropped |= {both[0]} if set(both) <= set(names) else set()
    return {name: every[name] for name in names if name not in dropped}


def random_legacy_fields(dice: random.Random) -> Json:
    if dice.random() < 0.5:
        return {"max_cudagraph_capture_size": dice.choice([16, 42, 256, 1000, 1024])}
    return {"cudagraph_capture_sizes": sorted(dice.sample(range(1, 700), dice.randint(1, 12)))}


CHOOSING = {"deepseek-v4-flash": 0.8, "three-mtp-modules": 1, "qwen3-8b": 0.3}
"""How often specs of a model ask for adaptive verification."""


def random_speculative(dice: random.Random, drafts: Drafts, seqs: int) -> Json:
    k = dice.choice(drafts.ks)
    section: Json = {"method": drafts.method, "num_speculative_tokens": k}
    if drafts.draft is not None:
        section["model"] = model_folder(drafts.draft)
    if dice.random() < CHOOSING.get(drafts.model, 0):
        section["enable_adaptive_verification"] = True
    elif dice.random() < 0.5:
        section["dynamic"] = random_tiers(dice, k, seqs)
    return section


def random_tiers(dice: random.Random, k: int, seqs: int) -> list[Json]:
    edges = sorted(dice.sample(range(1, max(3, seqs) + 1), dice.choice([1, 2])))
    tiers: list[Json] = [{"up_to": edge, "num_speculative_tokens": dice.randint(0, k)} for edge in edges]
    return [*tiers, {"num_speculative_tokens": dice.randint(0, k)}]


def random_lora(dice: random.Random) -> Json:
    return {
        "max_loras": dice.choice([1, 3, 4]),
        "specialize_active_lora": dice.random() < 0.5,
        "cudagraph_specialize_lora": dice.random() < 0.7,
    }


def microbatches(dice: random.Random, engine: Json) -> Json:
    overlap: Json = dice.choice([{"enable_dbo": True}, {"enable_dbo": True, "dbo_decode_token_threshold": 8}])
    return {
        "engine": {**engine, "model_runner": "v2"},
        "parallel": {
            "data_parallel_size": 2,
            "enable_expert_parallel": True,
            "all2all_backend": "deepep_low_latency",
            **overlap,
        },
    }


# -- The engine's side, from the command line -------------------------------------------------------------


class CommandLine:
    """A lowered command line, read by the engine's names."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv

    def has(self, flag: str) -> bool:
        return flag in self._argv

    def value(self, flag: str) -> str | None:
        return self._argv[self._argv.index(flag) + 1] if self.has(flag) else None

    def number(self, flag: str, default: int) -> int:
        value = self.value(flag)
        return default if value is None else int(value)

    def json(self, flag: str) -> Json:
        return dict(json.loads(self.value(flag) or "{}"))


@cache
def config_of(folder: str) -> Json:
    return dict(json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))


class Told(NamedTuple):
    """What the command line tells the engine. ``mode``, ``drafts_in_full`` and ``in_place_metadata`` are the plan's.

    ``cuts_drafter`` is false where PIECEWISE graphs of the drafter would hold nothing.
    """

    root: Path
    sm100: bool
    limits: Limits
    sizes: oracle.Sizes
    speculation: Speculation | None
    mode: str
    drafts_in_full: bool
    in_place_metadata: bool
    breakable: bool
    cuts_drafter: bool
    lora_cases: tuple[int, ...]
    microbatch_threshold: int | None
    verify_limit: int | None


def told(root: Path, plan: Plan) -> Told:
    line = CommandLine(plan.lowered.argv)
    frame, config = plan.resolution.frame, config_of(plan.lowered.argv[2])
    drafting = line.json("--speculative-config")
    limits = limits_of(line, drafting, line.number("--data-parallel-size", 1))
    sm100 = is_sm100(DEVICES[plan.resolution.device.name])
    return Told(
        root=root,
        sm100=sm100,
        limits=limits,
        sizes=sizes_of(root, line, limits, sm100, config, frame.mode),
        speculation=speculation_of(drafting, config, limits.schedule),
        mode=frame.mode.value,
        drafts_in_full=frame.drafter.mode is not CudaGraphMode.NONE,
        in_place_metadata=frame.drafter.fused_later_steps,
        breakable=breaks_graphs(root, plan, config),
        cuts_drafter=breaks_graphs(root, plan, config) or not drafts_uncompiled(drafting, config),
        lora_cases=lora_cases_of(root, line),
        microbatch_threshold=line.number("--dbo-decode-token-threshold", 32) if line.has("--enable-dbo") else None,
        verify_limit=(1 << 30) // (4 * config["vocab_size"]) if limits.adaptive_verification else None,
    )


def breaks_graphs(root: Path, plan: Plan, config: Json) -> bool:
    variable = plan.lowered.env.get("VLLM_USE_BREAKABLE_CUDAGRAPH")
    if variable is not None:
        return variable == "1"
    return not oracle.breakable_architectures(root).isdisjoint(config["architectures"])


def drafts_uncompiled(drafting: Json, config: Json) -> bool:
    """`test_mtp_drafters` finds the drafters in the engine."""
    return drafting.get("method") == "mtp" and uncompiled_mtp_drafter(config["architectures"]) is not None


def limits_of(line: CommandLine, drafting: Json, data_parallel_size: int) -> Limits:
    schedule = drafting.get("num_speculative_tokens_per_batch_size")
    ranges: Ranges | None = None
    if schedule and data_parallel_size == 1:
        ranges = tuple((first, last, k) for first, last, k in schedule)
    return Limits(
        sm100=False,
        max_num_seqs=line.number("--max-num-seqs", 0),
        max_num_batched_tokens=line.number("--max-num-batched-tokens", 0),
        k=drafting.get("num_speculative_tokens", 0),
        schedule=ranges,
        performance_mode=line.value("--performance-mode") or "balanced",
        adaptive_verification=drafting.get("enable_adaptive_verification", False),
    )


def sizes_of(
    root: Path, line: CommandLine, limits: Limits, sm100: bool, config: Json, mode: CudaGraphMode
) -> oracle.Sizes:
    compilation = line.json("--compilation-config")
    if mode is CudaGraphMode.NONE:
        return oracle.Sizes((), 0)
    sizes = oracle.stock_capture_sizes(
        root,
        sm100=sm100,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        num_speculative_tokens=limits.k,
        schedule=limits.schedule,
        performance_mode=limits.performance_mode,
        mode=compilation.get("cudagraph_mode", "FULL_AND_PIECEWISE"),
        sizes=compilation.get("cudagraph_capture_sizes"),
        max_size=compilation.get("max_cudagraph_capture_size"),
        gpt_oss="GptOssForCausalLM" in config["architectures"],
    )
    assert isinstance(sizes, oracle.Sizes), (compilation, sizes)
    return sizes


def speculation_of(drafting: Json, target: Json, schedule: Ranges | None) -> Speculation | None:
    if not drafting:
        return None
    draft = config_of(drafting["model"]) if "model" in drafting else target
    return Speculation(
        num_speculative_tokens=drafting["num_speculative_tokens"],
        method=drafting["method"],
        schedule=schedule,
        draft_architectures=tuple(draft["architectures"]),
        draft_config={"num_nextn_predict_layers": 1, **draft},
    )


def lora_cases_of(root: Path, line: CommandLine) -> tuple[int, ...]:
    return oracle.lora_cases(
        root,
        max_loras=line.number("--max-loras", 1) if line.has("--enable-lora") else None,
        specialize_active_lora=line.has("--specialize-active-lora"),
        cudagraph_specialize_lora=line.json("--compilation-config").get("cudagraph_specialize_lora", True),
    )


class Row(NamedTuple):
    """A row of the inventory, as both sides can give it."""

    runner: str
    routine: str
    mode: str
    query_len: int | None
    drafts: int | None
    sizes: tuple[int, ...]
    graphs: int
    active_loras: tuple[int, ...]
    ubatches: tuple[int, ...]
    max_requests: int | None
    max_tokens: int


Replay = tuple[str, int | None, int | None]
"""Mode, and tokens and requests it is padded to."""

Decode = dict[tuple[str, int], Replay]
"""By routine and requests."""


class Graphs(NamedTuple):
    rows: frozenset[Row]
    decode: Decode
    prefill: tuple[Replay, ...]


def engine_graphs(told: Told) -> Graphs:
    target = engine_target(told)
    rows = set(rows_of("target", target_routines(told), target.mode, target.descs))
    decode = engine_target_decode(told, target)
    for attribute, manager in engine_drafters(told).items():
        mixed, uniform = _ROUTINES[attribute]
        held = [graph for graph in manager.captured if holds(told, graph)]
        rows |= set(rows_of("drafter", (mixed, uniform), manager.mode, held))
        decode.update(engine_drafter_decode(told, attribute, (mixed, uniform), manager, target))
    steps = range(1, told.limits.max_num_batched_tokens + 1)
    return Graphs(frozenset(rows), decode, tuple(replay(target.dispatch(1, t, None)) for t in steps))


def holds(told: Told, graph: Graph) -> bool:
    """Whether a drafter's graph is more than a size at which it ran."""
    return told.cuts_drafter or graph.mode != "PIECEWISE"


def target_routines(told: Told) -> tuple[str, str]:
    return "piecewise", "adaptive_verification" if told.limits.adaptive_verification else "uniform_decode"


def engine_target(told: Told) -> oracle.Manager:
    return oracle.stock_manager(
        told.root,
        sizes=told.sizes.capture_sizes,
        max_size=told.sizes.max_capture_size,
        max_num_seqs=told.limits.max_num_seqs,
        mode=told.mode,
        decode_query_len=1 + told.limits.k,
        num_speculative_tokens=told.limits.k,
        schedule=told.limits.schedule,
        lora_cases=told.lora_cases,
        varlen_decode=told.limits.adaptive_verification,
        ubatches=told.microbatch_threshold is not None,
        dbo_decode_token_threshold=told.microbatch_threshold or 32,
    )


_ROUTINES = {
    "prefill_cudagraph_manager": ("step0_piecewise", "step0_uniform"),
    "decode_cudagraph_manager": ("none", "later_steps"),
    "query_cudagraph_manager": ("none", "block"),
    "cudagraph_manager": ("block_piecewise", "block"),
}


def engine_drafters(told: Told) -> dict[str, oracle.DrafterManager]:
    if told.speculation is None:
        return {}
    return oracle.drafter_managers(
        told.root,
        told.speculation,
        sizes=told.sizes.capture_sizes,
        max_size=told.sizes.max_capture_size,
        max_num_seqs=told.limits.max_num_seqs,
        mode=told.mode,
        breakable_graphs=told.breakable,
        draft_support="ALWAYS" if told.drafts_in_full else "UNIFORM_SINGLE_TOKEN_DECODE",
        in_place_metadata=told.in_place_metadata,
    )


def rows_of(runner: str, routines: tuple[str, str], manager_mode: str, graphs: Sequence[Graph]) -> Iterator[Row]:
    """The graphs of one manager, a row for each mode, query length and number of drafts."""
    groups: dict[tuple[str, str, int | None, int | None], list[Graph]] = {}
    for graph in graphs:
        mixed = graph.mode == "PIECEWISE" or manager_mode == "FULL"
        key = (routines[not mixed], graph.mode, graph.uniform_token_count or graph.max_query_len, graph.drafts)
        groups.setdefault(key, []).append(graph)
    for (routine, mode, query_len, drafts), group in groups.items():
        yield row(runner, routine, mode, query_len, drafts, group)


def row(runner: str, routine: str, mode: str, query_len: int | None, drafts: int | None, group: list[Graph]) -> Row:
    in_requests = routine in ("uniform_decode", "step0_uniform", "later_steps", "block")
    return Row(
        runner,
        routine,
        mode,
        query_len,
        drafts,
        tuple(sorted({graph.num_requests or 0 if in_requests else graph.num_tokens for graph in group})),
        len(group),
        tuple(sorted({graph.active_loras for graph in group})),
        tuple(sorted({graph.ubatches for graph in group})),
        max((graph.num_requests for graph in group if graph.num_requests is not None), default=None),
        max(graph.num_tokens for graph in group),
    )


def engine_target_decode(told: Told, target: oracle.Manager) -> Decode:
    routine = target_routines(told)[1]
    steps = ((n, target_step(told, n, k)) for n, k in enumerate(k_of_each(told.limits), 1))
    return {
        (routine, n): within(told, step, lambda s: target.dispatch(s.requests, s.tokens, s.uniform, 0, s.widest))
        for n, step in steps
    }


def target_step(told: Told, n: int, k: int) -> Step:
    if told.verify_limit is None:
        return Step(n, n * (1 + k), 1 + k, 1 + k, k)
    return Step(n, max(n, min(n * (1 + k), told.verify_limit)), None, 1 + k, k)


def within(told: Told, step: Step, dispatch: Any) -> Replay:
    if step.tokens > told.limits.max_num_batched_tokens:
        return "UNSCHEDULED", None, None
    return replay(dispatch(step))


def replay(graph: Graph) -> Replay:
    if graph.mode == "NONE":
        return "EAGER", None, None
    uniform = graph.mode == "FULL" and graph.uniform_token_count is not None
    return graph.mode, graph.num_tokens, graph.num_requests if uniform else None


def engine_drafter_decode(
    told: Told, attribute: str, routines: tuple[str, str], manager: oracle.DrafterManager, target: oracle.Manager
) -> Decode:
    """Every batch for which the drafter runs; step 0 also runs where nothing is drafted, to fill its KV cache."""
    least = {"prefill_cudagraph_manager": 0, "decode_cudagraph_manager": 2}.get(attribute, 1)
    found: Decode = {}
    for n, k in enumerate(k_of_each(told.limits), 1):
        if k < least:
            continue
        step = drafter_step(told, attribute, manager.decode_query_len, target, n, k)
        routine = routines[step.uniform is not None]
        ran = within(told, step, lambda s: drafter_replay(attribute, manager, s))
        found[routine, n] = ran if told.cuts_drafter or ran[0] != "PIECEWISE" else ("EAGER", None, None)
    return found


FOLLOWING = ("prefill_cudagraph_manager", "cudagraph_manager")
"""The managers of drafters that take the target's batch as it is."""


def drafter_step(told: Told, attribute: str, decode_query_len: int, target: oracle.Manager, n: int, k: int) -> Step:
    """A manager beside the target's takes its batch as it is, the others have a query length of their own."""
    if attribute not in FOLLOWING:
        return Step(n, n * decode_query_len, decode_query_len, decode_query_len, k)
    if not (told.limits.adaptive_verification and k):
        return Step(n, n * (1 + k), 1 + k, 1 + k, k)
    return step_after_choice(told, target, n, k)


def step_after_choice(told: Told, target: oracle.Manager, n: int, k: int) -> Step:
    """All drafts but one were verified, as far as the limit allows; a padded step as its drafter sees it.

    Source: vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py: propose, whose longest query is that of
    the step before drafts were chosen.
    """
    verified = target_step(told, n, k)
    if verified.tokens > told.limits.max_num_batched_tokens:
        return verified
    tokens = min(verified.tokens, n * (1 + k) - 1)
    padded = target.dispatch(n, tokens, None, 0, 1 + k)
    uniform = oracle.uniform_decode_token_count(
        told.root, num_requests=n, num_tokens=tokens, max_query_len=1 + k, decode_graph_eligible=True
    )
    return Step(n, padded.num_tokens, uniform, 1 + k, k)


def drafter_replay(attribute: str, manager: oracle.DrafterManager, step: Step) -> Graph:
    if attribute == "decode_cudagraph_manager":
        return manager.dispatch_later_steps(step.requests, step.drafts)
    return manager.dispatch(step.requests, step.tokens, step.uniform)


# -- Our side, from the plan's JSON form --------------------------------------------------------------------


def planned_graphs(document: Json) -> Graphs:
    """The plan's rows and coverage, every range unrolled."""
    coverage = document["coverage"]
    decode = {
        (r["routine"], n): (r["mode"], r["padded_to_tokens"], r["padded_to_requests"])
        for r in coverage["decode"]
        for n in range(r["from_requests"], r["to_requests"] + 1)
    }
    prefill = [
        (r["mode"], r["padded_to_tokens"], None)
        for r in coverage["prefill"]
        for _ in range(r["from_tokens"], r["to_tokens"] + 1)
    ]
    rows = (planned_row(row) for row in document["runners"] if row["routine"] != "none")
    return Graphs(frozenset(rows), decode, tuple(prefill))


def planned_row(row: Json) -> Row:
    return Row(
        row["runner"],
        row["routine"],
        row["mode"],
        row["query_len"],
        row["num_speculative_tokens"] if row["routine"] == "later_steps" else None,
        tuple(row["sizes"]),
        row["graphs"],
        tuple(row["active_loras"]),
        tuple(row["ubatches"]),
        row["max_requests"],
        row["max_tokens"],
    )


def comparable(told: Told, engine: Graphs) -> Graphs:
    """The plan names K on every row of later steps; the engine only on graphs that are specialised to it."""
    named = (
        row._replace(drafts=row.drafts or told.limits.k) if row.routine == "later_steps" else row for row in engine.rows
    )
    return engine._replace(rows=frozenset(named))


# -- The comparison -----------------------------------------------------------------------------------------


def accepted(root: Path, lowering: str) -> Iterator[tuple[Json, Plan]]:
    dice = random.Random(f"{root.name} {lowering}")  # noqa: S311 - the same specs in every run
    version = oracle.engine_version(root)
    for _ in range(SPECS):
        spec = random_spec(dice, version, lowering)
        try:
            yield spec, compiled(spec)
        except SpecError:
            continue


@every_root
@pytest.mark.parametrize("lowering", ["legacy", "none"])
def test_the_command_line_gives_the_plan(root: Path, lowering: str) -> None:
    differing, met = [], Counter[str]()
    for spec, plan in accepted(root, lowering):
        asked = told(root, plan)
        engine, ours = comparable(asked, engine_graphs(asked)), planned_graphs(plan.to_json())
        met.update(features(asked, engine))
        if engine != ours:
            differing.append((spec, asked.limits, difference(ours, engine)))
    print(f"{root.name}, lowering {lowering}: {dict(met)}")

    assert differing[:1] == []
    assert met["plans"] >= SPECS // 2
    assert {*met} >= MUST_BE_MET


MUST_BE_MET = {
    *("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "PIECEWISE", "FULL", "NONE"),
    *("piecewise", "uniform_decode", "adaptive_verification", "step0_uniform", "later_steps", "block"),
    *("step 0 after a choice", "modules after a choice"),
    *("adapters", "microbatches", "tiers", "EAGER"),
}


def features(asked: Told, engine: Graphs) -> set[str]:
    """What a plan exercises, so that a run can say what it has met."""
    named = {
        "adapters": len(asked.lora_cases) > 1,
        "microbatches": any(row.ubatches != (1,) for row in engine.rows),
        "tiers": asked.limits.schedule is not None,
        "step 0 after a choice": any(routine == "step0_piecewise" for routine, _ in engine.decode),
        "modules after a choice": any(routine == "block_piecewise" for routine, _ in engine.decode),
    }
    ran = {replayed[0] for replayed in engine.decode.values()}
    return {"plans", asked.mode, *ran, *{row.routine for row in engine.rows}, *{n for n, met in named.items() if met}}


def difference(ours: Graphs, engine: Graphs) -> Json:
    """The parts that only one side has, short enough to read."""
    return {
        "rows of ours": sorted(map(str, ours.rows - engine.rows)),
        "rows of the engine": sorted(map(str, engine.rows - ours.rows)),
        "decode": sorted(map(str, ours.decode.items() ^ engine.decode.items()))[:6],
        "prefill": [pair for pair in zip(ours.prefill, engine.prefill, strict=False) if pair[0] != pair[1]][:3],
    }
