"""How many MTP layers a config has, against what the engine's own override makes of it."""

import copy
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servespec.compiler.facts.mtp_layers import MTP_READINGS, is_mtp_drafter, mtp_layers
from tests.differential import engine_oracle as oracle
from tests.differential.compiled_classes import CompiledReader
from tests.differential.lifting import EngineText
from tests.differential.test_mtp_drafters import OVERRIDE, SPECULATIVE, Config, names_in_override

ROOTS = oracle.available_roots()
pytestmark = [pytest.mark.engine, pytest.mark.skipif(not ROOTS, reason="no engine under .engines")]
roots = pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)

COUNTS = {"num_nextn_predict_layers": (None, 1, 3), "mtp_num_hidden_layers": (None, 2), "num_mtp_modules": (None, 4)}
OF_NO_MTP = {"EagleMistralLarge3ForCausalLM"}
NOT_REWRITTEN = {"deepseek_v41", "MiniMaxM3MTP"}
COUNTED_BY_CLASS = {"deepseek_v4": {"num_nextn_predict_layers": 1}}
NESTED_ONLY = {"intern_s2_preview", "interns2_mobius"}
SINCE_0_33 = {"RadioMBartPrefixForCausalLM", "step5", "step5_vl", "Step5ForCausalLM", "Step5ForConditionalGeneration"}


class Part(Config):
    """A config as the engine reads one, made of the plain data of a config.json."""

    def __init__(self, data: dict[str, Any]) -> None:
        fields = {key: Part(value) if key == "text_config" else value for key, value in data.items()}
        super().__init__(**fields)

    def get_text_config(self) -> Any:
        return getattr(self, "text_config", self)


def parts() -> Iterator[dict[str, int]]:
    """A config may have any of the counts."""
    for values in product(*COUNTS.values()):
        yield {name: value for name, value in zip(COUNTS, values, strict=True) if value is not None}


def configs(name: str) -> Iterator[dict[str, Any]]:
    """Of a model of that architecture or type, with its language part or, where there are such, without."""
    common = {"hc_count": 1, "layer_types": [], "mtp_num_experts": 1, "mtp_num_experts_per_tok": 1}
    for model_type, architecture in ((name, "Unnamed"), ("unnamed", name)):
        for whole, language, is_nested in product(parts(), parts(), {True, name in NESTED_ONLY}):
            top = {"model_type": model_type, "architectures": [architecture], "mtp_config": {**language}}
            inner = "nemotron_h" if name.startswith("NemotronH") else model_type
            text = {"text_config": {"model_type": inner, "architectures": ["Unnamed"], **common, **language}}
            yield {**top, **common, **COUNTED_BY_CLASS.get(name, {}), **whole, **(text if is_nested else {})}


def engines_layers(override: Any, config: dict[str, Any]) -> tuple[str, int | None, int] | None:
    """The drafter, `n_predict`, and the modules as `use_multi_module_mtp` counts them; None where it is refused."""
    given = Part(copy.deepcopy(config))
    vars(given)["decoder"] = SimpleNamespace(causal_vision_prefix=True)
    try:
        made = override(given)
    except (ValueError, AttributeError, AssertionError, TypeError):
        return None
    return made.architectures[0], getattr(made, "n_predict", None), getattr(made, "num_nextn_predict_layers", 1)


@roots
def test_every_target_is_read_as_the_engine_reads_it(root: Path) -> None:
    text = EngineText(root, {"vllm.transformers_utils.config:get_hf_text_config": lambda one: one.get_text_config()})
    override = getattr(text.part_of_class(f"{SPECULATIVE}:SpeculativeConfig", [OVERRIDE]), OVERRIDE)
    drafters, read, told, differing = CompiledReader(root).drafters().keys(), set[str](), set[bool](), []
    for name in names_in_override(root):
        for config in configs(name):
            engine = engines_layers(override, config)
            if engine is None or engine[0] not in drafters - {name, *OF_NO_MTP}:
                continue
            ours = mtp_layers(config)
            read.add(name)
            told.add(is_mtp_drafter(config))
            if (ours.predicted_tokens, ours.modules) != engine[1:]:
                differing.append((name, config, engine, ours))

    assert differing[:1] == []
    assert told == {True}
    assert read >= MTP_READINGS.keys() - NOT_REWRITTEN - (SINCE_0_33 if root.name.endswith("0.32.0") else set())
