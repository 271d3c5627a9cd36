"""What is said of a config.json that is broken, and of values in it that cannot be meant."""

import json
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.facts.model_traits import laid_over
from servespec.diagnostics import Diagnostic, Position, SpecError
from servespec.runtime.gather import Options, compile_request
from servespec.schema.source import SpecSource
from tests.plans import MODELS, source_of, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")


def found_in(folder: Path, raw: str | bytes) -> tuple[Diagnostic, ...]:
    """The findings of a spec whose model folder holds ``raw`` as its config."""
    (folder / "config.json").write_bytes(raw.encode() if isinstance(raw, str) else raw)
    source = source_of({**spec_of("qwen3-8b", "h200"), "model": {"id": str(folder)}})
    try:
        return compile_request(source, Options()).found
    except SpecError as error:
        return error.diagnostics


@pytest.mark.parametrize(
    ("raw", "because", "at"),
    [
        ('{"architectures": ["A"],\n "hidden_size": 40', "expecting ',' delimiter at line 2, column 19", (2, 19)),
        ("", "expecting value at line 1, column 1", (1, 1)),
        ("[]", "it is a list", None),
        ("7", "it is a single value", None),
        (b'{"a": "\xff"}', "it is no text", None),
    ],
)
def test_a_broken_config_is_told_with_its_file_and_place(
    tmp_path: Path, raw: str | bytes, because: str, at: tuple[int, int] | None
) -> None:
    (finding,) = found_in(tmp_path, raw)
    (related,) = finding.related

    assert finding.code == "R002"
    assert finding.message.endswith(f"is not a JSON mapping: {because}")
    assert related.place.file == str(tmp_path / "config.json")
    assert (related.place.range and related.place.range.start) == (at and Position(*at))


def test_a_folder_on_the_command_line_is_that_of_its_config() -> None:
    source = source_of({**spec_of("qwen3-8b", "h200"), "model": {"id": "org/nowhere"}})
    folder = MODELS / "qwen3-8b"

    by_folder, by_file = (
        compile_request(source, Options(model_config=named)).model_input for named in (folder, folder / "config.json")
    )

    assert by_folder == by_file


def codes_with(folder: Path, **values: Any) -> list[str]:
    config = json.loads((MODELS / "qwen3-8b" / "config.json").read_text(encoding="utf-8"))
    return [finding.code for finding in found_in(folder, json.dumps({**config, **values}))]


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", "4096"), ("hidden_size", -4096), ("num_attention_heads", 32.5), ("vocab_size", True),
     ("dtype", "bfloat17"), ("torch_dtype", "torch.float15"), ("num_hidden_layers", 10**12)],
)  # fmt: skip
def test_a_value_that_cannot_be_meant(tmp_path: Path, key: str, value: Any) -> None:
    assert codes_with(tmp_path, **{key: value}) == ["R123"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_key_value_heads", [8, 4]), ("intermediate_size", None), ("moe_intermediate_size", 0),
     ("torch_dtype", "torch.bfloat16"), ("dtype", "float32")],
)  # fmt: skip
def test_a_value_that_models_have(tmp_path: Path, key: str, value: Any) -> None:
    assert codes_with(tmp_path, **{key: value}) == []


@pytest.mark.parametrize(
    ("names", "model_type", "codes"),
    [
        (["Qwen3ForCausalLM"], "qwen3", []),
        (["Unknown", "Qwen3ForCausalLM"], "qwen3", []),
        (["Qwen3ForSequenceClassification"], "qwen3", []),
        (["Eagle3LlamaForCausalLM"], "llama", []),
        (["Qwen3ForCausalLLM"], "qwen3", ["R125"]),
        ([], "qwen3", []),
        ([], None, ["R124"]),
        ("Qwen3ForCausalLM", None, ["R124"]),
    ],
)
def test_the_architecture(tmp_path: Path, names: Any, model_type: str | None, codes: list[str]) -> None:
    assert codes_with(tmp_path, architectures=names, model_type=model_type) == codes


TEXT_LAYERS = "text_config.num_hidden_layers"


@pytest.mark.parametrize(
    ("model", "overrides", "config", "told"),
    [
        (
            "qwen3-8b",
            {"num_hidden_layers": 100000},
            {},
            [("num_hidden_layers", "hf_overrides", "`num_hidden_layers` in `hf_overrides` is `100000`")],
        ),
        (
            "paligemma-3b",
            {"num_hidden_layers": -1, "text_config": {"num_hidden_layers": -2}},
            {},
            [
                ("num_hidden_layers", "hf_overrides", "`num_hidden_layers` in `hf_overrides` is `-1`"),
                (TEXT_LAYERS, "hf_overrides", f"`{TEXT_LAYERS}` in `hf_overrides` is `-2`"),
            ],
        ),
        (
            "paligemma-3b",
            {},
            {"text_config": {"num_hidden_layers": "18"}},
            [(TEXT_LAYERS, "", f'`{TEXT_LAYERS}` in config.json is `"18"`')],
        ),
    ],
)
def test_an_odd_value_is_told_where_it_stands(
    tmp_path: Path, model: str, overrides: Any, config: Any, told: list[tuple[str, str, str]]
) -> None:
    source, findings = overridden(tmp_path, model, overrides, config)

    assert [finding.message.split(",")[0] for finding in findings] == [message for _, _, message in told]
    paths = [("model", under, *path.split(".")) if under else ("model", "id") for path, under, _ in told]
    assert [finding.place for finding in findings] == [source.place_of(path) for path in paths]


@pytest.mark.parametrize(
    ("overrides", "help_text", "typed"),
    [
        ({}, "`hf_overrides: {text_config: {hidden_size: NUMBER}}`", {"text_config": {"hidden_size": 2048}}),
        (
            {"vocab_size": 9},
            "`text_config: {hidden_size: NUMBER}` under `hf_overrides`",
            {"vocab_size": 9, "text_config": {"hidden_size": 2048}},
        ),
        (
            {"text_config": {"head_dim": 256}},
            "`hidden_size: NUMBER` under `hf_overrides.text_config`",
            {"text_config": {"head_dim": 256, "hidden_size": 2048}},
        ),
    ],
)
def test_the_help_to_a_value_of_a_part_can_be_typed(tmp_path: Path, overrides: Any, help_text: str, typed: Any) -> None:
    odd = {"text_config": {"hidden_size": "2048"}}
    _, (finding,) = overridden(tmp_path, "paligemma-3b", overrides, odd)

    assert finding.help == f"download the model again, or write {help_text}"
    assert overridden(tmp_path, "paligemma-3b", typed, odd)[1] == ()


def test_an_override_of_a_part_leaves_the_rest_of_it() -> None:
    model = {"id": str(MODELS / "paligemma-3b"), "hf_overrides": {"text_config": {"hidden_size": 1024}}}
    traits = compile_request(source_of(spec_of("paligemma-3b", "h200", model=model)), Options()).target.traits

    assert (traits.hidden_size, traits.num_hidden_layers) == (1024, 18)


def overridden(folder: Path, model: str, overrides: Any, config: Any) -> tuple[SpecSource, tuple[Diagnostic, ...]]:
    """What is said of values of a model whose config ``config`` is laid over, and the spec that overrides them."""
    data = json.loads((MODELS / model / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(laid_over(data, config)), encoding="utf-8")
    source = source_of(spec_of(model, "h200", model={"id": str(folder), "hf_overrides": overrides}))
    return source, tuple(one for one in compile_request(source, Options()).found if one.code == "R123")
