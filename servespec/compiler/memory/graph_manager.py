"""The managers of a plan's graphs, each with the pass that it captures.

Sources: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager; every manager under vllm/v1/worker/gpu/spec_decode/.
"""

from dataclasses import dataclass, replace
from typing import Final

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Routine, Runner, Shape, union_tokens, widest_tokens
from servespec.compiler.list_effects import graph_splits, list_change
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.forward_passes import ModelPass, draft_pass, target_pass, untold
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.memory.stage import Stage
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Basis
from servespec.units import Bytes, Tokens

HOLDERS: Final = {Runner.TARGET: Holder.TARGET, Runner.DRAFTER: Holder.DRAFTER, Runner.ENGINE: Holder.ENGINE}
_BLOCKS = {DrafterKind.BLOCK: "block", DrafterKind.MULTI_MODULE_MTP: "modules"}
_CHUNK_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """The graphs of one manager and the pass that it captures, as often as ``passes`` in a FULL graph.

    ``untold`` are fields that its model's config lacks.
    """

    runner: Runner
    name: str
    forward: ModelPass
    untold: tuple[str, ...]
    piecewise: tuple[Shape, ...]
    full: tuple[Shape, ...]
    passes: int = 1

    @property
    def widest_piecewise(self) -> Tokens:
        return widest_tokens(self.piecewise)

    @property
    def widest_full(self) -> Tokens:
        return widest_tokens(self.full)

    def line(self, owner: str, size: Bytes, low: float, high: float, because: str) -> MemoryLine:
        """``low`` and ``high`` are shares; the size bounds from below where the config does not tell all widths."""
        if self.untold:
            because = f"{because}; without {', '.join(self.untold)}, which config.json does not tell"
        return MemoryLine(
            owner=f"{self.name}: {owner}",
            holder=HOLDERS[self.runner],
            part=Part.GRAPHS,
            size=size,
            low=Bytes(int(size * low)),
            high=Bytes(int(size * high)),
            basis=Basis.BOUND if self.untold else Basis.ESTIMATE,
            because=because,
            moves_estimate=True,
        )


def splits_of(resolution: Resolution, shapes: tuple[Shape, ...], lowering: Lowering) -> int:
    """KV splits that attention takes at most in a graph of ``shapes``."""
    sizes = union_tokens(shapes)
    return graph_splits(list_change(resolution, lowering, shapes, sizes, sizes))


def managers_of(resolution: Resolution, shapes: tuple[Shape, ...], splits: int, stage: Stage) -> tuple[Manager, ...]:
    """Those of one pipeline stage that have graphs, in the order of their captures; drafters are on the last."""
    managers = [target_manager(resolution, shapes, splits, stage)]
    drafted = tuple(shape for shape in shapes if shape.runner is Runner.DRAFTER and stage.is_last)
    if drafted:
        forward = draft_pass(resolution, splits)
        later = tuple(shape for shape in drafted if shape.routine is Routine.LATER_STEPS)
        first = tuple(shape for shape in drafted if shape.routine is not Routine.LATER_STEPS)
        lacking = untold(resolution.request.draft or resolution.request.target)
        name = _BLOCKS.get(resolution.drafting.kind, "step 0")
        managers.append(_manager(Runner.DRAFTER, name, forward, lacking, first))
        passes = _later_passes(resolution)
        managers.append(replace(_manager(Runner.DRAFTER, "later steps", forward, lacking, later), passes=passes))
    return tuple(manager for manager in managers if manager.piecewise or manager.full)


def _later_passes(resolution: Resolution) -> int:
    """One graph holds all later steps where the drafter can update its attention's metadata on the device."""
    steps = resolution.frame.num_speculative_tokens - 1 if resolution.frame.drafter.fused_later_steps else 1
    return max(steps, 1)


def in_row_chunks(forward: ModelPass) -> ModelPass:
    """The same pass with the remedy of that name: an indexer's logits are made of 512 rows at a time."""
    scores = forward.scores
    return forward if scores is None else replace(forward, scores=replace(scores, most_rows=_CHUNK_ROWS))


def target_manager(resolution: Resolution, shapes: tuple[Shape, ...], splits: int, stage: Stage) -> Manager:
    """The target's, whether it has graphs or not."""
    own = tuple(shape for shape in shapes if shape.runner is Runner.TARGET)
    lacking = untold(resolution.request.target)
    return _manager(Runner.TARGET, "target", target_pass(resolution, splits, stage), lacking, own)


def _manager(
    runner: Runner, name: str, forward: ModelPass, lacking: tuple[str, ...], shapes: tuple[Shape, ...]
) -> Manager:
    return Manager(
        runner=runner,
        name=name,
        forward=forward,
        untold=lacking,
        piecewise=tuple(shape for shape in shapes if shape.mode is CudaGraphMode.PIECEWISE),
        full=tuple(shape for shape in shapes if shape.mode is CudaGraphMode.FULL),
    )
