"""Values that the engine refuses because of the model: a context that is too long, and what rules every backend out."""

from typing import Any

import pytest

from servespec.diagnostics import SpecError
from tests.plans import compiled, spec_of


def refusals(**sections: Any) -> list[str]:
    """The fields that the engine refuses."""
    spec = spec_of("qwen3-8b", "h200")
    for name, values in sections.items():
        spec[name] = {**spec.get(name, {}), **values}
    try:
        compiled(spec)
    except SpecError as error:
        return [finding.message.split("`")[1] for finding in error.diagnostics if finding.code == "R101"]
    return []


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ({"max_model_len": 40960}, False),
        ({"max_model_len": 40961}, True),
        ({"max_model_len": 81920, "hf_overrides": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}}, False),
        ({"max_model_len": 81920, "hf_overrides": {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}}, True),
        ({"max_model_len": 81920, "hf_overrides": {"max_position_embeddings": 81920}}, False),
        ({"max_model_len": 4096, "disable_sliding_window": True}, False),
    ],
)
def test_a_context_ends_where_the_models_config_says(model: dict[str, Any], refused: bool) -> None:
    assert refusals(model=model) == (["model.max_model_len"] if refused else [])


def test_a_variable_lifts_the_limit() -> None:
    assert refusals(model={"max_model_len": 81920}, engine={"env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": 1}}) == []


def test_without_windows_a_context_ends_with_one() -> None:
    window = {"sliding_window": 4096, "use_sliding_window": True}

    assert refusals(model={"max_model_len": 8192, "hf_overrides": window}) == []
    assert refusals(model={"max_model_len": 8192, "hf_overrides": window, "disable_sliding_window": True}) == [
        "model.max_model_len"
    ]


@pytest.mark.parametrize(
    ("sections", "refused"),
    [
        ({"memory": {"block_size": 48}}, []),
        ({"memory": {"block_size": 17}}, ["memory.block_size"]),
        ({"memory": {"kv_cache_dtype": "fp8_ds_mla"}}, ["memory.kv_cache_dtype"]),
        ({"model": {"dtype": "half"}}, []),
        ({"model": {"dtype": "float"}}, []),
    ],
)
def test_a_value_that_rules_every_backend_out(sections: dict[str, Any], refused: list[str]) -> None:
    assert refusals(**sections) == refused
