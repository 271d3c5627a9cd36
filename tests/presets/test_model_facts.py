"""Facts that come with the package stand in for a model's own config, and never go before it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from servespec.diagnostics import SpecError
from servespec.presets.catalog import model_facts
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.shipped_facts import differences
from tests.plans import source_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

MODEL = "Qwen/Qwen3-8B"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def in_cache(cache: Path, config: Mapping[str, Any], model: str = MODEL) -> None:
    """A model that was downloaded, as the hub's library lays it down."""
    folder = cache / f"models--{model.replace('/', '--')}"
    for path, text in (("refs/main", "abc"), ("snapshots/abc/config.json", json.dumps(config))):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def shipped(model: str = MODEL) -> dict[str, Any]:
    facts = model_facts(model)
    assert facts is not None
    return dict(facts.config)


def request_of(model: Mapping[str, Any], **sections: Any) -> Any:
    spec = {"servespec": 1, "model": model, "hardware": {"gpu": "h200"}, **sections}
    return compile_request(source_of(spec), Options())


def codes(request: Any) -> list[str]:
    return [finding.code for finding in request.found]


def test_facts_stand_in_and_a_note_says_so() -> None:
    request = request_of({"id": MODEL})

    assert codes(request) == ["R015"]
    assert request.target.config == shipped()
    assert request.model_input["commit"] is None


def test_a_note_names_what_is_not_known() -> None:
    request = request_of({"id": "zai-org/GLM-5-FP8"})

    assert request.found[0].message.endswith("not known: the number and the width of the index heads")


def test_the_models_own_config_goes_before_them(cache: Path) -> None:
    in_cache(cache, {**shipped(), "num_hidden_layers": 12})
    request = request_of({"id": MODEL})

    assert codes(request) == ["R016"]
    assert "`num_hidden_layers` 12 (facts: 36)" in request.found[0].message
    assert request.target.config["num_hidden_layers"] == 12
    assert request.model_input["commit"] == "abc"


def test_equal_configs_are_not_spoken_of(cache: Path) -> None:
    in_cache(cache, {**shipped(), "rope_theta": 1000000})

    assert codes(request_of({"id": MODEL})) == []


def test_facts_of_a_draft_model_stand_in_too() -> None:
    drafts = {"method": "eagle3", "model": "Tengyunw/qwen3_8b_eagle3", "num_speculative_tokens": 3}
    request = request_of({"id": MODEL}, speculative=drafts)

    assert codes(request) == ["R015", "R015"]
    assert request.draft.config == shipped("Tengyunw/qwen3_8b_eagle3")


def test_a_revision_is_another_model() -> None:
    with pytest.raises(SpecError) as error:
        request_of({"id": MODEL, "revision": "main"})

    assert [finding.code for finding in error.value.diagnostics] == ["R001"]


def test_a_config_that_is_named_goes_before_all(tmp_path: Path) -> None:
    own = tmp_path / "config.json"
    own.write_text(json.dumps({**shipped(), "num_hidden_layers": 4}))
    spec = {"servespec": 1, "model": {"id": MODEL}, "hardware": {"gpu": "h200"}}
    request = compile_request(source_of(spec), Options(model_config=own))

    assert (codes(request), request.target.config["num_hidden_layers"]) == ([], 4)


@pytest.mark.parametrize("name", ["..", ".", "../models", "Qwen", "", "source.json", "Qwen--Qwen3-8B"])
def test_a_name_that_is_no_model_has_no_facts(name: str) -> None:
    assert model_facts(name) is None


# Where two configs differ


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({}, []),
        ({"hidden_size": 1}, []),
        ({"hidden_size": 2}, ["`hidden_size` 2 (facts: 1)"]),
        ({"text_config": {"hidden_size": 2}}, ["`hidden_size` 2 (facts: 1)"]),
        ({"torch_dtype": "bfloat16"}, []),
        ({"torch_dtype": "float16"}, ["`dtype` float16 (facts: bfloat16)"]),
        ({"quantization_config": {"quant_method": "fp8", "sizes": [1], "more": 2}}, []),
        ({"quantization_config": {"quant_method": "fp8", "sizes": [2]}}, ["`quantization_config`"]),
        ({"quantization_config": None}, ["`quantization_config` None"]),
    ],
)
def test_differences(own: dict[str, Any], found: list[str]) -> None:
    facts = {"hidden_size": 1, "dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "sizes": [1]}}
    said = list(differences(facts, own))

    assert len(said) == len(found)
    assert all(one.startswith(wanted) for one, wanted in zip(said, found, strict=True))


def test_long_values_are_cut() -> None:
    said = list(differences({"layer_types": ["full"] * 40}, {"layer_types": ["sliding"] * 40}))

    assert len(said[0]) < 120
