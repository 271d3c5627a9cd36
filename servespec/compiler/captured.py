"""How a plan reaches the engine, and what is captured that way."""

from functools import lru_cache

from servespec.compiler.extension import can_take_extension
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.graphs.coverage import coverage_of
from servespec.compiler.graphs.dispatch import engine_dispatcher, split_dispatcher
from servespec.compiler.graphs.inventory import shapes_of
from servespec.compiler.graphs.managers import GraphFrame, managers_of
from servespec.compiler.graphs.shape import Routine, Runner, Shape, union_tokens
from servespec.compiler.graphs.stock import TokenList, stock_sizes, stock_token_list
from servespec.compiler.lower import Lowering, legacy_token_list
from servespec.compiler.remedies import remedies_with_effect
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Tokens


def stock_list_of(resolution: Resolution) -> TokenList:
    """The engine's list for the spec as written; empty where the mode captures nothing."""
    if resolution.frame.mode is CudaGraphMode.NONE:
        return TokenList(())
    return stock_token_list(resolution.token_list)


@lru_cache(maxsize=4)
def engine_shapes(frame: GraphFrame, sizes: TokenList) -> tuple[Shape, ...]:
    """What the engine makes of one list; its own is asked for with every choice of sizes."""
    return shapes_of(stock_sizes(managers_of(frame), sizes, frame.max_num_seqs), frame.max_num_seqs)


def choose_lowering(
    resolution: Resolution, asked: tuple[Shape, ...], stock_list: TokenList
) -> tuple[Lowering, tuple[Tokens, ...] | None]:
    """How the plan reaches the engine, and the list that goes with it."""
    lowering = _chosen_lowering(resolution, asked, stock_list)
    if lowering in (Lowering.NATIVE, Lowering.NONE):
        return lowering, resolution.fields.legacy_sizes_tokens
    if lowering is Lowering.LEGACY and resolution.fields.legacy:
        return lowering, resolution.fields.legacy_sizes_tokens
    if lowering is Lowering.EXTENSION:
        return lowering, union_tokens(asked)
    return lowering, _list_for(resolution, asked)


def _list_for(resolution: Resolution, asked: tuple[Shape, ...]) -> tuple[Tokens, ...]:
    frame = resolution.frame
    target = [shape for shape in asked if shape.runner is Runner.TARGET]
    later = max((s.requests or 0 for s in asked if s.routine is Routine.LATER_STEPS), default=0)
    return legacy_token_list(target, later, frame.max_num_batched_tokens)


def _chosen_lowering(resolution: Resolution, asked: tuple[Shape, ...], stock_list: TokenList) -> Lowering:
    named = resolution.request.spec.engine.lowering
    if is_cpu(resolution.device) or resolution.frame.mode is CudaGraphMode.NONE:
        return Lowering.NONE
    if named != "auto":
        return Lowering(named)
    if resolution.engine.has_split_fields:
        return Lowering.NATIVE
    if not resolution.complete:
        return Lowering.LEGACY if resolution.fields.legacy else Lowering.NONE
    return _auto_lowering(resolution, asked, stock_list)


def _auto_lowering(resolution: Resolution, asked: tuple[Shape, ...], stock_list: TokenList) -> Lowering:
    """The extension where something beside graphs needs it; None where stock does the same, the list where it says
    the same."""
    frame = resolution.frame
    needs_workers = frame.follows_load or bool(remedies_with_effect(resolution, asked))
    if needs_workers and can_take_extension(resolution):
        return Lowering.EXTENSION
    as_written = engine_shapes(frame, stock_list)
    if _same(frame, as_written, asked):
        return Lowering.LEGACY if resolution.fields.legacy else Lowering.NONE
    one_list = TokenList(_list_for(resolution, asked))
    if _same(frame, engine_shapes(frame, one_list), asked):
        return Lowering.LEGACY
    return Lowering.EXTENSION if can_take_extension(resolution) else Lowering.LEGACY


def _same(frame: GraphFrame, engine: tuple[Shape, ...], asked: tuple[Shape, ...]) -> bool:
    """The same graphs, dispatched alike by the engine's rule and by ours."""
    if set(engine) != set(asked):
        return False
    return coverage_of(frame, engine, engine_dispatcher) == coverage_of(frame, asked, split_dispatcher)


def captured(
    resolution: Resolution,
    lowering: Lowering,
    asked: tuple[Shape, ...],
    token_list: tuple[Tokens, ...] | None,
) -> tuple[Shape, ...]:
    if lowering in (Lowering.EXTENSION, Lowering.NATIVE):
        return asked
    if token_list and lowering is Lowering.LEGACY and not resolution.fields.legacy:
        return engine_shapes(resolution.frame, TokenList(token_list))
    return engine_shapes(resolution.frame, stock_list_of(resolution))
