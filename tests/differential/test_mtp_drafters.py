"""Which MTP drafters nothing compiles, against the engine's model files and its own choice of a drafter."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servespec.compiler.facts.mtp_drafters import UNCOMPILED_MTP_DRAFTERS, uncompiled_mtp_drafter
from tests.differential import engine_oracle as oracle
from tests.differential.compiled_classes import CompiledReader
from tests.differential.lifting import EngineText

ROOTS = oracle.available_roots()
pytestmark = [pytest.mark.engine, pytest.mark.skipif(not ROOTS, reason="no engine under .engines")]
roots = pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)

SPECULATIVE = "vllm.config.speculative"
OVERRIDE = "hf_config_override"
UNNAMED = "unnamed"
SINCE_0_33 = {"ParseAuxMTPModel", "Step5MTP"}


class Config:
    """A config.json as the engine's override reads and writes one."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def update(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)

    def get_text_config(self) -> Any:
        return self.text_config  # type: ignore[attr-defined]


def config(model_type: str, architecture: str) -> Config:
    """One of a model that has every part that makes the engine draft with its own modules."""
    modules = {"num_nextn_predict_layers": 1}
    text = Config(model_type=UNNAMED, architectures=[UNNAMED], hc_count=1, **modules)
    vars(text).update(mtp_num_experts=1, mtp_num_experts_per_tok=1)
    return Config(
        model_type=model_type,
        architectures=[architecture],
        text_config=text,
        mtp_config=modules,
        layer_types=[],
        decoder=SimpleNamespace(causal_vision_prefix=True),
        **modules,
    )


def names_in_override(root: Path) -> set[str]:
    """Every word of the engine's override, the names of all its targets among them."""
    path = root.joinpath(*SPECULATIVE.split(".")).with_suffix(".py")
    functions = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef))
    override = next(node for node in functions if node.name == OVERRIDE)
    words = (node.value for node in ast.walk(override) if isinstance(node, ast.Constant))
    return {word for word in words if isinstance(word, str)}


@cache
def targets_by_drafter(root: Path) -> dict[str, set[str]]:
    """What the engine's own override makes of each name, as a model type or as an architecture."""
    text = EngineText(root, {"vllm.transformers_utils.config:get_hf_text_config": lambda one: one.text_config})
    override = getattr(text.part_of_class(f"{SPECULATIVE}:SpeculativeConfig", [OVERRIDE]), OVERRIDE)
    registered = CompiledReader(root).drafters().keys()
    found: dict[str, set[str]] = defaultdict(set)
    for name in names_in_override(root):
        made = (override(given).architectures[0] for given in (config(name, UNNAMED), config(UNNAMED, name)))
        for drafter in registered & {*made}:
            found[drafter].add(name)
    return found


@cache
def uncompiled_drafters(root: Path) -> frozenset[str]:
    """Of those that the override makes of a target, the ones that nothing compiles."""
    reader = CompiledReader(root)
    return frozenset(name for name in targets_by_drafter(root) if not reader.is_compiled(*reader.drafters()[name]))


@roots
def test_of_a_model_that_nothing_cuts_the_engine_captures_no_pieces_and_dispatches_to_them(root: Path) -> None:
    manager = oracle.stock_manager(
        root, sizes=(2, 8), max_size=8, max_num_seqs=4, mode="FULL_AND_PIECEWISE", decode_query_len=2
    )
    ran = {graph.mode for graph in manager.captured()}

    assert ran == {"PIECEWISE", "FULL"}
    assert {graph.mode for graph in manager.held} == {"FULL"}
    assert manager.dispatch(1, 5, None).mode == "PIECEWISE"
    assert manager.run_pieces(lambda tokens: f"{tokens} ran eagerly", tokens=5) == "5 ran eagerly"


@roots
def test_drafters_that_nothing_compiles_are_the_engines(root: Path) -> None:
    since = SINCE_0_33 if oracle.engine_version(root) == "0.32.0" else set()

    assert uncompiled_drafters(root) == UNCOMPILED_MTP_DRAFTERS.keys() - since


@roots
def test_other_drafters_are_compiled(root: Path) -> None:
    others = targets_by_drafter(root).keys() - uncompiled_drafters(root)

    assert others >= {"DeepSeekMTPModel", "Qwen3NextMTP", "Gemma4MTPModel", "NemotronHMTPModel"}


@roots
def test_no_other_drafter_with_pieces_of_its_own_is_left_uncompiled(root: Path) -> None:
    """Those that are have FULL graphs alone, none, or run on Model Runner V1."""
    reader = CompiledReader(root)
    uncompiled = {name for name, drafter in reader.drafters().items() if not reader.is_compiled(*drafter)}

    assert uncompiled - UNCOMPILED_MTP_DRAFTERS.keys() <= {
        *("DFlash2BeamDraftModel", "DSparkDraftModel", "DSparkV41DraftModel", "K3DSparkModel"),
        *("ExtractHiddenStatesModel", "MedusaModel"),
    }


@roots
def test_their_targets_are_the_engines(root: Path) -> None:
    targets = {name: targets_by_drafter(root)[name] - {name} for name in uncompiled_drafters(root)}

    assert targets == {name: set(UNCOMPILED_MTP_DRAFTERS[name].value) for name in targets}


@roots
def test_every_name_leads_to_the_drafter_of_the_engine(root: Path) -> None:
    uncompiled = uncompiled_drafters(root)
    made = {target: drafter for drafter, targets in targets_by_drafter(root).items() for target in targets}
    expected = {target: drafter if drafter in uncompiled else None for target, drafter in made.items()}

    assert {target: uncompiled_mtp_drafter((target,)) for target in made} == expected
