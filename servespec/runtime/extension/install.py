"""Puts the plan's graphs into the engine's graph managers, by one replaced method.

Everything else stays the engine's: its capture, its dispatch, its microbatch rule, its LoRA cases.  Only the order in
which the target's graphs are captured may be another.
Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import groupby
from typing import Any, Final

from servespec.compiler.graphs.hand_off import DRAFTER_CLASSES, TARGET_CLASS

_PLANNED_CLASSES: Final = frozenset({TARGET_CLASS, *DRAFTER_CLASSES.values()})
"""A manager of any other class keeps the engine's method."""

Entry = Mapping[str, Any]


class PlanMismatchError(RuntimeError):
    """The engine is not the one that was planned for; it is not to capture anything."""


@dataclass(frozen=True, slots=True)
class EngineTypes:
    """The engine's own `CudaGraphManager`, `BatchExecutionDescriptor` and `CUDAGraphMode`."""

    manager: type
    descriptor: type
    mode: Any


def varlen_tokens(entries: Iterable[Entry]) -> frozenset[int]:
    """The sizes of the target's graphs that take any mix of query lengths."""
    target = (entry for entry in entries if entry["class"] == TARGET_CLASS)
    return frozenset(tokens for entry in target for tokens, _, _, max_query_len in entry["full"] if max_query_len)


def install(entries: Iterable[Entry], types: EngineTypes) -> None:
    """Replaces ``_init_candidates``; managers built from now on hold the graphs of ``entries``."""
    by_manager = {(entry["class"], entry["query_len"]): entry for entry in entries}
    engines_own = types.manager._init_candidates  # type: ignore[attr-defined]

    def _init_candidates(manager: Any) -> None:
        name = type(manager).__name__
        if name not in _PLANNED_CLASSES:
            engines_own(manager)
            return
        entry = by_manager.get((name, manager.decode_query_len))
        if entry is not None and manager.cudagraph_mode:
            _check(manager, entry)
            _fill(manager, entry, types)

    types.manager._init_candidates = _init_candidates  # type: ignore[attr-defined]
    _capture_widest_first(types)


def _check(manager: Any, entry: Entry) -> None:
    said = f"the graph manager {entry['class']} of query length {entry['query_len']}"
    mode, cases = manager.cudagraph_mode.name, manager.lora_capture_cases
    if mode != entry["mode"]:
        raise PlanMismatchError(f"{said} runs in {mode}, planned was {entry['mode']}")
    if sorted(cases) != sorted(entry["lora_cases"]):
        raise PlanMismatchError(f"{said} has LoRA cases {cases}, planned were {entry['lora_cases']}")
    if any(max_query_len for *_, max_query_len in entry["full"]) and not manager.varlen_decode:
        raise PlanMismatchError(f"{said} verifies no chosen drafts, planned were graphs of adaptive verification")


def _fill(manager: Any, entry: Entry, types: EngineTypes) -> None:
    descriptors = tuple(_descriptors(manager, entry, types))
    for mode in (types.mode.PIECEWISE, types.mode.FULL):
        of_mode = sorted((one for one in descriptors if one.cg_mode == mode), key=_tokens, reverse=True)
        if of_mode:
            manager._capture_descs[mode] = of_mode
    manager._candidates = _candidates(descriptors, manager.lora_capture_cases, types)


def _descriptors(manager: Any, entry: Entry, types: EngineTypes) -> Iterator[Any]:
    for loras in manager.lora_capture_cases:
        for tokens in entry["piecewise"]:
            yield types.descriptor(
                cg_mode=types.mode.PIECEWISE, num_tokens=tokens, num_reqs=None, num_active_loras=loras
            )
        for tokens, requests, query_len, max_query_len in entry["full"]:
            full = types.descriptor(
                cg_mode=types.mode.FULL,
                num_tokens=tokens,
                num_reqs=requests,
                uniform_token_count=query_len,
                max_query_len=max_query_len,
                num_active_loras=loras,
            )
            yield full
            twin = manager._maybe_ubatch_twin(full)
            if twin is not None:
                yield twin


def _capture_widest_first(types: EngineTypes) -> None:
    """The target's output buffer is as wide as the first step captured, and the engine starts with PIECEWISE.

    Where a FULL graph is wider than all of those, it goes in front of them: the engine captures each graph by its own
    mode, whichever list it stands in.  It stands there for the capture alone: the engine's estimate of graph memory
    counts the FULL list after it.
    Source: ModelCudaGraphManager.capture: store_capture_output; profile_cudagraph_memory.
    """
    engines_own = types.manager.capture  # type: ignore[attr-defined]

    @wraps(engines_own)
    def capture(manager: Any, *given: Any, **named: Any) -> None:
        if type(manager).__name__ != TARGET_CLASS:
            engines_own(manager, *given, **named)
            return
        whole = manager._capture_descs
        manager._capture_descs = _widest_in_front(whole, types)
        try:
            engines_own(manager, *given, **named)
        finally:
            manager._capture_descs = whole

    types.manager.capture = capture  # type: ignore[attr-defined]


def _widest_in_front(whole: Mapping[Any, list[Any]], types: EngineTypes) -> dict[Any, list[Any]]:
    full, piecewise = whole.get(types.mode.FULL, []), whole.get(types.mode.PIECEWISE, [])
    if not (full and piecewise and full[0].num_tokens > piecewise[0].num_tokens):
        return dict(whole)
    moved = {types.mode.PIECEWISE: [full[0], *piecewise], types.mode.FULL: full[1:]}
    return {**whole, **moved}


def _candidates(
    descriptors: tuple[Any, ...], lora_cases: Iterable[int], types: EngineTypes
) -> dict[tuple[int, int], list[Any]]:
    """For each token count and LoRA case the next graph of every query length, then those for any batch.

    The engine's rule has one ladder over all query lengths, on which a batch can miss a graph of its own.
    """
    found: dict[tuple[int, int], list[Any]] = {}
    for loras in lora_cases:
        own = [one for one in descriptors if one.num_active_loras == loras]
        for mode in (types.mode.FULL, types.mode.PIECEWISE):
            of_mode = [one for one in own if one.cg_mode == mode]
            query_lens = sorted({one.uniform_token_count for one in of_mode} - {None}, reverse=True)
            for query_len in (*query_lens, None):
                ladder = (one for one in of_mode if one.uniform_token_count == query_len)
                _add_ladder(found, ladder, loras)
    return found


def _add_ladder(found: dict[tuple[int, int], list[Any]], ladder: Iterable[Any], loras: int) -> None:
    first = 0
    for tokens, group in groupby(sorted(ladder, key=_tokens), _tokens):
        same = list(group)
        for count in range(first, tokens + 1):
            found.setdefault((count, loras), []).extend(same)
        first = tokens + 1


def _tokens(descriptor: Any) -> int:
    return int(descriptor.num_tokens)
