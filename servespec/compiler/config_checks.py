"""What is wrong with a model's config.json itself: nothing that the engine loads, or values that say nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from servespec.compiler import plan_rules as rules
from servespec.compiler.facts.architecture_tables import ARCHITECTURE_TABLES
from servespec.compiler.facts.model_traits import (
    GENERATING_SUFFIXES,
    LAYER_KEYS,
    MOST_LAYERS,
    POOLING_SUFFIXES,
    text_config,
)
from servespec.compiler.resolve.request import engine_field
from servespec.diagnostics import Diagnostic, Place
from servespec.schema.nearest import nearest
from servespec.schema.parse import shown
from servespec.schema.source import SpecSource
from servespec.schema.spec import ServingSpec

_COUNTS: Final = (
    *(*LAYER_KEYS, "hidden_size", "n_embd", "d_model", "intermediate_size"),
    *("moe_intermediate_size", "num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "vocab_size"),
)
"""Sizes that a plan reads. A list has one for each layer, which is no fault."""
_TYPES: Final = frozenset(
    {"float16", "bfloat16", "float32", "float64", "half", "float", "double", "float8_e4m3fn", "float8_e5m2"}
)


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """A config with the spec's overrides laid over it, and where the model is named."""

    data: Mapping[str, Any]
    spec: ServingSpec
    source: SpecSource

    def place(self, key: str = "") -> Place:
        """Of an override where that is what was read, else of the model's name."""
        is_laid_over = bool(key) and key in self.spec.model.hf_overrides
        return self.source.place_of(("model", "hf_overrides", key) if is_laid_over else ("model", "id"))


def target_findings(config: ReadConfig, version: str) -> Iterator[Diagnostic]:
    """Everything about the config of the model that is served."""
    yield from _architectures(config, version)
    for part in _parts(config.data):
        for key, because, help_text in _odd_values(part):
            yield rules.R123.at(config.place(key), because, help_text)


def draft_findings(data: Mapping[str, Any], place: Place) -> Iterator[Diagnostic]:
    """What a drafter's config says and cannot mean; which classes draft is told elsewhere."""
    for part in _parts(data):
        for _, because, help_text in _odd_values(part):
            yield rules.R123.at(place, f"the draft model: {because}", help_text)


def _parts(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    text = text_config(data)
    return (data,) if text is data else (data, text)


def _architectures(config: ReadConfig, version: str) -> Iterator[Diagnostic]:
    """Source: vllm/model_executor/models/registry.py: _ModelRegistry.inspect_model_cls."""
    named = config.data.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if not names:
        # From a type the engine finds the class by itself.
        if not isinstance(config.data.get("model_type"), str):
            message = "the model's config.json names neither `architectures` nor a `model_type`"
            help_text = "name the folder of a whole model, or write `hf_overrides: {architectures: [NAME]}`"
            yield rules.R124.at(config.place("architectures"), message, help_text)
        return
    if engine_field(config.spec, "model", "model_impl", "auto") != "auto":
        return
    if not any(_is_registered(name, version) for name in names):
        message = f"vLLM {version} has no class `{names[0]}`, which the model's config.json names"
        near = nearest(names[0], ARCHITECTURE_TABLES[version].generative.value, limit=1)
        guess = f"did you mean `{near[0]}`? Else it" if near else "it"
        help_text = f"{guess} runs through Transformers or a plug-in, or not at all; the plan knows neither"
        yield rules.R125.at(config.place("architectures"), message, help_text)


def _is_registered(name: str, version: str) -> bool:
    """Whether the engine has the class, or one that it makes the named one of."""
    tables = ARCHITECTURE_TABLES[version]
    if tables.registers(name):
        return True
    suffixes = (*GENERATING_SUFFIXES.value, *POOLING_SUFFIXES.value)
    own = next((suffix for suffix in suffixes if name.endswith(suffix)), None)
    return own is not None and any(tables.registers(name.replace(own, suffix)) for suffix in suffixes)


def _odd_values(part: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Keys whose values are of another type or sign than any model's, each with the message and the help."""
    for key in _COUNTS:
        value = part.get(key)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if value is not None and not is_count and not isinstance(value, list):
            message = f"`{key}` in config.json is {shown(value)}, no number of anything; the plan takes it for unknown"
            yield key, message, _overriding(key, "NUMBER")
        elif key in LAYER_KEYS and isinstance(value, int) and value > MOST_LAYERS:
            message = (
                f"`{key}` in config.json is {shown(value)}, more than any model has; the plan takes it for unknown"
            )
            yield key, message, _overriding(key, "NUMBER")
    for key in ("dtype", "torch_dtype"):
        value = part.get(key)
        if isinstance(value, str) and value.removeprefix("torch.") not in _TYPES:
            message = f"`{key}` in config.json is {shown(value)}, no type of weights that the engine computes with"
            yield key, message, _overriding(key, next(iter(nearest(value, _TYPES, limit=1)), "TYPE"))


def _overriding(key: str, value: str) -> str:
    return f"download the model again, or write `hf_overrides: {{{key}: {value}}}`"
