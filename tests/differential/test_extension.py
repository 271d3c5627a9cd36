"""The extension in the engine's own graph managers: they capture the plan, and dispatch as the plan says.

The managers are the engine's text with one method replaced by ours, as in a worker; what they capture is what the
engine's own ``capture`` takes, and what they answer is what its own ``dispatch`` answers.
"""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from ruamel.yaml import YAML

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.dispatch import Batch, split_dispatcher
from servespec.compiler.graphs.hand_off import hand_off, manager_class
from servespec.compiler.graphs.managers import Manager, managers_of, own_shapes
from servespec.compiler.graphs.shape import Runner, Shape, union_tokens
from servespec.compiler.plan import Plan
from servespec.diagnostics import Severity, SpecError
from servespec.runtime.extension import install as install_module
from servespec.runtime.extension.install import EngineTypes, PlanMismatchError, install
from servespec.units import Requests, Tokens, TokensPerRequest
from tests.differential import engine_oracle as oracle
from tests.differential.engine_oracle import Graph
from tests.differential.sides import as_graph
from tests.differential.stand_ins import GRAPHS, Anything, compilation, engine, parallel, vllm_config
from tests.golden.cases import FOLDER
from tests.plans import Json, compiled, model_folder, spec_of
from tests.strategies import EXTENSION, specs

pytestmark = pytest.mark.usefixtures("quiet_shell")

ROOT = oracle.engine_root("0.33.0")
needs_engine = pytest.mark.skipif(ROOT is None, reason="needs the engine's source (tools/fetch_engines.py)")


def root() -> Path:
    assert ROOT is not None
    return ROOT


class Installed:
    """The engine's manager classes with the extension in them, apart from those that other tests use."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.lifted = plan, engine(root())
        lifted_base = self.lifted.text.get(f"{GRAPHS}:CudaGraphManager")
        self.base = type("CudaGraphManager", (lifted_base,), {})
        frame = plan.resolution.frame
        entries = hand_off(frame, plan.graphs.shapes, "0.33.0")["managers"]
        descriptor = self.lifted.text.get(f"{GRAPHS}:BatchExecutionDescriptor")
        modes = SimpleNamespace(PIECEWISE=self.lifted.mode("PIECEWISE"), FULL=self.lifted.mode("FULL"))
        install(entries, EngineTypes(manager=self.base, descriptor=descriptor, mode=modes))

    def manager(self, planned: Manager, name: str | None = None, **changed: Any) -> oracle.Manager:
        """What a worker would build for a manager of the plan, with the union list that the launch carries."""
        frame = self.plan.resolution.frame
        sizes = union_tokens(self.plan.graphs.shapes) or (1,)
        mode = changed.pop("mode", str(planned.mode))
        threshold = frame.microbatching.threshold_tokens if frame.microbatching else 32
        config = vllm_config(
            self.lifted,
            compilation_config=compilation(self.lifted, mode, sizes, max(sizes)),
            scheduler_config=SimpleNamespace(max_num_seqs=frame.max_num_seqs),
            speculative_config=None,
            parallel_config=parallel(
                self.lifted, enable_dbo=planned.microbatching is not None, dbo_decode_token_threshold=threshold
            ),
            cache_config=SimpleNamespace(use_kda_recoverssm=False),
        )
        arguments = {"lora_capture_cases": list(planned.lora_cases), "varlen_decode": planned.varlen, **changed}
        built = type(name or manager_class(frame, planned), (self.base,), {})(
            config,
            None,
            self.lifted.mode(mode),
            planned.query_len,
            ubatch_runner=Anything() if planned.microbatching is not None else None,
            **arguments,
        )
        return oracle.Manager(self.lifted, built)


def plan_of(spec: Json) -> Plan:
    try:
        return compiled({**spec, "engine": EXTENSION})
    except SpecError as error:
        assume({finding.code for finding in error.diagnostics if finding.severity is Severity.ERROR} != {"R101"})
        assume("R116" not in {finding.code for finding in error.diagnostics})
        raise


def graph_of(shape: Shape) -> Graph:
    """A shape in the engine's words, before the engine multiplies a fused later-steps graph by K."""
    return as_graph(replace(shape, draft_steps=None))


def steps_of(plan: Plan, manager: Manager, shapes: tuple[Shape, ...]) -> Iterator[Batch]:
    """Every uniform decode batch, and steps with a prefill at and around every size."""
    frame = plan.resolution.frame
    parts = (1,) if manager.microbatching is None else (1, manager.microbatching.count)
    for query_len in sorted({manager.query_len, *manager.captured_tiers, TokensPerRequest(1)}):
        for n in range(1, frame.max_num_seqs + 1):
            for loras, ubatches in product(manager.lora_cases, parts):
                yield Batch(
                    requests=Requests(n),
                    tokens=Tokens(n * query_len),
                    query_len=query_len,
                    max_query_len=query_len,
                    active_loras=loras,
                    ubatches=ubatches,
                )
    for tokens in union_tokens(shapes):
        for near in (tokens - 1, tokens, tokens + 1):
            if near > 0:
                yield Batch(requests=Requests(1), tokens=Tokens(near), active_loras=manager.lora_cases[0])


def without_steps(shape: Shape | None) -> Graph | None:
    return None if shape is None else graph_of(shape)


@needs_engine
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(specs())
def test_the_engine_captures_the_plan_and_dispatches_by_it(spec: Json) -> None:
    check_every_manager(plan_of(spec))


SPECIAL = ("adaptive-verification-gb200", "lora", "microbatches", "mode-full", "tiers-h200", "dspark-without-anchor")
"""Golden cases with settings that few random specs have."""


@needs_engine
@pytest.mark.parametrize("case", SPECIAL)
def test_it_does_for_settings_that_few_specs_have(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = golden_plan(case, monkeypatch)

    assert plan.graphs.shapes
    check_every_manager(plan)


def golden_plan(case: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(FOLDER / case)
    spec = YAML(typ="safe", pure=True).load((FOLDER / case / "spec.yaml").read_text(encoding="utf-8"))
    return compiled({**spec, "engine": {**spec.get("engine", {}), **EXTENSION}})


MUTANTS = (
    ("for query_len in (*query_lens, None):", "for query_len in (None,):"),
    ("for query_len in (*query_lens, None):", "for query_len in query_lens:"),
    (
        "for mode in (types.mode.FULL, types.mode.PIECEWISE):\n            of_mode = [",
        "for mode in ():\n            of_mode = [",
    ),
    ("for count in range(first, tokens + 1):", "for count in range(first, tokens):"),
    ("for count in range(first, tokens + 1):", "for count in range(tokens, tokens + 1):"),
    ("groupby(sorted(ladder, key=_tokens), _tokens)", "groupby(sorted(ladder, key=_tokens, reverse=True), _tokens)"),
    ("found.setdefault((count, loras), [])", "found.setdefault((count, 0), [])"),
    ("                yield twin", "                pass"),
    ("max_query_len=max_query_len,", "max_query_len=None,"),
    ("uniform_token_count=query_len,", "uniform_token_count=None,"),
    ("num_reqs=requests,", "num_reqs=None,"),
    ("by_manager.get((name, manager.decode_query_len))", "next(iter(by_manager.values()))"),
    ("if not (full and piecewise and full[0].num_tokens > piecewise[0].num_tokens):", "if not (full and piecewise):"),
    ("types.mode.FULL: full[1:]}", "types.mode.FULL: full}"),
    ("manager._capture_descs = _widest_in_front(whole, types)", "pass"),
)


@needs_engine
@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_a_fault_in_the_extension_is_found(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(install_module)
    assert source.count(old) == 1, old
    changed = ModuleType("changed_install")
    monkeypatch.setitem(sys.modules, changed.__name__, changed)
    exec(source.replace(old, new), vars(changed))  # noqa: S102 - our own source with one change
    monkeypatch.setattr(f"{__name__}.install", vars(changed)["install"])
    plans = [plan_of(INTERLEAVED), plan_of(WIDE_DECODE), *(golden_plan(case, monkeypatch) for case in SPECIAL)]

    assert not all(map(holds, plans))


def holds(plan: Plan) -> bool:
    try:
        check_every_manager(plan)
    except (AssertionError, TypeError, RuntimeError):
        return False
    return True


def check_every_manager(plan: Plan) -> None:
    installed = Installed(plan)

    for planned in managers_of(plan.resolution.frame):
        own = own_shapes(planned, plan.graphs.shapes)
        first_k = planned.draft_steps[0] if planned.draft_steps else None
        undivided = [shape for shape in own if shape.draft_steps == first_k]
        manager = installed.manager(planned)
        captured = manager.captured()

        assert sorted(captured, key=repr) == sorted(map(graph_of, undivided), key=repr)
        assert captured[:1] == first_captured(planned, undivided)
        ours = split_dispatcher(undivided)
        for step in steps_of(plan, planned, tuple(undivided)):
            answer = manager.dispatch(
                step.requests, step.tokens, step.query_len, step.active_loras, step.max_query_len, step.ubatches
            )
            asked = Batch(
                requests=step.requests,
                tokens=step.tokens,
                query_len=step.query_len,
                max_query_len=step.max_query_len,
                active_loras=step.active_loras,
                ubatches=step.ubatches,
                draft_steps=first_k,
            )
            expected = without_steps(ours.dispatch(asked))
            assert (None if answer.mode == "NONE" else answer) == expected
            assert expected is None or expected in captured


def first_captured(manager: Manager, shapes: list[Shape]) -> tuple[Graph, ...]:
    """The widest PIECEWISE graph, which the engine begins with; of the target a FULL one that is wider still."""
    widest = {mode: max((s.tokens for s in shapes if s.mode is mode), default=0) for mode in CudaGraphMode}
    full, piecewise = widest[CudaGraphMode.FULL], widest[CudaGraphMode.PIECEWISE]
    leads = not piecewise or (manager.runner is Runner.TARGET and full > piecewise)
    mode = CudaGraphMode.FULL if leads else CudaGraphMode.PIECEWISE
    return tuple(graph_of(s) for s in shapes if s.mode is mode and s.tokens == widest[mode])[:1]


INTERLEAVED = spec_of(
    "qwen3-8b",
    "h200",
    scheduler={"max_num_seqs": 256, "max_num_batched_tokens": 8192},
    speculative={
        "method": "eagle3",
        "model": model_folder("eagle3-draft"),
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 16, 5], [17, 128, 3], [129, 256, 1]],
    },
)


@needs_engine
def test_interleaved_tiers_keep_their_full_graphs() -> None:
    """With the same graphs, the engine's own candidate list loses some of them."""
    plan = plan_of(INTERLEAVED)
    target = managers_of(plan.resolution.frame)[0]
    manager = Installed(plan).manager(target)

    modes = {
        n: manager.dispatch(n, n * q, q, max_query_len=q).mode
        for n in range(1, 257)
        for q in [1 + plan.resolution.frame.k_of(Requests(n))]
    }

    assert set(modes.values()) == {"FULL"}


WIDE_DECODE = spec_of(
    "qwen3-8b",
    "h200",
    scheduler={"max_num_seqs": 256, "max_num_batched_tokens": 8192},
    speculative={"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3},
    compilation={"max_prefill_cudagraph_capture_tokens": 512, "max_decode_cudagraph_capture_requests": 256},
)


@needs_engine
def test_the_widest_full_graph_is_captured_first_where_it_is_wider_than_any_piecewise_one() -> None:
    plan = plan_of(WIDE_DECODE)
    target, step0 = managers_of(plan.resolution.frame)[:2]
    installed = Installed(plan)

    manager = installed.manager(target)

    captured = manager.captured()

    assert manager.full_graphs == sum(graph.mode == "FULL" for graph in captured)
    assert (captured[0].mode, captured[0].num_tokens) == ("FULL", 1024)
    assert [(graph.mode, graph.num_tokens) for graph in captured[1:3]] == [("PIECEWISE", 512), ("PIECEWISE", 256)]
    assert installed.manager(step0).captured()[0].mode == "PIECEWISE"


@needs_engine
def test_a_manager_of_another_class_keeps_the_engines_method() -> None:
    plan = plan_of(WIDE_DECODE)
    target = managers_of(plan.resolution.frame)[0]

    kept = Installed(plan).manager(target, "DecoderReplayCudaGraphManager").captured()

    assert {graph.num_tokens for graph in kept if graph.mode == "PIECEWISE"} == set(union_tokens(plan.graphs.shapes))


@needs_engine
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mode": "FULL_DECODE_ONLY"}, "runs in FULL_DECODE_ONLY, planned was FULL_AND_PIECEWISE"),
        ({"lora_capture_cases": [0, 1]}, r"has LoRA cases \[0, 1\], planned were \[0\]"),
    ],
)
def test_a_manager_that_is_not_as_planned_captures_nothing(changed: dict[str, Any], said: str) -> None:
    plan = plan_of(WIDE_DECODE)
    target = managers_of(plan.resolution.frame)[0]

    with pytest.raises(PlanMismatchError, match=said):
        Installed(plan).manager(target, **changed)


@needs_engine
def test_graphs_of_adaptive_verification_are_for_an_engine_that_verifies_adaptively(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = golden_plan("adaptive-verification-gb200", monkeypatch)
    target = managers_of(plan.resolution.frame)[0]

    with pytest.raises(PlanMismatchError, match="verifies no chosen drafts"):
        Installed(plan).manager(target, varlen_decode=False)
