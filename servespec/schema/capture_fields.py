"""The five capture fields, the two legacy ones, and what the first are where the second are written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.schema.spec import CompilationSection

PREFILL_CAP = "max_prefill_cudagraph_capture_tokens"
PREFILL_SIZES = "prefill_cudagraph_capture_token_sizes"
DECODE_CAP = "max_decode_cudagraph_capture_requests"
DECODE_SIZES = "decode_cudagraph_capture_request_sizes"
DECODE_BUDGET = "max_decode_cudagraph_capture_tokens"
NEW_FIELDS = (PREFILL_CAP, PREFILL_SIZES, DECODE_CAP, DECODE_SIZES, DECODE_BUDGET)

LEGACY_SIZES = "cudagraph_capture_sizes"
LEGACY_MAX = "max_cudagraph_capture_size"
LEGACY_FIELDS = (LEGACY_SIZES, LEGACY_MAX)

SIZED_BY_MODE: Mapping[str, tuple[str, ...]] = {
    "NONE": (),
    "PIECEWISE": (PREFILL_CAP, PREFILL_SIZES),
    "FULL": (PREFILL_CAP, PREFILL_SIZES),
    "FULL_DECODE_ONLY": (DECODE_CAP, DECODE_SIZES, DECODE_BUDGET),
    "FULL_AND_PIECEWISE": NEW_FIELDS,
}
"""The new fields that each mode has a use for."""


def legacy_in_force(fields: CompilationSection) -> bool:
    """Whether the legacy fields decide; beside new fields they can only be the engine's own record."""
    new = any(getattr(fields, name) is not None for name in NEW_FIELDS)
    return not new and any(getattr(fields, name) is not None for name in LEGACY_FIELDS)


@dataclass(frozen=True, slots=True)
class Reach:
    """What token counts become as request counts: q of each tier, and limits; None and () are not known yet.

    ``budget_tokens`` is the decode budget that the new fields bring where they name none.
    """

    query_lens: tuple[int, ...]
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    budget_tokens: int | None = None


def replacement_of(legacy: CompilationSection, reach: Reach) -> dict[str, Any]:
    """The new fields that say what the legacy ones say; empty where K is not known.

    A list becomes the list itself for prefill, and for decode the request counts that the engine makes of it; a maximum
    beside it says nothing more.  A maximum alone becomes a cap of each kind, on the default grids, which are not the
    engine's strides.
    """
    if not reach.query_lens or not legacy_in_force(legacy):
        return {}
    useful = NEW_FIELDS if legacy.cudagraph_mode is None else SIZED_BY_MODE[legacy.cudagraph_mode]
    decode = _decode(legacy, reach)
    fields = {
        PREFILL_SIZES: legacy.cudagraph_capture_sizes,
        PREFILL_CAP: None if legacy.cudagraph_capture_sizes else legacy.max_cudagraph_capture_size,
        **decode,
        DECODE_BUDGET: _budget(decode, reach),
    }
    return {name: value for name, value in fields.items() if name in useful and value is not None}


def _decode(legacy: CompilationSection, reach: Reach) -> dict[str, Any]:
    sizes, maximum = legacy.cudagraph_capture_sizes, legacy.max_cudagraph_capture_size
    if sizes is None:
        tokens = _within(maximum or 0, reach.max_num_batched_tokens)
        widest = _within(max(tokens // query_len for query_len in reach.query_lens), reach.max_num_seqs)
        return {DECODE_CAP: widest} if widest else {DECODE_SIZES: ()}
    return {DECODE_SIZES: tuple(sorted(_counts(sizes, reach)))}


def _counts(sizes: tuple[int, ...], reach: Reach) -> set[int]:
    """Each size rounded up to whole requests, none beyond the largest size; the widest batch that they reach stays.

    Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates.
    """
    kept = [size for size in sizes if size == _within(size, reach.max_num_batched_tokens)]
    counts = set(_rounded_up(kept, reach.query_lens))
    widest = {_within(max(counts), reach.max_num_seqs)} if counts else set()
    return {count for count in counts if count == _within(count, reach.max_num_seqs)} | widest


def _rounded_up(sizes: list[int], query_lens: tuple[int, ...]) -> Iterator[int]:
    largest = max(sizes, default=0)
    for query_len in query_lens:
        yield from (count for size in sizes if (count := -(-size // query_len)) * query_len <= largest)


def _budget(decode: Mapping[str, Any], reach: Reach) -> str | None:
    """The legacy fields know no budget."""
    if reach.budget_tokens is None:
        return None
    widest = decode.get(DECODE_CAP) or max(decode.get(DECODE_SIZES, ()), default=0)
    most = max(widest * max(reach.query_lens), reach.max_num_seqs or 0)
    return "unlimited" if most > reach.budget_tokens else None


def _within(value: int, limit: int | None) -> int:
    return value if limit is None else min(value, limit)
