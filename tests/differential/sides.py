"""Both sides of a comparison as plain data: what is captured for a case, and which graph every decode batch replays.

``engine_answers`` runs the engine's text.  ``our_answers`` is given the modules that decide graphs, so that a changed
copy of them can be compared too.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport, CudaGraphMode
from servespec.compiler.resolve.drafter_mode import DrafterRoutine, drafter_mode
from tests.differential import engine_oracle as oracle
from tests.differential.engine_oracle import Graph, Sizes
from tests.differential.stand_ins import Speculation

MODULES = (
    "servespec.compiler.facts.graph_sizes",
    *(
        f"servespec.compiler.graphs.{name}"
        for name in ("grid", "tiers", "shape", "dispatch", "managers", "inventory", "stock", "split", "coverage")
    ),
)
"""The modules that decide graphs, each after those it imports."""

Ranges = tuple[tuple[int, int, int], ...]


class Case(NamedTuple):
    """What both sides are given. ``sizes`` and ``max_size`` are the engine's own two fields."""

    sm100: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    k: int = 0
    schedule: Ranges | None = None
    sizes: tuple[int, ...] | None = None
    max_size: int | None = None
    mode: str = "FULL_AND_PIECEWISE"
    performance_mode: str = "balanced"
    adaptive_verification: bool = False
    lora_cases: tuple[int, ...] = (0,)
    ubatches: bool = False
    within_decode_width: bool = False

    @property
    def nothing_set(self) -> bool:
        return self.sizes is None and self.max_size is None


class DrafterCase(NamedTuple):
    """A drafter by its name in a report; ``block`` is its routine where it owns a block."""

    method: str
    kind: str
    block: DrafterRoutine | None = None
    extra_query_len: int = 1
    in_place_metadata: bool = True
    draft_config: tuple[tuple[str, Any], ...] = ()


DRAFTERS = {
    "eagle3": DrafterCase("eagle3", "autoregressive"),
    "eagle3, metadata made afresh": DrafterCase("eagle3", "autoregressive", in_place_metadata=False),
    "dspark": DrafterCase("dspark", "block", DrafterRoutine.BLOCK, 0, draft_config=(("sample_from_anchor", True),)),
    "dflash": DrafterCase("dflash", "block", DrafterRoutine.BLOCK),
    "multi-module mtp": DrafterCase("mtp", "multi_module_mtp", DrafterRoutine.MULTI_MODULE_MTP),
}

Replays = tuple[Graph | None, ...]


class Manager(NamedTuple):
    """``captured`` in one order; ``replays`` one after the other for the batches of the case."""

    captured: tuple[Graph, ...]
    replays: Replays


class Answers(NamedTuple):
    """``ks`` holds K for each number of requests, from 1 on."""

    ks: tuple[int, ...]
    capture_sizes: tuple[int, ...]
    managers: dict[str, Manager]


class Step(NamedTuple):
    """One decode step, in the engine's words."""

    requests: int
    tokens: int
    uniform: int | None
    widest: int | None
    drafts: int
    active_loras: int = 0
    ubatches: int = 1


def real_graphs() -> Any:
    """The modules under test as one namespace."""
    return namespace(map(importlib.import_module, MODULES))


def namespace(modules: Iterable[ModuleType]) -> Any:
    return SimpleNamespace(**{module.__name__.rpartition(".")[2]: module for module in modules})


def in_order(graphs: Iterable[Graph]) -> tuple[Graph, ...]:
    return tuple(sorted(graphs, key=repr))


# -- Batches ----------------------------------------------------------------------------------------------


def k_of_each(case: Case) -> tuple[int, ...]:
    """K for 1 to ``max_num_seqs`` requests, from the schedule by its own words: the last range begun decides."""
    if case.schedule is None:
        return (case.k,) * case.max_num_seqs
    begun = {first: k for first, _, k in case.schedule}
    ks, k = [], case.k
    for requests in range(1, case.max_num_seqs + 1):
        k = begun.get(requests, k)
        ks.append(min(k, case.k))
    return tuple(ks)


def target_steps(case: Case) -> tuple[Step, ...]:
    """Every decode batch of the case and some mixed ones; under adaptive verification also narrower ones."""
    return tuple(step for n, k in enumerate(k_of_each(case), 1) for step in _target_steps(case, n, k))


def _target_steps(case: Case, n: int, k: int) -> Iterator[Step]:
    q = 1 + k
    if case.adaptive_verification:
        yield from (Step(n, tokens, None, q, k) for tokens in sorted({n, n + n * k // 2, n * q}))
        yield Step(n, n * q, None, None, k)
        return
    loras = case.lora_cases[n % len(case.lora_cases)]
    yield Step(n, n * q, q, q, k, loras, 2 if case.ubatches and n % 2 else 1)
    if n % 5 == 0:
        yield Step(n, n * q - k, None, q if n % 2 else None, k, loras)


def _block_steps(case: Case, query_len: int) -> tuple[Step, ...]:
    return tuple(Step(n, n * query_len, query_len, query_len, 0) for n in range(1, case.max_num_seqs + 1))


def _later_steps(case: Case) -> tuple[Step, ...]:
    return tuple(Step(n, n, 1, 1, k) for n, k in enumerate(k_of_each(case), 1) if k > 1)


def _following_steps(case: Case) -> tuple[Step, ...]:
    """Steps of a drafter that runs on the target's own batch."""
    return tuple(Step(n, n * (1 + k), 1 + k, 1 + k, k) for n, k in enumerate(k_of_each(case), 1))


def drafters_of(case: Case) -> dict[str, DrafterCase]:
    """The drafters that a case is compared for; a multi-module one needs two modules.

    Whether metadata is refreshed in place changes graphs only under tiers.
    """
    if case.k == 0 or case.ubatches:
        return {}
    return {
        name: drafter
        for name, drafter in DRAFTERS.items()
        if (case.k > 1 or drafter.method != "mtp") and (case.schedule or drafter.in_place_metadata)
    }


# -- The engine -------------------------------------------------------------------------------------------


def engine_sizes(root: Path, case: Case) -> Sizes:
    sizes = oracle.stock_capture_sizes(
        root,
        sm100=case.sm100,
        max_num_seqs=case.max_num_seqs,
        max_num_batched_tokens=case.max_num_batched_tokens,
        num_speculative_tokens=case.k,
        schedule=case.schedule,
        performance_mode=case.performance_mode,
        sizes=case.sizes,
        max_size=case.max_size,
    )
    assert isinstance(sizes, Sizes), (case, sizes)
    return sizes


def engine_answers(root: Path, case: Case, *, with_drafters: bool = True) -> Answers:
    sizes = engine_sizes(root, case)
    managers = {"target": _engine_target(root, case, sizes)}
    for name, drafter in drafters_of(case).items() if with_drafters else ():
        managers.update(_engine_drafter(root, case, sizes, name, drafter))
    return Answers(_engine_ks(root, case), sizes.capture_sizes, managers)


def _engine_ks(root: Path, case: Case) -> tuple[int, ...]:
    if case.schedule is None:
        return (case.k,) * case.max_num_seqs
    dense = oracle.dense_schedule(root, case.schedule, max_num_seqs=case.max_num_seqs, num_speculative_tokens=case.k)
    assert isinstance(dense, tuple), dense
    return dense[1:]


def _engine_target(root: Path, case: Case, sizes: Sizes) -> Manager:
    manager = oracle.stock_manager(
        root,
        sizes=sizes.capture_sizes,
        max_size=sizes.max_capture_size,
        max_num_seqs=case.max_num_seqs,
        mode=case.mode,
        decode_query_len=1 + case.k,
        num_speculative_tokens=case.k,
        schedule=case.schedule,
        lora_cases=case.lora_cases,
        varlen_decode=case.adaptive_verification,
        ubatches=case.ubatches,
        use_kda_recoverssm=case.within_decode_width,
    )
    replays = (
        manager.dispatch(s.requests, s.tokens, s.uniform, s.active_loras, s.widest, s.ubatches)
        for s in target_steps(case)
    )
    return Manager(in_order(manager.descs), tuple(map(_or_none, replays)))


def _engine_drafter(root: Path, case: Case, sizes: Sizes, name: str, drafter: DrafterCase) -> dict[str, Manager]:
    draft_config = {"num_nextn_predict_layers": case.k if drafter.method == "mtp" else 1, **dict(drafter.draft_config)}
    found = oracle.drafter_managers(
        root,
        Speculation(
            num_speculative_tokens=case.k, method=drafter.method, schedule=case.schedule, draft_config=draft_config
        ),
        sizes=sizes.capture_sizes,
        max_size=sizes.max_capture_size,
        max_num_seqs=case.max_num_seqs,
        mode=case.mode,
        in_place_metadata=drafter.in_place_metadata,
        use_kda_recoverssm=case.within_decode_width,
    )
    replays: dict[str, Callable[[oracle.DrafterManager], Iterable[Graph]]] = {
        "prefill_cudagraph_manager": lambda m: _dispatched(m, _following_steps(case)),
        "decode_cudagraph_manager": lambda m: (
            m.dispatch_later_steps(s.requests, s.drafts) for s in _later_steps(case)
        ),
        "query_cudagraph_manager": lambda m: _dispatched(m, _block_steps(case, m.decode_query_len)),
        "cudagraph_manager": lambda m: _dispatched(m, _following_steps(case)),
    }
    return {
        f"{name}: {_ROUTINES[attribute]}": Manager(
            in_order(manager.captured), tuple(map(_or_none, replays[attribute](manager)))
        )
        for attribute, manager in found.items()
    }


_ROUTINES = {
    "prefill_cudagraph_manager": "step 0",
    "decode_cudagraph_manager": "later steps",
    "query_cudagraph_manager": "block",
    "cudagraph_manager": "block",
}


def _dispatched(manager: oracle.DrafterManager, steps: Sequence[Step]) -> Iterator[Graph]:
    return (manager.dispatch(step.requests, step.tokens, step.uniform) for step in steps)


def _dispatched_later(manager: oracle.DrafterManager, steps: Sequence[Step]) -> Iterator[Graph]:
    return (manager.dispatch_later_steps(step.requests, step.drafts) for step in steps)


def _or_none(graph: Graph) -> Graph | None:
    return None if graph.mode == "NONE" else graph


# -- servespec --------------------------------------------------------------------------------------------


def frame_of(graphs: Any, case: Case, drafter: DrafterCase | None = None, support: str = "ALWAYS") -> Any:
    """The frame of a case; without a drafter its target alone."""
    managers = graphs.managers
    return managers.GraphFrame(
        max_num_seqs=case.max_num_seqs,
        max_num_batched_tokens=case.max_num_batched_tokens,
        num_speculative_tokens=case.k,
        mode=CudaGraphMode(case.mode),
        tiers=graphs.tiers.tiers_up_to(case.schedule, case.max_num_seqs, case.k) if case.schedule else (),
        adaptive_verification=case.adaptive_verification,
        drafter=managers.Drafter(kind=managers.DrafterKind.NONE)
        if drafter is None
        else _drafter(managers, case, drafter, support),
        lora_cases=case.lora_cases,
        microbatching=managers.Microbatching(2, 32) if case.ubatches else None,
        mixed_within_decode_width=case.within_decode_width,
    )


def _drafter(managers: Any, case: Case, drafter: DrafterCase, support: str) -> Any:
    mode = CudaGraphMode.NONE
    if drafter.block is not None:
        mode = drafter_mode(drafter.block, CudaGraphMode(case.mode), AttentionCgSupport[support], breakable=False).value
    return managers.Drafter(
        kind=managers.DrafterKind(drafter.kind),
        mode=mode,
        query_len=case.k + drafter.extra_query_len,
        fused_later_steps=drafter.in_place_metadata,
    )


def token_list(graphs: Any, case: Case) -> Any:
    frame = frame_of(graphs, case)
    return graphs.stock.stock_token_list(
        graphs.stock.TokenListRequest(
            max_num_seqs=case.max_num_seqs,
            max_num_batched_tokens=case.max_num_batched_tokens,
            query_len=frame.query_len,
            widest_batch=frame.widest_batch,
            default_ceiling_tokens=graphs.graph_sizes.ceiling_tokens(case.sm100),
            every_small_count=case.performance_mode == "interactivity",
            sizes=case.sizes,
            max_size=case.max_size,
        )
    )


def our_answers(graphs: Any, case: Case, *, with_drafters: bool = True) -> Answers:
    sizes, frame = token_list(graphs, case), frame_of(graphs, case)
    target = stock_shapes(graphs, frame, sizes)
    managers = {"target": _manager(graphs, target, target_steps(case))}
    for name, drafter in drafters_of(case).items() if with_drafters else ():
        managers.update(_our_drafter(graphs, case, sizes, name, drafter))
    ks = tuple(frame.k_of(n) for n in range(1, case.max_num_seqs + 1))
    return Answers(ks, sizes.sizes, managers)


def stock_shapes(graphs: Any, frame: Any, sizes: Any) -> tuple[Any, ...]:
    """What servespec says that the engine's managers make of one list."""
    sized = graphs.stock.stock_sizes(graphs.managers.managers_of(frame), sizes, frame.max_num_seqs)
    shapes: tuple[Any, ...] = graphs.inventory.shapes_of(sized, frame.max_num_seqs)
    return shapes


def _our_drafter(graphs: Any, case: Case, sizes: Any, name: str, drafter: DrafterCase) -> dict[str, Manager]:
    shapes = stock_shapes(graphs, frame_of(graphs, case, drafter), sizes)
    steps = {
        "step 0": _following_steps(case),
        "later steps": _later_steps(case),
        "block": _following_steps(case)
        if drafter.method == "mtp"
        else _block_steps(case, case.k + drafter.extra_query_len),
    }
    names = ("step 0", "later steps") if drafter.kind == "autoregressive" else ("block",)
    return {
        f"{name}: {routine}": _manager(graphs, [s for s in shapes if _routine(s) == routine], steps[routine])
        for routine in names
    }


def _routine(shape: Any) -> str:
    if shape.runner == "target":
        return "target"
    return {"step0": "step 0", "later": "later steps", "block": "block"}[shape.routine.partition("_")[0]]


def _manager(graphs: Any, shapes: Sequence[Any], steps: Sequence[Step]) -> Manager:
    dispatcher = graphs.dispatch.engine_dispatcher(shapes)
    replays = (dispatcher.dispatch(batch_of(graphs, step)) for step in steps)
    return Manager(
        in_order(map(as_graph, shapes)), tuple(None if shape is None else as_graph(shape) for shape in replays)
    )


def batch_of(graphs: Any, step: Step) -> Any:
    return graphs.dispatch.Batch(
        requests=step.requests,
        tokens=step.tokens,
        query_len=step.uniform,
        max_query_len=step.widest,
        active_loras=step.active_loras,
        ubatches=step.ubatches,
        draft_steps=step.drafts,
    )


def as_graph(shape: Any) -> Graph:
    """A shape in the oracle's form."""
    return Graph(
        shape.mode.value,
        shape.tokens,
        shape.requests,
        shape.query_len,
        shape.max_query_len,
        shape.active_loras,
        shape.ubatches,
        shape.draft_steps,
    )


def differences(ours: Answers, engine: Answers) -> list[str]:
    """What differs, by name; empty where nothing does."""
    found = [name for name in ("ks", "capture_sizes") if getattr(ours, name) != getattr(engine, name)]
    names = sorted({*ours.managers, *engine.managers})
    return found + [name for name in names if ours.managers.get(name) != engine.managers.get(name)]
