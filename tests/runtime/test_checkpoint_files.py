"""Sizes of tensors from the headers of safetensors files, and the weights lines that follow from them."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.checkpoint import Checkpoint, checkpoint_of
from servespec.compiler.memory.document import ledger_json
from servespec.compiler.memory.ledger import Ledger
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.plan import Plan
from servespec.provenance import Basis
from servespec.runtime.checkpoint_files import INDEX_FILE, SINGLE_FILE, CheckpointError, read_checkpoint
from tests.memory_cases import FP8, eagle3_of, written
from tests.plans import codes_of, compiled, planned

SMALL: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "vocab_size": 1000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
LAYER = {
    "input_layernorm": 256, "post_attention_layernorm": 256, "self_attn.q_proj": 256 * 256,
    "self_attn.k_proj": 128 * 256, "self_attn.v_proj": 128 * 256, "self_attn.o_proj": 256 * 256,
    "self_attn.q_norm": 64, "self_attn.k_norm": 64, "mlp.gate_proj": 512 * 256, "mlp.up_proj": 512 * 256,
    "mlp.down_proj": 512 * 256,
}  # fmt: skip


def tensors(layers: int = 2) -> dict[str, int]:
    """Elements of every tensor of ``SMALL``, by its name in the files."""
    own = {
        f"model.layers.{index}.{name}.weight": elements for index in range(layers) for name, elements in LAYER.items()
    }
    ends = {"model.embed_tokens.weight": 1000 * 256, "lm_head.weight": 1000 * 256, "model.norm.weight": 256}
    return own | ends


def write_safetensors(file: Path, elements: dict[str, int]) -> None:
    """A file with a header and holes where the tensors would be."""
    header, offset = {}, 0
    for name, count in elements.items():
        header[name] = {"dtype": "BF16", "shape": [count], "data_offsets": [offset, offset + 2 * count]}
        offset += 2 * count
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with file.open("wb") as opened:
        opened.write(struct.pack("<Q", len(raw)) + raw)
        opened.truncate(8 + len(raw) + offset)


def sharded(folder: Path, elements: dict[str, int], total: int | None = None) -> None:
    names = list(elements)
    shards = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for shard, kept in shards.items():
        write_safetensors(folder / shard, {name: elements[name] for name in kept})
    size = 2 * sum(elements.values()) if total is None else total
    weight_map = {name: shard for shard, kept in shards.items() for name in kept}
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}))


def plan_of(folder: Path, config: dict[str, Any], **sections: Any) -> Plan:
    spec = {
        "servespec": 1, "model": {"id": written(folder, config)}, "hardware": {"gpu": "l4"},
        "engine": {"version": "0.33.0"},
    }  # fmt: skip
    return compiled(spec | sections)


def ledger_of(plan: Plan) -> Ledger:
    assert plan.ledger is not None
    return plan.ledger


def weights(plan: Plan) -> list[MemoryLine]:
    return [line for line in ledger_of(plan).lines if line.part is Part.WEIGHTS and line.holder is Holder.TARGET]


def test_one_file_and_several_hold_the_same(tmp_path: Path) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    one.mkdir()
    several.mkdir()
    write_safetensors(one / SINGLE_FILE, tensors())
    sharded(several, tensors(), total=1)

    found = [read_checkpoint(folder, 2) for folder in (one, several)]

    assert [checkpoint and checkpoint.size for checkpoint in found] == [2 * sum(tensors().values())] * 2


def test_layers_past_the_models_own_are_the_drafters(tmp_path: Path) -> None:
    write_safetensors(tmp_path / SINGLE_FILE, tensors(3) | {"mtp.0.norm.weight": 256})
    found = read_checkpoint(tmp_path, 2)

    assert found is not None
    assert found.drafter == 2 * (sum(LAYER.values()) + 256)
    assert found.own == 2 * sum(tensors(2).values())


@pytest.mark.parametrize(
    ("name", "is_past"),
    [
        ("model.layers.1.mlp.up_proj.weight", False),
        ("model.layers.2.mlp.up_proj.weight", True),
        ("model.language_model.layers.2.mlp.up_proj.weight", True),
        ("mtp.0.attn.wkv.weight", True),
        ("vision_tower.encoder.layers.26.mlp.fc1.weight", False),
        ("model.visual.blocks.26.mlp.fc1.weight", False),
        ("lm_head.weight", False),
    ],
)
def test_encoders_count_their_own_layers(name: str, is_past: bool) -> None:
    assert checkpoint_of("a", {name: 8}, 2).drafter == (8 if is_past else 0)


def test_an_index_alone_gives_its_total(tmp_path: Path) -> None:
    sharded(tmp_path, tensors())
    for shard in tmp_path.glob("*.safetensors"):
        shard.unlink()

    assert read_checkpoint(tmp_path, 2) == Checkpoint(file=INDEX_FILE, size=2 * sum(tensors().values()), drafter=None)  # type: ignore[arg-type]


def test_a_folder_without_safetensors_tells_nothing(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path, 2) is None


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        (SINGLE_FILE, b"\x01", "too short"),
        (SINGLE_FILE, b"\xff" * 16, "no header"),
        (SINGLE_FILE, struct.pack("<Q", 3) + b"abc", "not JSON"),
        (SINGLE_FILE, struct.pack("<Q", 14) + b'{"a": {"b":1}}', "no place for its tensor `a`"),
        (SINGLE_FILE, struct.pack("<Q", 2) + b"[]", "not a JSON mapping"),
        (INDEX_FILE, b"{}", "no `weight_map`"),
        (INDEX_FILE, b'{"weight_map": {"a": "x.safetensors"}}', "no `metadata.total_size`"),
    ],
)
def test_a_damaged_file_is_told_and_the_formula_counts(tmp_path: Path, name: str, raw: bytes, said: str) -> None:
    folder = tmp_path / "model"
    alone = plan_of(folder, SMALL)
    (folder / name).write_bytes(raw)

    with pytest.raises(CheckpointError, match=said):
        read_checkpoint(folder, 2)

    damaged = plan_of(folder, SMALL)
    assert [finding.code for finding in damaged.diagnostics if finding.code == "R012"] == ["R012"]
    assert weights(damaged) == weights(alone)


def test_the_formula_and_the_files_are_one(tmp_path: Path) -> None:
    """All tensors of a known model: nothing is left between the formula and the files."""
    by_formula = sum(line.size for line in weights(plan_of(tmp_path / "model", SMALL)))
    sharded(tmp_path / "model", tensors())

    lines = weights(plan_of(tmp_path / "model", SMALL))

    rest = next(line for line in lines if "files" in line.owner)
    assert rest.size == 0
    assert sum(line.size for line in lines) == by_formula
    assert {line.basis for line in lines} == {Basis.EXACT}


def test_what_the_formula_does_not_name_is_a_line(tmp_path: Path) -> None:
    more = tensors() | {"visual.patch_embed.weight": 12345}
    plan = plan_of(tmp_path / "model", SMALL)
    sharded(tmp_path / "model", more)

    rest = next(line for line in weights(plan_of(tmp_path / "model", SMALL)) if "files" in line.owner)

    assert (rest.owner, rest.size, rest.low, rest.high) == ("in the files and in no formula", *[2 * 12345] * 3)
    assert plan.ledger is not None


def test_a_guess_becomes_exact_by_the_files(tmp_path: Path) -> None:
    guessed = SMALL | {"architectures": ["NewForCausalLM"]}
    wide = weights(plan_of(tmp_path / "model", guessed))
    sharded(tmp_path / "model", tensors())

    lines = weights(plan_of(tmp_path / "model", guessed))

    assert all(line.low < line.size < line.high for line in wide)
    assert all(line.low == line.size == line.high for line in lines)
    assert sum(line.size for line in lines) == 2 * sum(tensors().values()) + 2 * (2 * 24 * 256 + 4096 * 64)


def test_ranks_share_the_rest_by_the_formula(tmp_path: Path) -> None:
    plan_of(tmp_path / "model", SMALL)
    sharded(tmp_path / "model", tensors() | {"visual.patch_embed.weight": 1 << 20})
    two = {"hardware": {"gpu": "l4", "count": 2}, "parallel": {"tensor_parallel_size": 2}}

    rest = next(line for line in weights(plan_of(tmp_path / "model", SMALL, **two)) if "files" in line.owner)

    assert 1 << 20 <= rest.size < rest.high == 1 << 21
    assert rest.basis is Basis.ESTIMATE


def test_layers_that_no_formula_knows_are_as_large_as_their_files(tmp_path: Path) -> None:
    unknown = SMALL | {"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2"}
    assert weights(plan_of(tmp_path / "model", unknown)) == []
    sharded(tmp_path / "model", tensors())

    plan = plan_of(tmp_path / "model", unknown)
    (line,) = weights(plan)
    totals = ledger_json(ledger_of(plan))["totals"]

    assert (line.size, line.basis) == (2 * sum(tensors().values()), Basis.EXACT)
    assert totals["weights_bytes"] == line.size
    assert totals["activation_peak_bytes"] is None
    assert totals["kv_cache_bytes"] is None


@pytest.mark.parametrize(
    "model",
    [
        {"load_format": "dummy"},
        {"quantization": "fp8"},
        {"dtype": "float32"},
        {"hf_overrides": {"num_hidden_layers": 1}},
    ],
    ids=lambda one: next(iter(one)),
)
def test_files_do_not_count_where_the_engine_stores_something_else(tmp_path: Path, model: dict[str, Any]) -> None:
    folder = written(tmp_path / "model", SMALL)
    sharded(tmp_path / "model", tensors())

    plan = compiled(
        {
            "servespec": 1,
            "model": {"id": folder, **model},
            "hardware": {"gpu": "l4"},
            "engine": {"version": "0.33.0"},
        }
    )

    assert not any("files" in line.owner for line in weights(plan))


def test_a_kernels_padding_stays_open(tmp_path: Path) -> None:
    plan_of(tmp_path / "model", SMALL | FP8)
    sharded(tmp_path / "model", tensors())

    lines = weights(plan_of(tmp_path / "model", SMALL | FP8))

    assert any(line.low == line.size < line.high for line in lines)


def test_a_heads_files_bound_what_it_may_hold(tmp_path: Path) -> None:
    """Its files have no vocabulary, so that nothing of one may be kept."""
    target, draft = written(tmp_path / "target", SMALL), written(tmp_path / "draft", eagle3_of(SMALL))
    spec = {
        "servespec": 1, "model": {"id": target}, "hardware": {"gpu": "l4"}, "engine": {"version": "0.33.0"},
        "speculative": {"method": "eagle3", "model": draft, "num_speculative_tokens": 3},
    }  # fmt: skip

    def bar() -> int:
        plan = compiled(spec)
        line = next(line for line in ledger_of(plan).lines if line.owner == "EAGLE3 head")
        return line.high - line.size

    wide = bar()
    write_safetensors(tmp_path / "draft" / SINGLE_FILE, {"midlayer.mlp.down_proj.weight": 512 * 256})

    assert bar() < wide
    assert "R012" not in codes_of(planned(spec))
