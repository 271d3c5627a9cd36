"""The layers of each pipeline stage, against the engine's own division."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.memory.split import Split, layer_partition
from servespec.compiler.memory.stage import stages_of
from servespec.schema.spec import ServingSpec
from tests.differential import engine_oracle as oracle
from tests.differential.lifting import EngineText

roots = pytest.mark.parametrize("root", oracle.available_roots(), ids=lambda root: root.name)


def engines_layers(root: Path, layers: int, stages: int, written: str | None) -> list[range] | str:
    """Of each stage, or what the engine says of a division that it refuses."""
    quiet: Any = SimpleNamespace(info=lambda *_: None)
    envs = SimpleNamespace(VLLM_PP_LAYER_PARTITION=written)
    text = EngineText(root, {"vllm.envs": envs, "vllm.distributed.utils:logger": quiet})
    divide = text.get("vllm.distributed.utils:get_pp_indices")
    try:
        return [range(*divide(layers, stage, stages)) for stage in range(stages)]
    except ValueError as error:
        return str(error)


def spec_with(stages: int, written: str | None) -> ServingSpec:
    env = {} if written is None else {"VLLM_PP_LAYER_PARTITION": written}
    return ServingSpec.model_validate(
        {
            "servespec": 1,
            "model": {"id": "a/model"},
            "hardware": {"gpu": "h200", "count": stages},
            "parallel": {"pipeline_parallel_size": stages},
            "engine": {"env": env},
        }
    )


@roots
@given(layers=st.integers(1, 130), stages=st.integers(1, 9))
def test_even_stages(root: Path, layers: int, stages: int) -> None:
    counts = Split(pipeline=stages).layers(layers)

    assert [stage.of(counts) for stage in stages_of(spec_with(stages, None))] == engines_layers(
        root, layers, stages, None
    )


@roots
@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=6), data=st.data())
def test_stages_that_are_written(root: Path, counts: list[int], data: st.DataObject) -> None:
    layers = data.draw(st.sampled_from([sum(counts), sum(counts) + 1]).filter(bool))
    stages = data.draw(st.sampled_from([len(counts), len(counts) + 1]))
    written = data.draw(st.sampled_from([",", ", "])).join(map(str, counts))
    theirs, spec = engines_layers(root, layers, stages, written), spec_with(stages, written)
    partition = layer_partition(spec)

    if isinstance(theirs, str):
        assert partition is not None
        assert (len(partition), sum(partition)) != (stages, layers)
    else:
        shared = Split(pipeline=stages, partition=partition or ()).layers(layers)
        assert [stage.of(shared) for stage in stages_of(spec)] == theirs


@roots
@pytest.mark.parametrize("written", ["", "12;12", "12,", "twelve,12", "12.0,12"])
def test_what_is_no_division_at_all(root: Path, written: str) -> None:
    assert layer_partition(spec_with(2, written)) is None
    assert "Invalid partition string" in str(engines_layers(root, 24, 2, written))
