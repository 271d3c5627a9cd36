"""What specialised decode needs, against the engine's own checks of it, on seeded deployments."""

import ast
import json
import random
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servespec.compiler.checks.specialized_decode import NEEDS
from servespec.compiler.facts import specialized_decode as facts
from servespec.compiler.resolve.resolution import Resolution, resolve
from servespec.runtime.gather import Options, compile_request
from tests.differential.engine_oracle import engine_root
from tests.plans import Json, source_of

ROOT = engine_root("0.33.0")
pytestmark = [
    pytest.mark.usefixtures("quiet_shell"),
    pytest.mark.skipif(ROOT is None, reason="no engine under .engines"),
]

DEEPSEEK_FILE = "vllm/models/deepseek_v41/nvidia/specialized_decode/__init__.py"
KIMI_FILE = "vllm/models/kimi_k3/nvidia/specialized_decode/runtime/__init__.py"
CASES = 150


class Backend(Enum):
    FLASHINFER_MLA_SPARSE_DSV41 = "a"
    OTHER = "b"


class Mode(Enum):
    NONE = 0
    STOCK_TORCH_COMPILE = 1
    VLLM_COMPILE = 3


def lifted(file: str, given: dict[str, Any]) -> Any:
    """The function `unsupported` of a file of the engine, with its imports replaced by ``given``."""
    assert ROOT is not None
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    [function] = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "unsupported"]
    function.body = [one for one in function.body if not isinstance(one, ast.Import | ast.ImportFrom)]
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None
    names = dict(given)
    exec(compile(ast.Module([function], []), file, "exec"), names)  # noqa: S102 - the engine's own text
    return names["unsupported"]


def deployment(folder: Path, architecture: str, dice: random.Random) -> Json:
    """Most of what is needed is there most of the time."""

    def usual(value: Any, *others: Any) -> Any:
        return value if dice.random() < 0.8 else dice.choice(others)

    is_kimi = architecture == facts.KIMI_ARCHITECTURE
    tensor_ranks = usual(8 if is_kimi else 4, 2, 4, 8, 16)
    parallel = {
        "tensor_parallel_size": tensor_ranks,
        "pipeline_parallel_size": usual(1, 2),
        "data_parallel_size": usual(1, 2),
        "enable_expert_parallel": usual(False, True),
        "decode_context_parallel_size": usual(1, tensor_ranks, 2),
        "enable_dbo": usual(False, True),
    }
    speculative: Json | None = {
        "method": usual("dspark", "mtp"),
        "num_speculative_tokens": usual(5, 7, 8, 10),
        "enable_adaptive_verification": usual(False, True),
    }
    return {
        "servespec": 1,
        "model": {"id": str(folder), "enable_sleep_mode": usual(False, True)},
        "hardware": {"gpu": usual("gb200" if is_kimi else "gb300", "h200", "gb200"), "count": 64},
        "parallel": parallel,
        "attention": {
            "backend": usual("FLASHINFER_MLA_SPARSE_DSV41", "FLASHMLA"),
            "indexer_kv_dtype": usual("mxfp4", "fp8"),
            "indexer_sparse_logits": usual(True, False),
        },
        "memory": {"kv_cache_dtype": usual("fp8", "auto"), "use_replayssm": usual(False, True)},
        "speculative": usual(speculative, None),
        "lora": usual(None, {"max_loras": 1}),
        "compilation": {
            "cudagraph_mode": usual("FULL_AND_PIECEWISE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY"),
            "mode": usual("VLLM_COMPILE", "STOCK_TORCH_COMPILE", "NONE"),
        },
        "engine": {"version": "0.33.0", "model_runner": usual("v2", "v1")},
    }


def engines_config(spec: Json, resolution: Resolution) -> Any:
    """The engine's config of the same deployment, as far as its checks look; modes are those of the plan."""
    parallel, memory, drafting = spec["parallel"], spec["memory"], spec["speculative"]
    mode = resolution.frame.mode
    return SimpleNamespace(
        parallel_config=SimpleNamespace(
            **parallel, prefill_context_parallel_size=1, use_ubatching=parallel["enable_dbo"]
        ),
        attention_config=SimpleNamespace(
            **{**spec["attention"], "backend": Backend.__members__.get(spec["attention"]["backend"], Backend.OTHER)}
        ),
        speculative_config=None if drafting is None else SimpleNamespace(**drafting),
        compilation_config=SimpleNamespace(mode=Mode[spec["compilation"]["mode"]], cudagraph_mode=mode),
        cache_config=SimpleNamespace(
            cache_dtype=memory["kv_cache_dtype"], use_replayssm=memory["use_replayssm"], use_kda_recoverssm=False
        ),
        model_config=SimpleNamespace(
            enable_sleep_mode=spec["model"]["enable_sleep_mode"],
            hf_text_config=SimpleNamespace(
                hidden_act="situ", activation_situ_beta=4.0, activation_situ_linear_beta=25.0, num_experts=896,
                num_experts_per_token=16, num_expert_group=1, topk_group=1, moe_router_activation_func="sigmoid",
            ),
        ),
        lora_config=spec["lora"],
        kv_transfer_config=None,
        use_v2_model_runner=resolution.runner.value == "v2",
    )  # fmt: skip


def asked(folder: Path, architecture: str, file: str) -> list[tuple[Any, list[str]]]:
    """What the engine says of each deployment, and which needs the plan finds missing."""
    folder.joinpath("config.json").write_text(json.dumps({"architectures": [architecture]}), encoding="utf-8")
    dice = random.Random(17)  # noqa: S311 - the same deployments on every run
    found = []
    for _ in range(CASES):
        spec = deployment(folder, architecture, dice)
        resolution = resolve(compile_request(source_of(spec), Options()))
        major, minor = resolution.device.compute_capability
        platform = SimpleNamespace(
            is_device_capability=lambda wanted, now=10 * major + minor: wanted == now,
            is_device_capability_family=lambda wanted, now=major: wanted // 10 == now,
        )
        mode = type(resolution.frame.mode)
        given = {
            "current_platform": platform, "CUDAGraphMode": mode, "CompilationMode": Mode, "envs": SimpleNamespace(
                VLLM_BATCH_INVARIANT=False, VLLM_KIMI_K3_AUX_ATTN_RES_STREAM=False
            ),
            "AttentionBackendEnum": Backend, "supports_mhc_overlap": lambda _: True,
            "supports_mhc_all_reduce": lambda _: True, "kda_dtypes": lambda _: ("bf16", "fp32"),
            "torch": SimpleNamespace(bfloat16="bf16", float32="fp32"),
        }  # fmt: skip
        missing = [need.words for need in NEEDS[architecture] if not need.holds(resolution)]
        found.append((lifted(file, given)(engines_config(spec, resolution)), missing))
    return found


def test_deepseeks_needs_are_the_engines_one_by_one(tmp_path: Path) -> None:
    order = [need.words for need in NEEDS[facts.DEEPSEEK_ARCHITECTURE]]
    begins = {
        "a GB300": 0, "tensor parallel": 1, "DSpark": 2, "the FLASHINFER": 3, "FULL CUDA": 4, "no LoRA": 5,
        "Model Runner": 6, "no torch.compile": 7, "no sleep": 8,
    }  # fmt: skip
    seen: set[str] = set()
    for engines, missing in asked(tmp_path, facts.DEEPSEEK_ARCHITECTURE, DEEPSEEK_FILE):
        named = {order[at] for need in engines for begin, at in begins.items() if need.startswith(begin)}
        assert len(named) == len(engines), engines
        assert named == set(missing)
        seen |= named

    assert seen == set(order)


def test_kimis_are_refused_where_the_engine_refuses(tmp_path: Path) -> None:
    found = asked(tmp_path, facts.KIMI_ARCHITECTURE, KIMI_FILE)

    assert [reason is None for reason, _ in found] == [not missing for _, missing in found]
    assert {reason is None for reason, _ in found} == {True, False}
    assert {words for _, missing in found for words in missing} == {
        need.words for need in NEEDS[facts.KIMI_ARCHITECTURE]
    }
