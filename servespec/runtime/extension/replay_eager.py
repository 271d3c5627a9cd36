"""Lets an engine run a step eagerly in the shape of the graph that it would have replayed.

The engine picks a graph by a descriptor.  In an eager step the descriptor keeps its padded sizes and loses its mode, so
that the engine pads as for the graph and then calls the model.  Two things that the engine pads only for a FULL graph
are padded here as well: the target's attention metadata, and how many requests a drafter's routine runs on.
Source: vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.execute_model; propose of each speculator.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from servespec.runtime.extension.captured_shapes import CapturedShape, shape_of
from servespec.runtime.extension.substitution import substitute

_DISPATCH: Final = "dispatch_cg_and_sync_dp"
_ENGINE_MODULES: Final = "vllm.v1.worker.gpu."
DRAFT_ROUTINES: Final = {
    "_prefill": ("prefill_cudagraph_manager",),
    "_generate_draft": ("decode_cudagraph_manager", "query_cudagraph_manager"),
    "_generate_fused_drafts": ("decode_cudagraph_manager",),
    "_generate_drafts": ("cudagraph_manager",),
}
"""What each FULL graph of a drafter records, with the managers that may hold it; the first argument counts requests."""


class GraphInEagerStepError(RuntimeError):
    """A graph was replayed although the step was to run eagerly."""


@dataclass(slots=True)
class GraphSwitch:
    """Whether the engine's next steps replay graphs; ``replayed`` are the graphs of the steps since it was emptied."""

    is_eager: bool = False
    replayed: list[CapturedShape] = field(default_factory=list)
    _chosen: dict[int, Any] = field(default_factory=dict)
    """What each manager would have replayed in the step at hand, by its identity."""

    @contextmanager
    def eager(self) -> Iterator[None]:
        before, self.is_eager = self.is_eager, True
        try:
            yield
        finally:
            self.is_eager = before

    def padded_requests(self, managers: list[Any], requests: int) -> int:
        """What a routine of a drafter runs on: in an eager step as many requests as its FULL graph holds."""
        chosen = [self._chosen.get(id(manager)) for manager in managers if manager is not None]
        full = [int(one.num_reqs) for one in chosen if one is not None and one.cg_mode.name == "FULL"]
        return max([requests, *full]) if self.is_eager else requests

    def stands_for_full(self, manager: Any) -> bool:
        chosen = self._chosen.get(id(manager))
        return self.is_eager and chosen is not None and chosen.cg_mode.name == "FULL"

    def dispatched(self, manager: Any, descriptor: Any, none_mode: Any) -> Any:
        """What the engine is told to run instead of ``descriptor``."""
        self._chosen[id(manager)] = descriptor
        if self.is_eager:
            return replace(descriptor, cg_mode=none_mode)
        if descriptor.cg_mode.name == "PIECEWISE":
            self.replayed.append(shape_of(manager, descriptor))
        return descriptor

    def replays(self, manager: Any, descriptor: Any) -> None:
        if self.is_eager:
            raise GraphInEagerStepError(f"an eager step replayed the graph of {descriptor}")
        self.replayed.append(shape_of(manager, descriptor))


@contextmanager
def graph_switch(runner: Any) -> Iterator[GraphSwitch]:
    """The engine of ``runner`` under a switch, and as it was afterwards."""
    switch = GraphSwitch()
    with ExitStack() as undo:
        _take_dispatch(switch, undo)
        _take_replay(switch, undo)
        _take_target_metadata(switch, runner, undo)
        if getattr(runner, "speculator", None) is not None:
            _take_draft_routines(switch, runner.speculator, undo)
        yield switch


def _take_dispatch(switch: GraphSwitch, undo: ExitStack) -> None:
    """Every module that imported the engine's dispatch calls it by a name of its own."""
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu import dp_utils

    engines_own = dp_utils.dispatch_cg_and_sync_dp

    def dispatch(manager: Any, *given: Any, **named: Any) -> Any:
        descriptor, across_ranks = engines_own(manager, *given, **named)
        return switch.dispatched(manager, descriptor, CUDAGraphMode.NONE), across_ranks

    for name, module in list(sys.modules.items()):
        if name.startswith(_ENGINE_MODULES) and vars(module).get(_DISPATCH) is engines_own:
            substitute(undo, module, _DISPATCH, dispatch)


def _take_replay(switch: GraphSwitch, undo: ExitStack) -> None:
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    engines_own = CudaGraphManager.run_fullgraph

    def run_fullgraph(manager: Any, desc: Any) -> Any:
        switch.replays(manager, desc)
        return engines_own(manager, desc)

    substitute(undo, CudaGraphManager, "run_fullgraph", run_fullgraph)


def _take_target_metadata(switch: GraphSwitch, runner: Any, undo: ExitStack) -> None:
    from vllm.config.compilation import CUDAGraphMode

    engines_own = runner.model_state.prepare_attn

    def prepare_attn(input_batch: Any, cudagraph_mode: Any, *given: Any, **named: Any) -> Any:
        mode = CUDAGraphMode.FULL if switch.stands_for_full(runner.cudagraph_manager) else cudagraph_mode
        return engines_own(input_batch, mode, *given, **named)

    substitute(undo, runner.model_state, "prepare_attn", prepare_attn)


def _take_draft_routines(switch: GraphSwitch, speculator: Any, undo: ExitStack) -> None:
    for name, managers in DRAFT_ROUTINES.items():
        routine = getattr(speculator, name, None)
        if routine is not None:
            substitute(undo, speculator, name, _padded(switch, speculator, managers, routine))


def _padded(
    switch: GraphSwitch, speculator: Any, managers: tuple[str, ...], routine: Callable[..., Any]
) -> Callable[..., Any]:
    def run(num_reqs: int, *given: Any, **named: Any) -> Any:
        held = [getattr(speculator, name, None) for name in managers]
        return routine(switch.padded_requests(held, num_reqs), *given, **named)

    return run
