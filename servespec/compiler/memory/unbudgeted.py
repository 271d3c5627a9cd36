"""What the engine's memory budget does not hold: buffers made once the KV cache has its size, and what a wide step
takes while the engine runs.

Neither keeps an engine from starting.  They come from what is left of the device beside the budget, and from what the
engine set aside for graphs that turn out smaller.
"""

from collections.abc import Iterator

from servespec.compiler.facts.unbudgeted import (
    COMPRESSED_BUFFERS,
    COMPRESSED_BUFFERS_AT,
    PROFILED_LOGITS,
    PROFILED_LOGITS_VARIABLE,
    TOPK_ALIGNMENT,
    TOPK_RATIO,
)
from servespec.compiler.memory.config_sizes import merged_config
from servespec.compiler.memory.indexer_logits import IndexerRow, indexer_row
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.resolve.request import max_model_len, variable_count
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Basis
from servespec.units import Bytes, Tokens, size_words

_INDEX_BYTES = 4
# chosen: one launch was measured; builders of other groups grow alike with tokens and context
_BUFFERS_HIGH = 0.15


def unbudgeted_lines(resolution: Resolution) -> Iterator[MemoryLine]:
    yield from _compressed_buffers(resolution)
    row = indexer_row(resolution)
    if row is not None:
        yield from _step_logits(resolution, row)


def _compressed_buffers(resolution: Resolution) -> Iterator[MemoryLine]:
    """Indices of compressed attention, for every token of a step and position of the context, and what is beside them.

    The two buffers that the engine's source shows are the low end.
    Source: vllm/models/deepseek_v4/sparse_mla.py: DeepseekV4SparseMLAMetadataBuilder.__init__.
    """
    context = max_model_len(resolution.request).value
    ratios = merged_config(resolution.request.target).get("compress_ratios")
    if context is None or not isinstance(ratios, list) or TOPK_RATIO.value not in ratios:
        return
    tokens = resolution.frame.max_num_batched_tokens
    measured_tokens, measured_context = COMPRESSED_BUFFERS_AT
    size = COMPRESSED_BUFFERS.value * tokens * context // (measured_tokens * measured_context)
    positions = -(-context // (TOPK_RATIO.value * TOPK_ALIGNMENT.value)) * TOPK_ALIGNMENT.value
    known = 2 * tokens * positions * _INDEX_BYTES
    yield MemoryLine(
        owner="buffers made with the KV cache",
        holder=Holder.ENGINE,
        part=Part.OTHER,
        size=Bytes(max(size, known)),
        low=Bytes(known),
        high=Bytes(int(max(size, known) * (1 + _BUFFERS_HIGH))),
        basis=Basis.ESTIMATE,
        because=f"{size_words(COMPRESSED_BUFFERS.value)} measured at {measured_tokens} tokens a step and a context of "
        f"{measured_context}, scaled to {tokens} and {context}",
        is_budgeted=False,
    )


def _step_logits(resolution: Resolution, row: IndexerRow) -> Iterator[MemoryLine]:
    """Of the widest decode step that replays no FULL graph, which one with a prefill in it never does.

    The profile run takes a tensor of fixed size in their place.  At the low end no step gets as wide.
    Source: vllm/model_executor/layers/sparse_attn_indexer.py: sparse_attn_indexer.
    """
    rows, profiled_bytes = widest_decode_tokens(resolution), _profiled_bytes(resolution)
    whole = rows * (row.scored_bytes + row.converted_bytes)
    if whole <= profiled_bytes:
        return
    yield MemoryLine(
        owner="indexer logits of a wide step",
        holder=Holder.TARGET,
        part=Part.RUNTIME,
        size=Bytes(whole - profiled_bytes),
        low=Bytes(0),
        high=Bytes(whole),
        basis=Basis.BOUND,
        because=f"{rows} rows x {row.positions} positions, of which the profile run holds {size_words(profiled_bytes)}",
        is_budgeted=False,
    )


def widest_decode_tokens(resolution: Resolution) -> Tokens:
    """Of a step whose requests all decode."""
    frame = resolution.frame
    widest = max(requests * query_len for query_len, requests in frame.widest_batch.items())
    if frame.most_verified_tokens is not None:
        widest = min(widest, frame.most_verified_tokens)
    return Tokens(min(widest, frame.max_num_batched_tokens))


def _profiled_bytes(resolution: Resolution) -> Bytes:
    written = variable_count(resolution.request.spec, PROFILED_LOGITS_VARIABLE)
    return PROFILED_LOGITS.value if written is None else Bytes(written << 20)
