"""The switch between graphs and eager: what it tells the engine, and that the engine has what it takes hold of."""

import ast

import pytest

from servespec.runtime.extension.captured_shapes import CapturedShape, captured_shapes
from servespec.runtime.extension.replay_eager import (
    DRAFT_ROUTINES,
    GraphInEagerStepError,
    GraphSwitch,
)
from tests.differential.engine_oracle import engine_root
from tests.runtime.engine_types import Descriptor, Mode

NONE, PIECEWISE, FULL = Mode


class ModelCudaGraphManager:
    decode_query_len = 4

    def __init__(self, *descriptors: Descriptor) -> None:
        self._capture_descs = {"any": list(descriptors)}
        self.graphs = {one: None for one in descriptors if one.cg_mode is FULL}


UNIFORM, MIXED = Descriptor(FULL, 8, 2, 4), Descriptor(PIECEWISE, 16)
UNIFORM_SHAPE = CapturedShape("ModelCudaGraphManager", 4, "FULL", 8, 2, 4, 0, 0, 1, 0)
MIXED_SHAPE = CapturedShape("ModelCudaGraphManager", 4, "PIECEWISE", 16, 0, 0, 0, 0, 1, 0)


def test_captured_graphs_are_those_held_and_the_piecewise_sizes() -> None:
    assert set(captured_shapes(iter([ModelCudaGraphManager(UNIFORM, MIXED)]))) == {UNIFORM_SHAPE, MIXED_SHAPE}


def test_a_step_with_graphs_runs_what_the_engine_chose_and_is_counted() -> None:
    switch, manager = GraphSwitch(), ModelCudaGraphManager(UNIFORM, MIXED)

    assert switch.dispatched(manager, MIXED, NONE) is MIXED
    assert switch.dispatched(manager, UNIFORM, NONE) is UNIFORM
    switch.replays(manager, UNIFORM)

    assert switch.replayed == [MIXED_SHAPE, UNIFORM_SHAPE]
    assert switch.padded_requests([manager], 1) == 1
    assert not switch.stands_for_full(manager)


def test_an_eager_step_keeps_the_padded_sizes() -> None:
    switch, manager = GraphSwitch(), ModelCudaGraphManager(UNIFORM, MIXED)

    with switch.eager():
        told = switch.dispatched(manager, UNIFORM, NONE)

        assert (told.cg_mode, told.num_tokens, told.num_reqs) == (NONE, 8, 2)
        assert switch.padded_requests([None, manager], 1) == 2
        assert switch.stands_for_full(manager)
        switch.dispatched(manager, MIXED, NONE)
        assert switch.padded_requests([manager], 1) == 1
        assert not switch.stands_for_full(manager)
    assert switch.replayed == []


def test_a_graph_in_an_eager_step_is_a_fault() -> None:
    switch, manager = GraphSwitch(), ModelCudaGraphManager(UNIFORM)

    with switch.eager(), pytest.raises(GraphInEagerStepError):
        switch.replays(manager, UNIFORM)
    switch.replays(manager, UNIFORM)


# The engine's source

GPU = "vllm/v1/worker/gpu"
needs_engine = pytest.mark.skipif(engine_root("0.33.0") is None, reason="needs the engine's source")


def tree_of(path: str) -> ast.Module:
    root = engine_root("0.33.0")
    assert root is not None
    return ast.parse((root / path).read_text(encoding="utf-8"))


def functions_of(path: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef)}


@needs_engine
@pytest.mark.parametrize(
    ("speculator", "routines"),
    [
        ("target_dependent_ar", {"_prefill", "_generate_draft", "_generate_fused_drafts"}),
        ("dflash", {"_generate_draft"}),
        ("multi_module_mtp", {"_generate_drafts"}),
    ],
)
def test_each_drafters_routine_counts_requests_first_and_its_manager_is_there(
    speculator: str, routines: set[str]
) -> None:
    path = f"{GPU}/spec_decode/{speculator}/speculator.py"
    functions = functions_of(path)
    attributes = {node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}

    assert routines == set(DRAFT_ROUTINES) & set(functions)
    for name in routines:
        assert functions[name].args.args[1].arg == "num_reqs"
        assert set(DRAFT_ROUTINES[name]) & attributes


@needs_engine
def test_every_dispatch_names_its_manager_first_and_answers_with_a_pair() -> None:
    root = engine_root("0.33.0")
    assert root is not None
    calls = [
        node
        for path in sorted((root / GPU).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "dispatch_cg_and_sync_dp"
    ]

    assert len(calls) >= 4
    assert all(ast.unparse(call.args[0]).endswith("cudagraph_manager") for call in calls)
    dispatch = functions_of(f"{GPU}/dp_utils.py")["dispatch_cg_and_sync_dp"]
    assert dispatch.returns is not None
    assert ast.unparse(dispatch.returns) == "tuple[BatchExecutionDescriptor, DPSyncState | None]"


@needs_engine
@pytest.mark.parametrize("model_state", ["default", "mamba_hybrid", "encoder_decoder", "encoder_only"])
def test_the_targets_metadata_is_told_the_mode_second(model_state: str) -> None:
    found = functions_of(f"{GPU}/model_states/{model_state}.py")["prepare_attn"]

    assert [one.arg for one in found.args.args[:3]] == ["self", "input_batch", "cudagraph_mode"]


READ_OF_THE_RUNNER = [
    "max_num_reqs", "max_num_tokens", "max_model_len", "num_speculative_steps", "vocab_size", "is_pooling_model",
    "use_pp", "pcp_manager", "is_encoder_decoder", "eplb", "kv_connector", "adaptive_verification",
    "rejection_sampler", "kv_block_zeroer", "kv_cache_config", "req_states", "execute_model_state", "speculator",
    "speculative_config", "cudagraph_manager", "model_state",
]  # fmt: skip


@needs_engine
def test_the_runner_has_what_a_replay_reads() -> None:
    tree = tree_of(f"{GPU}/model_runner.py")
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    stored = {ast.unparse(node) for node in attributes if isinstance(node.ctx, ast.Store)}
    (state,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ExecuteModelState")
    fields = {ast.unparse(node.target) for node in state.body if isinstance(node, ast.AnnAssign)}

    assert {f"self.{name}" for name in READ_OF_THE_RUNNER} - stored == set()
    assert {"input_batch", "hidden_states", "aux_hidden_states"} <= fields
