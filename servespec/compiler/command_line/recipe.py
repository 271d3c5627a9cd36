"""The commands of a vLLM recipe: one for each variant, from its base and the features that are on by default.

Strategies are commands of other files, and overrides for hardware belong to groups that other files name; both are
findings.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.server_command import ServerCommand
from servespec.compiler.command_line.word import Word, quoted
from servespec.diagnostics import Diagnostic
from servespec.schema.data_paths import value_at
from servespec.schema.source import SpecPath, SpecSource

_SINGLE = "default"
_PARTS = ("compatible_strategies", "strategy_overrides", "hardware_overrides", "omni")


def is_recipe(data: Mapping[str, Any]) -> bool:
    """Whether plain data is a recipe: its model is a mapping with a `model_id`."""
    model = data.get("model")
    return isinstance(model, Mapping) and isinstance(model.get("model_id"), str)


def recipe_commands(source: SpecSource) -> Iterator[ServerCommand]:
    """One command a variant, or one where there are none."""
    variants = source.data.get("variants")
    for name in variants if isinstance(variants, Mapping) and variants else (_SINGLE,):
        yield _command(source, name)


def _command(source: SpecSource, variant: str) -> ServerCommand:
    at = ("variants", variant)
    model = ("model", "model_id") if value_at(source.data, (*at, "model_id")) is None else (*at, "model_id")
    words = [
        *_variables(source, ("model", "base_env")),
        *_variables(source, (*at, "extra_env")),
        *(Word(text, source.place_of(model)) for text in ("vllm", "serve", str(value_at(source.data, model)))),
        *_arguments(source, ("model", "base_args")),
        *_arguments(source, (*at, "extra_args")),
    ]
    for feature in _on_by_default(source):
        words += _arguments(source, ("features", feature, "args"))
    place = source.place_of_key(at) if value_at(source.data, at) is not None else source.place_of(model)
    return ServerCommand(
        f"the recipe's variant {quoted(variant)}", place, tuple(words), tuple(_left_out(source, variant))
    )


def _arguments(source: SpecSource, path: SpecPath) -> Iterator[Word]:
    values = value_at(source.data, path)
    for index, value in enumerate(values if isinstance(values, Sequence) and not isinstance(values, str) else ()):
        for text in _flag_and_value(str(value)):
            yield Word(text, source.place_of((*path, index)))


def _flag_and_value(item: str) -> tuple[str, ...]:
    """A flag with its value in one item is two words: recipes are read as the line that their items make."""
    flag, blank, value = item.strip().partition(" ")
    return (flag, value.strip()) if blank and flag.startswith("--") else (item,)


def _variables(source: SpecSource, path: SpecPath) -> Iterator[Word]:
    values = value_at(source.data, path)
    for name, value in (values if isinstance(values, Mapping) else {}).items():
        yield Word(f"{name}={value}", source.place_of_key((*path, name)))


def _features(source: SpecSource) -> Mapping[str, Any]:
    features = source.data.get("features")
    return features if isinstance(features, Mapping) else {}


def _on_by_default(source: SpecSource) -> list[str]:
    opt_in = source.data.get("opt_in_features") or ()
    return [name for name in _features(source) if name not in opt_in]


def _left_out(source: SpecSource, variant: str) -> Iterator[Diagnostic]:
    """Whatever else the recipe says about the command."""
    paths: list[SpecPath] = [(part,) for part in _PARTS]
    paths += [("variants", variant, part) for part in ("hardware_overrides", "tp", "default_modes")]
    default = _on_by_default(source)
    for name in _features(source):
        paths += [("features", name)] if name not in default else []
        paths += [("features", name, part) for part in ("modes", "hardware_overrides", "strategies") if name in default]
    for path in paths:
        if value_at(source.data, path):
            yield _part(source, path)


def _part(source: SpecSource, path: SpecPath) -> Diagnostic:
    shown = quoted(_shown(value_at(source.data, path)))
    message = f"{quoted('.'.join(map(str, path)))} of the recipe is not carried: {shown}"
    return rules.S319.at(source.place_of_key(path), message, "add what of it your server needs")


def _shown(value: Any) -> str:
    """The arguments of a feature, else the names of what there is to choose from."""
    if isinstance(value, Mapping) and isinstance(value.get("args"), list):
        return " ".join(map(str, value["args"]))
    return ", ".join(map(str, value)) if isinstance(value, Mapping | list) else str(value)
