"""What is said of a config.json that is broken, and of values in it that cannot be meant."""

import json
from pathlib import Path
from typing import Any

import pytest

from servespec.diagnostics import Diagnostic, Position, SpecError
from servespec.runtime.gather import Options, compile_request
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
