"""The ledger: against launches that were measured, its sums, and whether a plan fits."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.graphs.shape import Runner
from servespec.compiler.memory.caching_allocator import PerfectAllocator
from servespec.compiler.memory.document import ledger_json
from servespec.compiler.memory.fitting_changes import fitting_changes
from servespec.compiler.memory.forward_passes import target_pass
from servespec.compiler.memory.kv_cache import KvCache
from servespec.compiler.memory.ledger import Fit, Ledger, deciding, ledger_of
from servespec.compiler.memory.line import Holder, MemoryLine, Part, line_within
from servespec.compiler.memory.model_pass import Attention
from servespec.compiler.memory.stage import Stage
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, SpecError
from servespec.provenance import Basis
from servespec.schema.spec import ServingSpec
from servespec.units import Bytes
from tests.memory_cases import QWEN3_8B, QWEN3_30B, eagle3_of, planned_model
from tests.plans import compiled, model_folder, spec_of

GIB = 1 << 30
EAGLE3 = model_folder("eagle3-draft")
NO_ESTIMATE = {"gpu_memory_utilization": 0.85, "estimate_cudagraph_memory": False}
LAUNCHES = [
    (QWEN3_30B, 7, 256, NO_ESTIMATE, 57.93, 0.86, 60.04, 642_400),
    (QWEN3_30B, 7, 256, {"gpu_memory_utilization": 0.9}, None, 0.86, 65.25, 698_160),
    (QWEN3_8B, 3, 512, NO_ESTIMATE, 16.34, 1.75, 100.74, 713_712),
]


def line(part: Part, gib: float, low: float | None = None, high: float | None = None, **changes: Any) -> MemoryLine:
    return MemoryLine(
        owner="graphs",
        holder=Holder.ENGINE,
        part=part,
        size=Bytes(int(gib * GIB)),
        low=Bytes(int((gib if low is None else low) * GIB)),
        high=Bytes(int((gib if high is None else high) * GIB)),
        basis=Basis.ESTIMATE,
        because="a test",
        **changes,
    )


GRAPHS = (line(Part.GRAPHS, 0.96),)


def made(plan: Plan, graphs: tuple[MemoryLine, ...] = GRAPHS, estimate: MemoryLine | None = None) -> Ledger:
    found = ledger_of(plan.resolution, graphs, estimate)
    assert found is not None
    return found


def with_graphs(plan: Plan, graphs: tuple[MemoryLine, ...]) -> Callable[[ServingSpec], Ledger | None]:
    """Ledgers of the same request with another spec and the same graphs."""
    resolution = plan.resolution
    return lambda spec: ledger_of(replace(resolution, request=replace(resolution.request, spec=spec)), graphs, None)


def llama(gpu: str = "h200", **sections: Any) -> Plan:
    return compiled(spec_of("llama-3.1-8b", gpu, **sections))


@pytest.mark.parametrize(
    ("target", "k", "requests", "memory", "consumed", "peak", "cache", "tokens"), LAUNCHES, ids=["30b", "30b-est", "8b"]
)
def test_it_agrees_with_measured_launches(
    tmp_path: Path,
    target: dict[str, Any],
    k: int,
    requests: int,
    memory: dict[str, Any],
    consumed: float | None,
    peak: float,
    cache: float,
    tokens: int,
) -> None:
    plan = planned_model(
        tmp_path, target, eagle3_of(target), k=k, memory=memory,
        scheduler={"max_num_seqs": requests, "max_num_batched_tokens": 8192},
    )  # fmt: skip
    ledger = made(plan, estimate=line(Part.GRAPHS, 1.78))

    activations = ledger.of(Part.ACTIVATIONS)
    assert activations.low < peak * GIB < activations.high
    assert activations.size == pytest.approx(peak * GIB, rel=0.02)
    if consumed is not None:
        held = [one for one in ledger.lines if one.is_budgeted and one.part in (Part.WEIGHTS, Part.OTHER)]
        assert sum(one.low for one in held) < consumed * GIB < sum(one.high for one in held)
        assert sum(one.size for one in held) == pytest.approx(consumed * GIB, rel=0.01)
    assert ledger.cache.low < cache * GIB < ledger.cache.high
    assert ledger.tokens(ledger.cache.size) == pytest.approx(tokens, rel=0.01)
    assert ledger.fits is Fit.YES


def test_the_parts_sum_to_the_budget() -> None:
    ledger = made(llama(), estimate=line(Part.GRAPHS, 2.0))
    parts = sum(ledger.of(part).size for part in (Part.WEIGHTS, Part.ACTIVATIONS, Part.OTHER))
    (before,) = (one.size for one in ledger.lines if not one.is_budgeted)

    assert before == ledger.device_bytes - ledger.free_at_start.size > 0
    assert parts - before + 2 * GIB + ledger.cache.size == ledger.budget_bytes


def test_the_engine_subtracts_its_estimate_and_not_what_graphs_take() -> None:
    small, large = (made(llama(), (line(Part.GRAPHS, gib),), line(Part.GRAPHS, 2.0)) for gib in (1.0, 9.0))
    without = made(llama())

    assert small.cache == large.cache
    assert without.cache.size - small.cache.size == 2 * GIB


def test_an_estimate_that_is_turned_off_leaves_its_bytes_to_the_cache() -> None:
    off = llama(memory={"estimate_cudagraph_memory": False})

    assert made(off, estimate=line(Part.GRAPHS, 2.0)).cache == made(llama()).cache


def test_what_the_budget_does_not_count_is_beside_it() -> None:
    more = (*GRAPHS, line(Part.OTHER, 3.0, is_budgeted=False))

    assert made(llama(), more).cache == made(llama()).cache
    assert made(llama(memory={"gpu_memory_utilization": 0.98}), more).fits is Fit.NO


def test_graphs_beyond_the_estimate_may_not_fit_the_device() -> None:
    full = llama(memory={"gpu_memory_utilization": 0.985})

    assert made(full, GRAPHS, line(Part.GRAPHS, 0.96)).fits is Fit.YES
    assert made(full, (line(Part.GRAPHS, 0.96, 0.5, 3.5),), line(Part.GRAPHS, 0.96)).fits is Fit.MARGINAL
    assert made(full, (line(Part.GRAPHS, 4.0),), line(Part.GRAPHS, 0.96)).fits is Fit.NO


def test_graphs_that_turn_out_larger_raise_the_engines_estimate_with_them() -> None:
    """So that the cache gives way to them, where it follows the budget and the engine is asked."""
    profiled, other = (line(Part.GRAPHS, 2.0, 1.0, 5.0, moves_estimate=moves) for moves in (True, False))
    plan, off = llama(), llama(memory={"estimate_cudagraph_memory": False})

    def beyond(plan: Plan, graphs: MemoryLine) -> list[int]:
        found = made(plan, (graphs,), line(Part.GRAPHS, 2.0))
        known = sum(one.high - one.size for one in found.lines if not one.is_budgeted)
        return [(found.whole.high - found.whole.size - known) // GIB, (found.whole.size - found.whole.low) // GIB]

    assert beyond(plan, profiled)[0] == 0
    assert beyond(plan, other)[0] == beyond(off, profiled)[0] == 3
    assert beyond(plan, profiled)[1] == beyond(plan, other)[1] >= 1


def test_the_engine_profiles_all_graphs_but_the_targets_narrower_full_ones() -> None:
    """Where outputs and converted scores lie turns on small things, which need not be the same twice."""
    plan = compiled(
        spec_of("qwen3-8b", "h200", speculative={"method": "eagle3", "model": EAGLE3, "num_speculative_tokens": 3})
    )
    assert plan.ledger is not None
    bars = {
        one.owner: one.moves_estimate for one in plan.ledger.lines if one.part is Part.GRAPHS and one.low < one.high
    }

    still = {owner for owner, moves in bars.items() if not moves}
    assert still == {"target: objects of FULL graphs", "target: memory kept by capture outputs"}
    assert len(bars) > len(still) + 4


PINNED = {"kv_cache_memory_bytes": "60GiB"}


@pytest.mark.parametrize(
    ("gpu", "memory", "shares"),
    [("h200", PINNED, (0.99, 0.996, 0.998)), ("gb10", PINNED, (0.8, 0.92, 0.97))],
    ids=["own-memory", "shared-memory"],
)
def test_the_engine_starts_where_its_share_is_free(
    gpu: str, memory: dict[str, Any], shares: tuple[float, float, float]
) -> None:
    """Beside a pinned cache too, although the engine then has no other use for the share."""

    def start(share: float) -> Fit:
        return made(llama(gpu, memory={**memory, "gpu_memory_utilization": share})).fits

    fitting, doubtful, refused = shares
    assert [start(fitting), start(doubtful)] == [Fit.YES, Fit.MARGINAL]
    with pytest.raises(SpecError, match="the engine starts where") as caught:
        start(refused)
    (finding,) = caught.value.diagnostics
    assert f"write `memory.gpu_memory_utilization: {0.99 if gpu == 'h200' else 0.85}`" in finding.help


def test_a_pinned_cache_is_held_against_the_device() -> None:
    def pinned(gib: int) -> Fit:
        return made(llama(memory={"kv_cache_memory_bytes": f"{gib}GiB"})).fits

    assert [pinned(gib) for gib in (20, 110, 121)] == [Fit.YES, Fit.YES, Fit.MARGINAL]
    with pytest.raises(SpecError, match=r"the plan needs at least 147\.1"):
        pinned(130)
    with pytest.raises(SpecError, match=r"a KV cache of 1.0 GiB is too small: one request of 131072 tokens"):
        pinned(1)


def test_a_pinned_cache_leaves_what_was_in_use_before_the_engine_looked() -> None:
    """The largest cache that is proposed, and all else at its high end, are what the engine finds free."""
    with pytest.raises(SpecError) as caught:
        llama(memory={"kv_cache_memory_bytes": "130GiB"})
    (finding,) = caught.value.diagnostics
    proposed = re.search(r"`memory\.kv_cache_memory_bytes: (\d+)MiB`", finding.help)
    assert proposed is not None

    ledger = llama(memory={"kv_cache_memory_bytes": f"{proposed[1]}MiB"}).ledger
    assert ledger is not None
    taken = sum(one.high for one in ledger.lines if one.is_budgeted) + ledger.cache.size
    assert 0 <= ledger.free_at_start.low - taken < 1 << 20


def test_a_number_of_blocks_pins_the_cache() -> None:
    ledger = made(llama(memory={"num_gpu_blocks_override": 10_000}))

    assert ledger.cache.size == 10_000 * 16 * 32 * 2 * 8 * 128 * 2
    assert ledger.tokens(ledger.cache.size) == 10_000 * 16


def test_offloaded_weights_are_not_held_against_a_device() -> None:
    length = {"model": {**spec_of("llama-3.1-8b", "l4")["model"], "max_model_len": 60000}}
    with pytest.raises(SpecError):
        llama("l4", **length)

    assert made(llama("l4", **length, engine={"version": "0.33.0", "args": {"cpu-offload-gb": 6}})).fits is not Fit.NO


def test_a_cpu_has_no_ledger() -> None:
    plan = compiled(spec_of("llama-3.1-8b", "cpu", engine={"version": "0.32.0"}))

    assert plan.ledger is None
    assert plan.to_json()["memory"] is None


def test_adapters_and_unknown_parts_leave_the_verdict_open() -> None:
    assert made(llama(lora={"max_loras": 4})).fits is Fit.UNKNOWN
    assert made(llama(), ()).fits is Fit.UNKNOWN
    assert made(llama(compilation={"cudagraph_mode": "NONE"}), ()).fits is Fit.YES


SPREAD = {"data_parallel_size": 2, "enable_expert_parallel": True}


@pytest.mark.parametrize(
    ("sections", "owner"),
    [
        ({"parallel": SPREAD | {"all2all_backend": "deepep_low_latency"}}, "all-to-all buffers"),
        ({"parallel": SPREAD | {"enable_eplb": True}}, "expert load balancer"),
        ({"kv_transfer": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}}, "KV connector"),
    ],
)
def test_buffers_of_libraries_are_named(tmp_path: Path, sections: dict[str, Any], owner: str) -> None:
    hardware = {"gpu": "h200", "count": 2 if "parallel" in sections else 1}
    plan = planned_model(tmp_path, QWEN3_30B, hardware=hardware, **sections)
    document = ledger_json(made(plan))

    assert [line["owner"] for line in document["unknown"]] == [owner]
    assert document["totals"]["other_bytes"] is None
    assert document["totals"]["kv_cache_bytes"] is not None


def test_unknown_weights_are_null_and_not_zero(tmp_path: Path) -> None:
    plan = planned_model(tmp_path, QWEN3_8B | {"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2"})
    document = ledger_json(made(plan))

    assert document["totals"]["weights_bytes"] is None
    assert document["totals"]["kv_cache_bytes"] is None
    assert document["totals"]["kv_cache_tokens"] is None
    assert {"target", "engine"} == {line["runner"] for line in document["unknown"]}


def test_what_does_not_fit_names_a_change_of_each_field() -> None:
    with pytest.raises(SpecError) as caught:
        llama("l4", memory={"gpu_memory_utilization": 0.9})
    (finding,) = caught.value.diagnostics

    assert finding.code == "P126"
    assert "`model.max_model_len: " in finding.help
    assert "`parallel.tensor_parallel_size: 2` with `hardware.count: 2`" in finding.help
    assert "leaves at most 4.1 GiB for KV: one request of 131072 tokens takes 16.0 GiB" in finding.message


def test_weights_that_exceed_the_budget_are_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"take at least 57\.8 GiB of a budget of 20\.3 GiB, which leaves nothing"):
        planned_model(tmp_path, QWEN3_30B, hardware={"gpu": "l4"})


def test_the_changes_fit_and_a_little_less_does_not() -> None:
    marginal = llama("l4", model={**spec_of("llama-3.1-8b", "l4")["model"], "max_model_len": 34000})
    graphs = (line(Part.GRAPHS, 0.1),)
    ledger = made(marginal, graphs)
    assert ledger.fits is Fit.MARGINAL
    found = fitting_changes(marginal.resolution, [ledger], with_graphs(marginal, graphs)).changes
    changes = dict(change.strip("`").split(": ") for change in found[:2])
    length = int(changes["model.max_model_len"])
    share = float(changes["memory.gpu_memory_utilization"])

    def fits(max_model_len: int, utilization: float) -> Fit:
        model = {**spec_of("llama-3.1-8b", "l4")["model"], "max_model_len": max_model_len}
        memory = {"gpu_memory_utilization": utilization}
        return made(llama("l4", model=model, memory=memory), graphs).fits

    assert [fits(length, 0.92), fits(length + 16, 0.92)] == [Fit.YES, Fit.MARGINAL]
    assert [fits(34000, share), fits(34000, round(share - 0.01, 2))] == [Fit.YES, Fit.MARGINAL]


def staged(count: int, **sections: Any) -> Plan:
    """Llama 3.1 8B with an EAGLE3 head on so many pipeline stages."""
    parallel = {"pipeline_parallel_size": count, **sections.pop("parallel", {})}
    hardware = {"gpu": "h200", "count": count * parallel.get("tensor_parallel_size", 1)}
    speculative = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    return llama(parallel=parallel, hardware=hardware, speculative=speculative, **sections)


def owners(ledger: Ledger) -> set[str]:
    return {line.owner for line in ledger.lines}


def test_stages_share_the_weights() -> None:
    """Each stage has tables of its own, so that together they hold a little more."""
    whole, stages = staged(1).stages[0].of(Part.WEIGHTS).size, staged(4).stages
    held = [stage.of(Part.WEIGHTS).size for stage in stages]

    assert [stage.layers for stage in stages] == [range(8), range(8, 16), range(16, 24), range(24, 32)]
    assert held[1] == held[2] < held[0] < held[3]
    assert 0 <= sum(held) - whole < 0.01 * whole


def test_a_stage_may_hold_no_layer() -> None:
    """32 layers on 34 stages: the first has none, and the last the drafter's alone."""
    first, *_, last = staged(34).stages

    assert (first.layers, last.layers) == (range(0), range(32, 32))
    assert first.kv == "a pipeline stage holds no layer"
    assert isinstance(last.kv, KvCache)


def test_an_empty_stage_does_not_take_what_another_has() -> None:
    """The embedding is on the first stage and the head on the last, whichever have layers."""
    plan = staged(2, engine={"env": {"VLLM_PP_LAYER_PARTITION": "0,32"}})
    table = 128256 * 4096 * 2
    held = [
        sum(line.size for line in stage.lines if line.owner == "embedding and output head") for stage in plan.stages
    ]

    assert held == [table, table]
    assert [stage["layers"] for stage in plan.to_json()["memory"]["stages"]] == [0, 32]


def test_only_the_last_stage_samples_and_drafts() -> None:
    first, last = staged(2).stages

    assert {line.holder for line in first.lines} == {Holder.TARGET, Holder.ENGINE}
    assert {line.holder for line in last.lines} == set(Holder)
    assert "hidden states kept for the drafter" in owners(last) - owners(first)
    assert {"tokens that the sampler counts for penalties", "grammar masks"} <= owners(last) - owners(first)


def test_the_sampler_counts_every_token_of_the_vocabulary_for_every_request() -> None:
    """1,024 requests of 128,256 tokens: four bytes and a bit of each, and a row of bits for each of 1 + K logits."""
    plan = llama(
        scheduler={"max_num_seqs": 1024},
        speculative={"method": "ngram", "num_speculative_tokens": 3},
    )
    sizes = {line.owner: line.size for line in made(plan).lines}

    assert sizes["tokens that the sampler counts for penalties"] == 1024 * (128256 * 4 + 128256 // 8)
    assert sizes["grammar masks"] == 1024 * 4 * 128256 // 8


def test_the_older_runner_counts_no_tokens() -> None:
    plan = llama(engine={"version": "0.33.0", "model_runner": "v1"}, compilation={"cudagraph_mode": "NONE"})

    assert "tokens that the sampler counts for penalties" not in owners(made(plan))


def peak(**sections: Any) -> MemoryLine:
    plan = llama(**{"scheduler": {"max_num_seqs": 8, "max_num_batched_tokens": 8192}, **sections})
    (found,) = (one for one in made(plan, (line(Part.GRAPHS, 0.1),)).lines if one.part is Part.ACTIVATIONS)
    return found


LEFT_BYTES = 95 << 20
HIDDEN_BYTES = 8192 * 4096 * 2
LLAMA_STEP_BYTES = 3 * HIDDEN_BYTES + 8192 * 3 * 14336 * 2


def test_a_step_holds_three_hidden_states_and_an_mlp() -> None:
    """Above what the profile run leaves held; by the remedy it is run again, when all of that is there."""
    eager = peak(model={**spec_of("llama-3.1-8b", "h200")["model"], "enforce_eager": True})
    again = peak(remedies={"kv_from_measurement": True}, engine={"version": "0.33.0", "lowering": "extension"})

    assert eager.size == LLAMA_STEP_BYTES - LEFT_BYTES
    assert again.size == LLAMA_STEP_BYTES
    assert {one.because for one in (eager, again)} == {"one step of 8192 tokens"}


def test_a_first_launch_tries_a_kernel_on_an_embedding_and_later_ones_do_not() -> None:
    found = peak()

    assert found.size == 128256 * 4096 * 2 + 2 * HIDDEN_BYTES - LEFT_BYTES
    assert found.because.startswith("a first launch compiles")
    assert found.low < LLAMA_STEP_BYTES - LEFT_BYTES < found.size


def test_a_drafter_is_tried_while_the_targets_outputs_wait() -> None:
    """The last hidden state, three of other layers, what they are combined to, and five that the kernel is tried on."""
    speculative = {"method": "eagle3", "num_speculative_tokens": 3, "model": model_folder("eagle3-draft")}

    assert peak(speculative=speculative).size == 128256 * 4096 * 2 + 10 * HIDDEN_BYTES + (60 << 20) - LEFT_BYTES


def test_later_stages_keep_what_the_one_before_sends() -> None:
    """Hidden state and residual of every token of the widest step, and the auxiliary states of the layers before.

    What is read after layer 15 is made where that layer is.
    """
    plan = staged(2)
    first, last = plan.stages
    received = "hidden states of the stage before"
    (line,) = (line for line in last.lines if line.owner == received)
    tensors = 2 + sum(place <= 16 for place in (2, 16, 29))

    assert received not in owners(first)
    assert line.size == plan.resolution.frame.max_num_batched_tokens * tensors * 4096 * 2


def test_graphs_of_a_stage_leave_what_it_hands_on() -> None:
    plan = staged(2)
    widest = max(shape.tokens for shape in plan.graphs.shapes if shape.runner is Runner.TARGET)
    sizes = [
        next(line.size for line in stage.lines if line.owner == "target: capture outputs") for stage in plan.stages
    ]

    # The first hands on two tensors and two auxiliary states, the last one tensor and all three.
    assert sizes == [widest * 4 * 4096 * 2, widest * 4 * 4096 * 2]


def test_a_stage_that_is_not_the_last_has_no_last_norm() -> None:
    resolution, tokens = staged(2).resolution, 64
    first, last = (
        target_pass(resolution, 1, stage).run(PerfectAllocator(), tokens, Attention.LEFT_OUT)
        for stage in (Stage(0, 2), Stage(1, 2))
    )

    hidden = tokens * 4096 * 2
    assert [block.size_bytes for block in first.hidden] == [hidden, hidden]
    assert [block.size_bytes for block in last.hidden] == [hidden]
    assert (len(first.auxiliary), len(last.auxiliary)) == (2, 1)


def test_the_stage_with_room_for_the_fewest_blocks_decides() -> None:
    even, shifted = staged(2), staged(2, engine={"env": {"VLLM_PP_LAYER_PARTITION": "20,12"}})

    for plan, decides in ((even, 1), (shifted, 0)):
        ledger = plan.ledger
        assert ledger is not None
        assert ledger.stage.index == decides
        assert ledger.blocks == min(stage.blocks for stage in plan.stages)
        assert plan.complete
    assert [len(stage.layers or ()) for stage in shifted.stages] == [20, 12]


def test_a_stage_that_does_not_fit_decides() -> None:
    """A set cache has the fewest blocks where the layers are; the stage with few layers has the drafter's graphs."""
    plan = staged(2, engine={"env": {"VLLM_PP_LAYER_PARTITION": "17,15"}}, memory={"kv_cache_memory_bytes": "100GiB"})
    first, last = plan.stages
    assert first.blocks < last.blocks
    tight = replace(last, lines=(*last.lines, line(Part.OTHER, 60)))

    assert tight.fits is Fit.NO
    assert deciding([first, last]) is first
    assert deciding([first, tight]) is tight


def test_changes_fit_every_stage() -> None:
    """A share that is right for one stage must not be too small for another."""
    plan = staged(2)
    poor = [replace(stage, budget_bytes=Bytes(8 * GIB)) for stage in plan.stages]
    assert deciding(poor).fits is Fit.NO
    (change, *_) = fitting_changes(plan.resolution, poor, lambda _: None).changes
    share = float(change.strip("`").split(": ")[1])

    def fits(utilization: float) -> Fit:
        budget = Bytes(ceil(plan.stages[0].device_bytes * utilization))
        return deciding([replace(stage, budget_bytes=budget) for stage in plan.stages]).fits

    assert change.startswith("`memory.gpu_memory_utilization: ")
    assert (fits(share), fits(round(share - 0.01, 2))) == (Fit.YES, Fit.MARGINAL)


def test_no_less_memory_gives_more_tokens() -> None:
    ledger = made(llama())
    more = replace(ledger, budget_bytes=Bytes(ledger.budget_bytes + GIB))

    assert (more.tokens(more.cache.size) or 0) > (ledger.tokens(ledger.cache.size) or 0)


def graph_budget_codes(size: str, **sections: Any) -> list[str]:
    plan = compiled(spec_of("qwen3-8b", "h200", memory={"max_cudagraph_memory": size}, **sections))
    return [finding.code for finding in plan.diagnostics if finding.code in ("P129", "P130")]


def test_graphs_are_held_against_their_bound() -> None:
    with pytest.raises(SpecError, match="even the smallest graphs"):
        graph_budget_codes("1MiB")
    assert graph_budget_codes("64GiB") == []
    assert graph_budget_codes("1MiB", compilation={"cudagraph_mode": "NONE"}) == []


def test_a_bound_on_graphs_that_no_formula_counts_is_doubtful() -> None:
    suffix = {"method": "suffix", "num_speculative_tokens": 4}

    assert graph_budget_codes("64GiB", speculative=suffix, engine={"version": "0.33.0"}) == ["P130"]


@pytest.mark.parametrize("size", [2**62 - 1, 2**62 + 1])
def test_a_size_with_more_bits_than_a_float_lies_within_its_bar(size: int) -> None:
    """A config may hold any number, and these two are no floats."""
    line = line_within(
        owner="weights", holder=Holder.TARGET, part=Part.WEIGHTS, size=Bytes(size), low_share=0.0, high_share=0.0,
        because="",
    )  # fmt: skip

    assert line.low <= size <= line.high


def experts_on(folder: Path, ranks: int, **parallel: Any) -> dict[str, MemoryLine]:
    """The lines of Qwen3-30B-A3B by owner, on so many data-parallel ranks."""
    spread = {"parallel": {"data_parallel_size": ranks, **parallel}, "hardware": {"gpu": "h200", "count": ranks}}
    ledger = planned_model(folder, QWEN3_30B, **spread).ledger
    assert ledger is not None
    return {line.owner: line for line in ledger.lines}


@pytest.mark.parametrize(
    ("parallel", "gathered"),
    [
        ({}, 8),
        ({"enable_expert_parallel": True}, 8),
        ({"enable_expert_parallel": True, "all2all_backend": "deepep_high_throughput"}, 1),
    ],
    ids=["slices", "spread", "sent"],
)
def test_experts_see_the_tokens_of_all_ranks_that_gather_them(
    tmp_path: Path, parallel: dict[str, Any], gathered: int
) -> None:
    """8,192 tokens of each rank by 8 experts; width and hidden size are 768 and 2,048."""
    alone, spread = experts_on(tmp_path / "one", 1), experts_on(tmp_path / "eight", 8, **parallel)
    width = 768 if "enable_expert_parallel" in parallel else 768 // 8
    workspace = spread["workspace of the experts"].size

    assert workspace == gathered * 8192 * 8 * (2048 + max(2 * width, 2048)) * 2
    assert "NCCL buffers" in spread.keys() - alone.keys()


def refused_or_warned(spec: dict[str, Any]) -> Diagnostic | None:
    """What is said of the memory of a spec, None where it fits."""
    try:
        findings = compiled(spec).diagnostics
    except SpecError as error:
        findings = error.diagnostics
    return next((one for one in findings if one.code in ("P126", "P127", "P132")), None)


def small_llama(**memory: Any) -> dict[str, Any]:
    return spec_of("llama-3.1-8b", "h200", memory=memory)


def test_a_number_of_blocks_that_is_too_small_is_told_in_blocks() -> None:
    """131,072 tokens of 16 a block, and the block that is held back; a size of the cache would change nothing."""
    finding = refused_or_warned(small_llama(num_gpu_blocks_override=8192, kv_cache_memory_bytes="40GiB"))

    assert finding is not None
    assert "8192 blocks, 16.0 GiB is too small: one request of 131072 tokens takes 16.0 GiB in 8193 blocks" in (
        finding.message
    )
    assert "`memory.num_gpu_blocks_override: 8193`" in finding.help
    assert refused_or_warned(small_llama(num_gpu_blocks_override=8193)) is None


def test_a_number_of_blocks_that_is_too_large_is_told_in_blocks() -> None:
    finding = refused_or_warned(small_llama(num_gpu_blocks_override=90_000))
    assert finding is not None
    found = re.search(r"num_gpu_blocks_override: (\d+)`", finding.help)
    assert found is not None

    assert refused_or_warned(small_llama(num_gpu_blocks_override=int(found.group(1)))) is None
    assert refused_or_warned(small_llama(num_gpu_blocks_override=int(found.group(1)) + 1)) is not None


def test_fields_that_cannot_help_are_named() -> None:
    ledger = made(llama(), (line(Part.GRAPHS, 40), line(Part.OTHER, 90)))
    found = fitting_changes(llama().resolution, [ledger], lambda _: None)

    assert found.changes == ()
    assert found.helpless == (
        "memory.gpu_memory_utilization",
        "model.max_model_len",
        "parallel.tensor_parallel_size",
        "memory.max_cudagraph_memory",
    )


def test_the_widest_bound_on_graphs_is_named() -> None:
    """The next 64th of today's graph memory up is too much already."""
    spec = spec_of(
        "qwen3-30b-a3b", "h100", memory={"gpu_memory_utilization": 0.9},
        speculative={"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7},
        compilation={"max_prefill_cudagraph_capture_tokens": 8192, "max_decode_cudagraph_capture_requests": 256},
        scheduler={"max_num_seqs": 256, "max_num_batched_tokens": 8192},
    )  # fmt: skip
    finding = refused_or_warned(spec)
    assert finding is not None
    found = re.search(r"max_cudagraph_memory: (\d+)MiB", finding.help)
    assert found is not None
    bare = {**spec, "compilation": {}}

    def said(megabytes: int) -> Diagnostic | None:
        return refused_or_warned(bare | {"memory": {**spec["memory"], "max_cudagraph_memory": f"{megabytes}MiB"}})

    whole = compiled(spec).ledger
    assert whole is not None
    bound = int(found.group(1))
    assert said(bound) is None
    assert said(bound + whole.of(Part.GRAPHS).size // 64 // (1 << 20) + 1) is not None


def test_the_place_and_the_message_are_of_one_shortage() -> None:
    """The share may be more than is free; that the blocks are too few is certain, and told where they are written."""
    finding = refused_or_warned(
        spec_of("llama-3.1-8b", "l4", memory={"num_gpu_blocks_override": 100, "gpu_memory_utilization": 0.97})
    )
    assert finding is not None

    assert "100 blocks" in finding.message
    assert "gpu_memory_utilization" not in finding.help
    assert finding.place.range is not None
    spec = json.dumps(spec_of("llama-3.1-8b", "l4", memory={"num_gpu_blocks_override": 100}))
    assert finding.place.range.start.column == spec.index("100}") + 1


def test_a_context_that_nobody_asked_for_is_no_advice() -> None:
    """A few tokens would fit, of 131,072."""
    finding = refused_or_warned(spec_of("llama-3.1-8b", "l4", memory={"gpu_memory_utilization": 0.76}))

    assert finding is not None
    assert "`model.max_model_len: " not in finding.help
