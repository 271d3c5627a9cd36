"""Which modules a quantized checkpoint leaves in the model's own type, by the names that it lists."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

_LISTS = ("ignored_layers", "modules_to_not_convert", "exclude_modules", "ignore")
_JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_OUTER = re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.)")
_NUMBERED = re.compile(r"layers\.(\d+)\b")
_SHARED = re.compile(r"shared_expert\b")
_NOT_IN_A_LAYER = re.compile(
    r"lm_head|embed|norm|router|\bgate\*?$|visual|vision|audio|multi_modal|projector|mtp|conv1d|indexer"
)
"""What is never quantized, and what belongs to no decoder layer."""


class Naming(Enum):
    """How a quantization compares an entry with the name of a module."""

    WHOLE = "the name"
    PART = "a part of the name"
    WILDCARD = "the name, a part of it, or a pattern of a shell"
    EXPRESSION = "the name, or a regular expression after `re:`"


@dataclass(frozen=True, slots=True)
class LeftPlain:
    """Entries as the checkpoint lists them, without what stands before the language model in them."""

    entries: tuple[str, ...] = ()
    naming: Naming = Naming.WHOLE

    def has(self, modules: Sequence[str], layer: int) -> bool:
        """Whether all modules that are joined in a matrix are left plain in a layer.

        Source: vllm/model_executor/layers/quantization/utils/quant_utils.py: is_layer_skipped, which refuses a matrix
        of which only some are.
        """
        return bool(self.entries and modules) and all(
            any(self._meets(entry, f"model.layers.{layer}.{module}") for entry in self.entries) for module in modules
        )

    def misses(self, layers: int, modules_of: Callable[[int], Iterable[str]]) -> tuple[str, ...]:
        """Entries that may be of decoder layers and meet none of their modules, which are asked for only then."""
        doubtful = [entry for entry in self.entries if not (_NOT_IN_A_LAYER.search(entry) or _is_past(entry, layers))]
        if not doubtful:
            return ()
        names = {f"model.layers.{layer}.{module}" for layer in range(layers) for module in modules_of(layer)}
        return tuple(
            entry for entry in doubtful if entry not in names and not any(self._meets(entry, name) for name in names)
        )

    def _meets(self, entry: str, name: str) -> bool:
        if entry == name:
            return True
        if self.naming is Naming.EXPRESSION:
            pattern = _expression(entry) if entry.startswith("re:") else None
            return pattern is not None and pattern.match(name) is not None
        if name.endswith(".experts") and name in entry:
            return True
        if self.naming is Naming.WHOLE:
            return False
        return entry in name or (self.naming is Naming.WILDCARD and fnmatchcase(name, entry))


NOTHING_LEFT_PLAIN = LeftPlain()


def _is_past(entry: str, layers: int) -> bool:
    """Whether an entry names a layer after the model's own, which drafters have."""
    found = _NUMBERED.search(entry)
    return found is not None and int(found.group(1)) >= layers


def left_plain(method: str, section: Mapping[str, Any]) -> LeftPlain:
    """Of a checkpoint's `quantization_config`.

    Sources, below vllm/model_executor/layers/quantization: fp8.py: Fp8Config; auto_awq.py: AutoAWQConfig;
    auto_gptq.py: AutoGPTQConfig; modelopt.py: ModelOptQuantConfigBase.is_layer_excluded;
    compressed_tensors/utils.py: should_ignore_layer.
    """
    if method.startswith("gptq"):
        return LeftPlain(tuple(_negative_rules(section)), Naming.EXPRESSION)
    namings = {"awq": Naming.PART, "modelopt": Naming.WILDCARD, "nvfp4": Naming.WILDCARD}
    namings["compressed-tensors"] = Naming.EXPRESSION
    naming = next((found for start, found in namings.items() if method.startswith(start)), Naming.WHOLE)
    return LeftPlain(tuple(name for entry in _listed(section) for name in _respelled(entry)), naming)


@cache
def _expression(entry: str) -> re.Pattern[str] | None:
    """None where it is none, so that the entry meets nothing."""
    try:
        return re.compile(entry.removeprefix("re:"))
    except re.error:
        return None


def _respelled(entry: str) -> Iterator[str]:
    """By the names that the formulas use; one of a joined matrix stands for its parts."""
    plain = _OUTER.sub("model.", _SHARED.sub("shared_experts", entry.replace("block_sparse_moe", "mlp")))
    joined = next((name for name in _JOINED if plain.endswith(name)), None)
    if joined is None or plain.startswith("re:"):
        yield plain
    else:
        yield from (plain.removesuffix(joined) + part for part in _JOINED[joined])


def _listed(section: Mapping[str, Any]) -> list[str]:
    """The first list with anything in it, of the section or of the one below it that ModelOpt writes."""
    inner = section.get("quantization")
    places = (section, inner if isinstance(inner, Mapping) else {})
    lists = (place.get(key) for place in places for key in _LISTS)
    found = next((names for names in lists if isinstance(names, list) and names), [])
    return [name for name in found if isinstance(name, str)]


def _negative_rules(section: Mapping[str, Any]) -> Iterator[str]:
    rules = section.get("dynamic")
    for name in rules if isinstance(rules, Mapping) else ():
        if str(name).startswith("-:"):
            yield f"re:{str(name).removeprefix('-:')}"
