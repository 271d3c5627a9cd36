"""The engine's whole config resolution against the lifted pieces of it.

A piece can be lifted faithfully and still be fed what the engine would never feed it; here the engine goes
all the way from its arguments to the sizes, and the lifted pieces must arrive at the same values.
"""

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.differential import engine_oracle as oracle
from tests.differential.engine_process import PYTHON, resolve_real
from tests.differential.stand_ins import Machine, Speculation

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with torch"),
    pytest.mark.skipif(not oracle.available_roots(), reason="no engine under .engines"),
]

MACHINES = {
    "h200": Machine(capability=(9, 0), name="NVIDIA H200", memory_bytes=150_110_011_392),
    "gb200": Machine(capability=(10, 0), name="NVIDIA GB200", memory_bytes=198_642_237_440),
}
MAX_MODEL_LEN = 32768
SMALL = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": MAX_MODEL_LEN,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}
QWEN3 = {**SMALL, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6}
EAGLE3 = {**SMALL, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1}
GPT_OSS = {
    **SMALL,
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 64,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
BREAKABLE = {**QWEN3, "architectures": ["KimiLinearForCausalLM"]}


def case(model: dict[str, Any] = QWEN3, k: int = 0, schedule: Any = None, **args: Any) -> dict[str, Any]:
    if k == 0:
        return {"model": model, "draft": None, "args": args}
    speculative = {"method": "eagle3", "num_speculative_tokens": k}
    if schedule is not None:
        speculative["num_speculative_tokens_per_batch_size"] = schedule
    return {"model": model, "draft": EAGLE3, "args": {**args, "speculative_config": speculative}}


CASES: dict[str, dict[str, Any]] = {
    "plain": case(),
    "k1": case(k=1),
    "k2": case(k=2),
    "k5": case(k=5),
    "k15": case(k=15),
    "few requests": case(k=7, max_num_seqs=8),
    "odd requests": case(k=6, max_num_seqs=101),
    "small step": case(max_num_seqs=300, max_num_batched_tokens=333),
    "small step, k3": case(k=3, max_num_batched_tokens=1500),
    "tiers 7 3 1": case(k=7, schedule=[[1, 16, 7], [17, 128, 3], [129, 2000, 1]]),
    "tiers with a gap": case(k=5, schedule=[[1, 4, 5], [32, 40, 2]], max_num_seqs=97),
    "interactivity": case(performance_mode="interactivity", max_num_seqs=100),
    "throughput": case(k=3, performance_mode="throughput"),
    "list": case(k=3, cudagraph_capture_sizes=[96, 1, 4, 96, 40000]),
    "maximum": case(k=6, max_num_seqs=6, max_cudagraph_capture_size=42),
    "both, not agreeing": case(cudagraph_capture_sizes=[1, 8], max_cudagraph_capture_size=16),
    "empty list": case(cudagraph_capture_sizes=[]),
    "eager": case(enforce_eager=True),
    "full": case(compilation_config={"cudagraph_mode": "FULL"}),
    "O0": case(optimization_level=0),
    "not compiled": case(compilation_config={"mode": 0}),
    "gpt-oss": case(GPT_OSS),
    "gpt-oss, k": case(GPT_OSS, k=5),
    "breakable": case(BREAKABLE),
}
REFUSED = {"both, not agreeing", "empty list"}


@functools.cache
def real_answers(root: Path, machine: str) -> Any:
    return resolve_real(root, MACHINES[machine], list(CASES.values()))


@pytest.fixture(
    params=[(root, machine) for root in oracle.available_roots() for machine in MACHINES],
    ids=lambda pair: f"{pair[0].name}-{pair[1]}",
)
def resolved(request: pytest.FixtureRequest) -> tuple[Path, str, dict[str, Any]]:
    root, machine = request.param
    answers = real_answers(root, machine)
    assert Path(answers["file"]).is_relative_to(root.resolve())
    return root, machine, dict(zip(CASES, answers["answers"], strict=True))


def lifted_batch(root: Path, machine: str, args: dict[str, Any]) -> oracle.BatchDefaults:
    return oracle.batch_defaults(
        root,
        MACHINES[machine],
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=args.get("max_num_seqs"),
        max_num_batched_tokens=args.get("max_num_batched_tokens"),
        performance_mode=args.get("performance_mode", "balanced"),
    )


def lifted_sizes(root: Path, machine: str, name: str, real: dict[str, Any]) -> Any:
    args = CASES[name]["args"]
    speculative = args.get("speculative_config", {})
    batch = lifted_batch(root, machine, args)
    return oracle.stock_capture_sizes(
        root,
        sm100=machine == "gb200",
        max_num_seqs=batch.max_num_seqs,
        max_num_batched_tokens=batch.max_num_batched_tokens,
        num_speculative_tokens=speculative.get("num_speculative_tokens", 0),
        schedule=speculative.get("num_speculative_tokens_per_batch_size"),
        mode=real.get("cudagraph_mode", "FULL_AND_PIECEWISE"),
        performance_mode=args.get("performance_mode", "balanced"),
        max_size=args.get("max_cudagraph_capture_size"),
        sizes=args.get("cudagraph_capture_sizes"),
        enforce_eager=args.get("enforce_eager", False),
        gpt_oss=CASES[name]["model"] is GPT_OSS,
    )


@pytest.mark.parametrize("name", CASES)
def test_sizes(resolved: tuple[Path, str, dict[str, Any]], name: str) -> None:
    root, machine, answers = resolved
    real = answers[name]

    lifted = lifted_sizes(root, machine, name, real)

    if "refusal" in real:
        # A validator wraps what the method raises.
        assert isinstance(lifted, oracle.Refusal)
        assert lifted.message in real["message"]
    else:
        assert lifted == (tuple(real["capture_sizes"]), real["max_capture_size"])


@pytest.mark.parametrize("name", sorted(CASES.keys() - REFUSED))
def test_batch_limits(resolved: tuple[Path, str, dict[str, Any]], name: str) -> None:
    root, machine, answers = resolved
    real = answers[name]

    assert lifted_batch(root, machine, CASES[name]["args"]) == (
        real["max_num_seqs"],
        real["max_num_batched_tokens"],
    )


def test_only_the_cases_meant_to_be_refused_are(resolved: tuple[Path, str, dict[str, Any]]) -> None:
    _, _, answers = resolved

    refused = {name for name, real in answers.items() if "refusal" in real}

    assert refused == REFUSED


def test_modes(resolved: tuple[Path, str, dict[str, Any]]) -> None:
    _, _, answers = resolved
    modes = {name: real["cudagraph_mode"] for name, real in answers.items() if "refusal" not in real}

    assert {name: mode for name, mode in modes.items() if mode != "FULL_AND_PIECEWISE"} == {
        "eager": "NONE",
        "full": "FULL",
        "O0": "NONE",
        "not compiled": "FULL_DECODE_ONLY",
    }


def test_breakable_graphs_and_the_model_runner(resolved: tuple[Path, str, dict[str, Any]]) -> None:
    root, _, answers = resolved
    accepted = {name: real for name, real in answers.items() if "refusal" not in real}
    breakable = {name for name, real in accepted.items() if real["breakable_graphs"]}

    assert breakable == {
        name for name in accepted if set(CASES[name]["model"]["architectures"]) & oracle.breakable_architectures(root)
    }
    assert {name: real["v2_model_runner"] for name, real in accepted.items()} == {
        name: oracle.uses_v2_model_runner(
            root, speculation=Speculation(num_speculative_tokens=1) if CASES[name]["draft"] else None
        )
        for name in accepted
    }
