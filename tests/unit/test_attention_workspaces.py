"""Workspaces of attention kernels in the ledger: of whom, how large, and whether the engine's budget holds them."""

from typing import Any

import pytest

from servespec.compiler.memory.line import Holder, MemoryLine
from tests.plans import compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

MIB = 1 << 20
EAGLE3 = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
TOKENS = {"max_num_batched_tokens": 16384}


def workspaces(model: str, gpu: str, *, count: int = 1, env: dict[str, str] | None = None, **sections: Any) -> Any:
    """Each workspace's backend and kind with its holder: the line."""
    engine = {"version": "0.33.0", "env": env or {}}
    spec = spec_of(model, gpu, **{"engine": engine, **sections, "hardware": {"gpu": gpu, "count": count}})
    ledger = compiled(spec).ledger
    assert ledger is not None
    lines = [line for line in ledger.lines if line.owner.endswith(("made with the KV cache", "kernels' workspace"))]
    assert len({(line.owner, line.holder) for line in lines}) == len(lines)
    return {(line.holder, line.owner.split(",")[0]): line for line in lines}


def ends(line: MemoryLine) -> tuple[float, float, float]:
    return line.low / MIB, line.size / MIB, line.high / MIB


PAGED = "FLASHINFER workspace"
KERNELS = "FLASHINFER kernels' workspace"


def test_target_and_drafter_have_one_each_and_the_process_has_one() -> None:
    found = workspaces("qwen3-8b", "b200", speculative=EAGLE3, scheduler=TOKENS)

    assert set(found) == {(Holder.TARGET, PAGED), (Holder.DRAFTER, PAGED), (Holder.TARGET, KERNELS)}
    # 16,384 tokens x 32 heads x 128 x 16 bytes; a launch names the target's backend and not the drafter's.
    assert ends(found[Holder.TARGET, PAGED]) == (1024, 1024, 1024)
    assert ends(found[Holder.DRAFTER, PAGED]) == (0, 1024, 1024)
    # Whether FlashInfer gets its TensorRT-LLM kernels is the machine's to say.
    assert ends(found[Holder.TARGET, KERNELS]) == (0, 394, 394)


def test_budget_holds_what_the_engine_profiles_with_its_graphs() -> None:
    found = workspaces("qwen3-8b", "b200", scheduler=TOKENS)

    assert [found[Holder.TARGET, name].is_budgeted for name in (PAGED, KERNELS)] == [False, True]


@pytest.mark.parametrize(
    "sections",
    [{"compilation": {"mode": "NONE", "cudagraph_mode": "NONE"}}, {"memory": {"estimate_cudagraph_memory": False}}],
)
def test_budget_holds_none_where_nothing_is_profiled(sections: Any) -> None:
    found = workspaces("qwen3-8b", "b200", scheduler=TOKENS, **sections)

    assert [line.is_budgeted for line in found.values()] == [False, False]


def test_flash_attention_has_none() -> None:
    assert workspaces("qwen3-8b", "h200", speculative=EAGLE3) == {}


def test_a_drafter_without_attention_has_none() -> None:
    ngram = {"method": "ngram_gpu", "num_speculative_tokens": 3}

    assert {holder for holder, _ in workspaces("qwen3-8b", "b200", speculative=ngram)} == {Holder.TARGET}


def test_few_tokens_take_what_is_configured() -> None:
    few = {"max_num_batched_tokens": 2048}

    assert workspaces("qwen3-8b", "b200", scheduler=few)[Holder.TARGET, PAGED].size == 394 * MIB
    larger = workspaces(
        "qwen3-8b", "b200", scheduler=few, env={"VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": str(700 * MIB)}
    )
    assert [line.size for line in larger.values()] == [700 * MIB] * 2


def test_batch_invariance_takes_two_gib() -> None:
    found = workspaces("qwen3-8b", "b200", env={"VLLM_BATCH_INVARIANT": "1"})

    assert found[Holder.TARGET, PAGED].size == 2048 * MIB


EIGHT = {"tensor_parallel_size": 8}


@pytest.mark.parametrize(
    ("model", "backend", "parallel", "mib"),
    [
        ("deepseek-v3", "FLASHINFER_MLA", EIGHT, 128),
        ("deepseek-v3", "FLASHINFER_MLA", {**EIGHT, "decode_context_parallel_size": 8}, 256),
        ("deepseek-v3.2", "FLASHINFER_MLA_SPARSE", EIGHT, 394),
    ],
)
def test_latent_kernels(model: str, backend: str, parallel: Any, mib: int) -> None:
    found = workspaces(model, "b200", count=8, parallel=parallel, attention={"backend": backend})

    assert {name: ends(line) for (_, name), line in found.items()} == {f"{backend} kernels' workspace": (mib, mib, mib)}


def test_sums_of_the_softmax_are_made_before_any_step() -> None:
    parallel = {**EIGHT, "decode_context_parallel_size": 8}
    backend = "FLASHINFER_MLA_SPARSE"
    found = workspaces(
        "deepseek-v3.2", "b200", count=8, parallel=parallel, attention={"backend": backend}, scheduler=TOKENS
    )

    # 8 bytes x 256 slots x 128 heads x 16,384 tokens, and the engine's own part.
    assert {name: line.size / MIB for (_, name), line in found.items()} == {f"{backend} workspace": 4096 + 394 + 1}
    assert not found[Holder.TARGET, f"{backend} workspace"].is_budgeted
