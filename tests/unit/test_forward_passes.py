"""Widths of the forward pass of models as the engine's layers have them, and what they make of graph memory."""

import json
from pathlib import Path

import pytest

from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.forward_passes import target_pass, untold
from servespec.compiler.plan import Plan
from tests.plans import MODELS, compiled, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

DEEPSEEK_V3 = MODELS / "deepseek-v3/config.json"
BF16_BYTES, HEADS_PER_RANK, VALUE_WIDTH, LATENT_WIDTH, QUERY_WIDTH = 2, 16, 128, 512, 128 + 64
FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def on_eight(folder: Path, *, breakable: bool = False, without: str = "") -> Plan:
    """DeepSeek-V3 with FP8 blocks."""
    config = {**json.loads(DEEPSEEK_V3.read_text()), "quantization_config": FP8_BLOCKS}
    config.pop(without, None)
    (folder / "config.json").write_text(json.dumps(config))
    spec = spec_of("deepseek-v3", "h200", parallel={"tensor_parallel_size": 8})
    compilation = {"max_prefill_cudagraph_capture_tokens": 8192, "breakable_cudagraph": breakable}
    scheduler = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
    here = {"hardware": {"gpu": "h200", "count": 8}, "compilation": compilation, "scheduler": scheduler}
    return compiled({**spec, **here, "model": {"id": str(folder)}})


@pytest.mark.parametrize("breakable", [False, True])
def test_plain_mla_hands_on_outputs_as_wide_as_its_values(tmp_path: Path, breakable: bool) -> None:
    """The latent ones are in its operator, of its queries too."""
    forward = target_pass(on_eight(tmp_path, breakable=breakable).resolution, splits=1)

    assert isinstance(forward, ForwardPass)
    assert forward.output == BF16_BYTES * HEADS_PER_RANK * VALUE_WIDTH
    assert forward.query == BF16_BYTES * HEADS_PER_RANK * QUERY_WIDTH
    assert forward.latents == (BF16_BYTES * HEADS_PER_RANK * LATENT_WIDTH,) * 2


def test_a_width_of_values_that_the_config_does_not_tell_is_named(tmp_path: Path) -> None:
    told, missing = on_eight(tmp_path), on_eight(tmp_path, without="v_head_dim")

    assert untold(told.resolution.request.target) == ()
    assert untold(missing.resolution.request.target) == ("v_head_dim",)


def test_pieces_of_plain_mla_hold_outputs_of_that_width(tmp_path: Path) -> None:
    """Not the latent width, of which an output alone would be 128 MiB more."""
    ledger = on_eight(tmp_path).ledger
    assert ledger is not None
    (line,) = (one for one in ledger.lines if one.owner == "target: activations in PIECEWISE graphs")

    assert line.size >> 20 == 704
