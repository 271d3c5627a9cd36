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
    text_path,
)
from servespec.compiler.resolve.request import engine_field
from servespec.diagnostics import Diagnostic, Place
from servespec.schema.data_paths import value_at
from servespec.schema.nearest import nearest
from servespec.schema.parse import dotted, shown
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
_OVERRIDES: Final = "hf_overrides"


@dataclass(frozen=True, slots=True)
class _Odd:
    """A value of another type or sign than any model's: where it stands in the config, and what may stand there."""

    path: tuple[str, ...]
    value: Any
    because: str
    right_form: str

    def message(self, where: str) -> str:
        return f"`{dotted(self.path)}` in {where} is {shown(self.value)}, {self.because}"


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """A config with the spec's overrides laid over it, and where the model is named."""

    data: Mapping[str, Any]
    spec: ServingSpec
    source: SpecSource

    def place(self, *path: str) -> Place:
        """Of an override where that is what was read, else of the model's name."""
        return self.source.place_of(("model", _OVERRIDES, *path) if self.is_laid_over(*path) else ("model", "id"))

    def is_laid_over(self, *path: str) -> bool:
        return value_at(self.spec.model.hf_overrides, path) is not None

    def who_says(self, *path: str) -> str:
        return f"`{_OVERRIDES}`" if self.is_laid_over(*path) else "the model's config.json"


def target_findings(config: ReadConfig, version: str) -> Iterator[Diagnostic]:
    """Everything about the config of the model that is served."""
    yield from _architectures(config, version)
    for odd in _odd_values(config.data):
        where = f"`{_OVERRIDES}`" if config.is_laid_over(*odd.path) else "config.json"
        yield rules.R123.at(config.place(*odd.path), odd.message(where), _overriding(config, odd))


def draft_findings(data: Mapping[str, Any], place: Place) -> Iterator[Diagnostic]:
    """What a drafter's config says and cannot mean; which classes draft is told elsewhere."""
    for odd in _odd_values(data):
        # Overrides are laid over the target's config alone.
        yield rules.R123.at(place, f"the draft model: {odd.message('config.json')}", "download the draft model again")


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
        message = f"vLLM {version} has no class `{names[0]}`, which {config.who_says('architectures')} names"
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


def _odd_values(data: Mapping[str, Any]) -> Iterator[_Odd]:
    """Of the config and, where that is another, of its language part."""
    for path in dict.fromkeys(((), text_path(data))):
        part = value_at(data, path)
        yield from _odd_counts(part, path)
        yield from _odd_types(part, path)


def _odd_counts(part: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[_Odd]:
    for key in _COUNTS:
        value = part.get(key)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if value is not None and not is_count and not isinstance(value, list):
            because = "no number of anything; the plan takes it for unknown"
            yield _Odd((*path, key), value, because, "NUMBER")
        elif key in LAYER_KEYS and isinstance(value, int) and value > MOST_LAYERS:
            because = "more than any model has; the plan takes it for unknown"
            yield _Odd((*path, key), value, because, "NUMBER")


def _odd_types(part: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[_Odd]:
    for key in ("dtype", "torch_dtype"):
        value = part.get(key)
        if isinstance(value, str) and value.removeprefix("torch.") not in _TYPES:
            near = next(iter(nearest(value, _TYPES, limit=1)), "TYPE")
            yield _Odd((*path, key), value, "no type of weights that the engine computes with", near)


def _overriding(config: ReadConfig, odd: _Odd) -> str:
    """What to type, as far as overrides that are there leave it to be typed."""
    if config.is_laid_over(*odd.path):
        return f"write `{odd.path[-1]}: {odd.right_form}` in its place, or delete it"
    overrides = config.spec.model.hf_overrides
    if not overrides:
        return f"download the model again, or write `{_nested((_OVERRIDES, *odd.path), odd.right_form)}`"
    depth = next(at for at in reversed(range(len(odd.path))) if isinstance(value_at(overrides, odd.path[:at]), Mapping))
    line, below = _nested(odd.path[depth:], odd.right_form), dotted((_OVERRIDES, *odd.path[:depth]))
    return f"download the model again, or write `{line}` under `{below}`"


def _nested(path: tuple[str, ...], value: str) -> str:
    """A value as it is typed on one line: `a: {b: 1}`."""
    first, *rest = path
    return f"{first}: {{{_nested(tuple(rest), value)}}}" if rest else f"{first}: {value}"
