"""Weights of checkpoints that leave some modules unquantized, by hand: bytes and bars of each way to list them."""

from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.left_plain import LeftPlain, Naming, left_plain
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from tests.memory_cases import QWEN3_8B, planned_model

GIB = 1 << 30
HIDDEN, INNER, LAYERS = 4096, 12288, 36
ATTENTION = LAYERS * HIDDEN * ((32 + 2 * 8) * 128 + 32 * 128)
MLP = LAYERS * 3 * HIDDEN * INNER
SELF_ATTENTION = [f"model.layers.{layer}.self_attn" for layer in range(LAYERS)]
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}}},
}
FLOATS = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}
    },
}


def lines(folder: Path, section: dict[str, Any]) -> dict[str, MemoryLine]:
    ledger = planned_model(folder, QWEN3_8B | {"quantization_config": section}).ledger
    assert ledger is not None
    return {line.owner: line for line in ledger.lines if line.part is Part.WEIGHTS and line.holder is Holder.TARGET}


@pytest.mark.parametrize(
    "section",
    [
        FP8 | {"modules_to_not_convert": [f"{name}.{one}_proj" for name in SELF_ATTENTION for one in "qkvo"]},
        NVFP4 | {"ignore": ["lm_head", "*self_attn*"]},
        NVFP4 | {"exclude_modules": SELF_ATTENTION},
        {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "exclude_modules": ["*.self_attn*"]}},
        AWQ | {"modules_to_not_convert": ["self_attn"]},
        PACKED | {"ignore": ["lm_head", "re:.*self_attn.*"]},
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*self_attn.*": {}}},
    ],
    ids=["fp8", "nvfp4-pattern", "nvfp4-parents", "modelopt-below", "awq", "compressed", "gptq"],
)  # fmt: skip
def test_attention_that_is_left_plain(tmp_path: Path, section: dict[str, Any]) -> None:
    found = lines(tmp_path, section)

    assert found["attention"].size == 2 * ATTENTION
    assert found["MLP"].high < 2 * MLP


def test_one_matrix_of_some_layers(tmp_path: Path) -> None:
    named = [f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1, LAYERS - 1)]
    plain = lines(tmp_path / "plain", FP8)["MLP"].size
    skipped = lines(tmp_path / "skipped", FP8 | {"modules_to_not_convert": named})["MLP"].size

    scales = HIDDEN * INNER // 128 // 128 * 4
    assert skipped - plain == len(named) * (HIDDEN * INNER - scales)


@pytest.mark.parametrize("outer", ["model.language_model.", "language_model.model.", "language_model."])
def test_names_below_a_language_model(tmp_path: Path, outer: str) -> None:
    named = [f"{outer}layers.{layer}.self_attn.o_proj" for layer in range(LAYERS)]
    found = lines(tmp_path, FP8 | {"modules_to_not_convert": named})["attention"]

    assert found.size > ATTENTION + LAYERS * HIDDEN * HIDDEN


def test_names_that_no_formula_knows_widen_the_bar(tmp_path: Path) -> None:
    named = lines(tmp_path / "named", FP8 | {"modules_to_not_convert": ["model.layers.3.token_mixer.in_proj"]})
    usual = lines(tmp_path / "usual", FP8 | {"modules_to_not_convert": ["lm_head", "model.layers.36.eh_proj"]})

    assert named["MLP"].size == usual["MLP"].size
    assert named["MLP"].high >= 2 * MLP > usual["MLP"].high


def test_four_bit_floats_have_scales_of_eight_bits(tmp_path: Path) -> None:
    packed, own = lines(tmp_path / "packed", FLOATS), lines(tmp_path / "own", NVFP4)

    assert packed["MLP"].size == own["MLP"].size == (MLP * 4 + MLP // 16 * 8) // 8


@pytest.mark.parametrize(
    ("naming", "entry", "is_met"),
    [
        (Naming.WHOLE, "model.layers.0.mlp.experts.7.down_proj", True),
        (Naming.WHOLE, "mlp.experts", False),
        (Naming.PART, "experts", True),
        (Naming.WILDCARD, "model.layers.?.mlp.exp*", True),
        (Naming.WILDCARD, "layers.?.mlp.exp*", False),
        (Naming.EXPRESSION, "re:.*experts", True),
        (Naming.EXPRESSION, "experts", False),
    ],
)
def test_experts_are_left_plain_together(naming: Naming, entry: str, is_met: bool) -> None:
    assert LeftPlain((entry,), naming).has(("mlp.experts",), 0) is is_met


def test_an_expression_that_is_none_meets_nothing(tmp_path: Path) -> None:
    found = lines(tmp_path, PACKED | {"ignore": ["re:.*["]})

    assert found["attention"].size < ATTENTION
    assert found["attention"].high >= 2 * ATTENTION


def test_the_first_of_two_lists_is_read() -> None:
    both = {"ignored_layers": ["lm_head"], "modules_to_not_convert": ["model.layers.0.self_attn.o_proj"]}

    assert not left_plain("fp8", both).has(("self_attn.o_proj",), 0)
    assert left_plain("fp8", both | {"ignored_layers": []}).has(("self_attn.o_proj",), 0)


def test_the_name_of_a_joined_matrix_stands_for_its_parts() -> None:
    found = left_plain("fp8", {"ignored_layers": ["model.layers.1.self_attn.qkv_proj"]})

    assert found.has(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), 1)
    assert not found.has(("self_attn.o_proj",), 1)


def test_a_checkpoint_that_lists_nothing_leaves_nothing() -> None:
    assert not left_plain("fp8", {}).has(("self_attn.o_proj",), 0)
    assert not left_plain("fp8", {"ignored_layers": None}).entries
