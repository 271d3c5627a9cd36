"""Modules that a checkpoint leaves unquantized, against the engine's own comparisons of names."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.memory.left_plain import left_plain
from tests.differential import engine_oracle as oracle
from tests.differential.lifting import EngineText

ROOTS = oracle.available_roots()
roots = pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)

QUANTIZATION = "vllm.model_executor.layers.quantization"
FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
MATRICES = {
    "self_attn.qkv_proj": tuple(f"self_attn.{name}" for name in FUSED["qkv_proj"]),
    "self_attn.o_proj": ("self_attn.o_proj",),
    "mlp.gate_up_proj": tuple(f"mlp.{name}" for name in FUSED["gate_up_proj"]),
    "mlp.down_proj": ("mlp.down_proj",),
    "mlp.experts": ("mlp.experts",),
}
"""The engine's name of each matrix, and the checkpoint's names of what is joined in it."""
PARTS = (
    "self_attn",
    "mlp",
    "experts",
    ".q_proj",
    ".k_proj",
    ".v_proj",
    "o_proj",
    ".gate_proj",
    ".up_proj",
    "down_proj",
)
NAMES = [f"model.layers.{layer}.{part}" for layer in (0, 1) for own in MATRICES.values() for part in own]
PARENTS = [f"model.layers.{layer}.{part}" for layer in (0, 1) for part in ("self_attn", "mlp")]
ONE_EXPERT = [f"model.layers.0.mlp.experts.{expert}.down_proj" for expert in (0, 3)]
PATTERNS = ["*self_attn*", "*.mlp.*", "model.layers.1*", "*o_proj", "lm_head", "model.layers.?.mlp.exp*"]


def some_of(*entries: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(entries), max_size=6)


def answer(decide: Any, name: str) -> bool | None:
    """None where the engine refuses, because only some of what is joined in a matrix is named."""
    try:
        return bool(decide(name))
    except ValueError:
        return None


def compare(decide: Any, method: str, key: str, entries: list[str]) -> None:
    ours = left_plain(method, {key: entries})
    for layer in (0, 1):
        for matrix, modules in MATRICES.items():
            theirs = answer(decide, f"model.layers.{layer}.{matrix}")
            assert theirs in (None, ours.has(modules, layer)), (layer, matrix)


def skipped_by(root: Path, mode: str, entries: list[str]) -> Any:
    decide = EngineText(root, {}).get(f"{QUANTIZATION}.utils.quant_utils:is_layer_skipped")
    return lambda name: decide(name, entries, FUSED, match_mode=mode)


@roots
@given(entries=some_of(*NAMES, *PARENTS, *ONE_EXPERT))
def test_whole_names(root: Path, entries: list[str]) -> None:
    compare(skipped_by(root, "exact", entries), "fp8", "modules_to_not_convert", entries)


@roots
@given(entries=some_of(*NAMES, *PARTS, "layers.1.", "layers.0.mlp"))
def test_parts_of_names(root: Path, entries: list[str]) -> None:
    compare(skipped_by(root, "substring", entries), "awq", "modules_to_not_convert", entries)


@roots
@given(entries=some_of(*NAMES, *PARENTS, *ONE_EXPERT, *PATTERNS))
def test_patterns_of_modelopt(root: Path, entries: list[str]) -> None:
    part = EngineText(root, {}).part_of_class(f"{QUANTIZATION}.modelopt:ModelOptQuantConfigBase", ["is_layer_excluded"])
    config = part.__new__(part)
    config.exclude_modules, config.packed_modules_mapping = entries, FUSED

    compare(config.is_layer_excluded, "modelopt_fp4", "ignore", entries)
