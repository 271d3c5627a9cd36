"""Which generating models nothing compiles, against the engine's registry and model files."""

from pathlib import Path

import pytest

from servespec.compiler.facts.architectures import BREAKABLE_ARCHITECTURES
from servespec.compiler.facts.uncompiled_models import UNCOMPILED_MODELS
from tests.differential import engine_oracle as oracle
from tests.differential.compiled_classes import CompiledReader

ROOTS = oracle.available_roots()
pytestmark = [pytest.mark.engine, pytest.mark.skipif(not ROOTS, reason="no engine under .engines")]
roots = pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)

SINCE_0_33 = {
    "BeamForCausalLM",
    "FlintForCausalLM",
    "MuseSparkForConditionalGeneration",
    "RadioMBartPrefixForCausalLM",
    "Step5ForCausalLM",
}


@roots
def test_models_that_nothing_compiles_are_the_engines(root: Path) -> None:
    reader = CompiledReader(root)
    models = reader.generative_models().items()
    since = SINCE_0_33 if oracle.engine_version(root) == "0.32.0" else set()

    assert {name for name, model in models if not reader.is_compiled(*model)} == UNCOMPILED_MODELS.value - since


@roots
def test_models_of_every_kind_are_compiled(root: Path) -> None:
    reader = CompiledReader(root)
    models = reader.generative_models()
    compiled = {"LlamaForCausalLM", "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "MiniCPMV"}

    assert all(reader.is_compiled(*models[name]) for name in compiled)


def test_of_some_the_graphs_are_not_breakable_by_default() -> None:
    breakable = BREAKABLE_ARCHITECTURES["0.33.0"].value

    assert UNCOMPILED_MODELS.value - breakable >= {"DbrxForCausalLM", "Ernie4_5_VLMoeForConditionalGeneration"}
