"""Model facts that come with the package, beside a model's own config: which was taken, and where the two differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from servespec.compiler.facts.model_traits import text_config
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.config_rules import R015, R016
from servespec.runtime.model_config import ModelConfig

# An older name of the same key, which many published configs have.
_OTHER_NAMES: Mapping[str, str] = {"dtype": "torch_dtype"}


def shipped_findings(config: ModelConfig, place: Place) -> tuple[Diagnostic, ...]:
    """That shipped facts stand in for the model's own config (R015), or that they differ from it (R016)."""
    if config.facts is None:
        return ()
    if config.is_shipped:
        return (_stand_in(config, place),)
    differing = tuple(differences(config.facts.config, config.data))
    if not differing:
        return ()
    message = f"the config of `{config.id}` differs from the facts that come with servespec: {', '.join(differing)}"
    return (R016.at(place, message, "the plan has the model's own; what a preset says of its costs may not hold"),)


def _stand_in(config: ModelConfig, place: Place) -> Diagnostic:
    assert config.facts is not None
    unknown = f"; not known: {', '.join(config.facts.unknown)}" if config.facts.unknown else ""
    message = f"`{config.id}` is not in the model cache: planned with facts that come with servespec{unknown}"
    return R015.at(place, message, "download the model, or name its own `config.json` on the command line")


def differences(shipped: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """`key own (shipped)` of every shipped key that the model's own config gives another value.

    A key that the own config leaves to its config class is no difference: the shipped facts may be those defaults.
    """
    text = text_config(own)
    for key, value in shipped.items():
        names = [key, *filter(None, [_OTHER_NAMES.get(key)])]
        found = next((part[name] for part in (own, text) for name in names if name in part), value)
        if found != value and not _is_part(value, found):
            yield f"`{key}` {_words(found)} (facts: {_words(value)})"


def _is_part(shipped: Any, own: Any) -> bool:
    """A mapping of facts holds the keys that a plan reads; the model's own may hold more."""
    if not (isinstance(shipped, Mapping) and isinstance(own, Mapping)):
        return False
    return all(key in own and own[key] == value for key, value in shipped.items())


def _words(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
