"""The logits of a sparse indexer, which scores every compressed position of the context for each row of a step."""

from dataclasses import dataclass

from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.facts.graph_memory import INDEXED_RATIO
from servespec.compiler.memory.config_sizes import merged_config
from servespec.compiler.resolve.request import engine_field, max_model_len
from servespec.compiler.resolve.resolution import Resolution

_BF16_BYTES = 2
_FP32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerRow:
    """Bytes of one row on every rank: as scored, and as converted for the selection (0 where it is not)."""

    positions: int
    scored_bytes: int
    converted_bytes: int


def indexer_row(resolution: Resolution) -> IndexerRow | None:
    """None where the target has no sparse indexer or the context is not known.

    Sources: vllm/model_executor/layers/sparse_attn_indexer.py: sparse_attn_indexer, as_fp32_logits;
    vllm/models/deepseek_v4/attention.py: DeepseekV4Indexer.
    """
    request = resolution.request
    context, ratios = max_model_len(request).value, merged_config(request.target).get("compress_ratios")
    is_compressed = isinstance(ratios, list) and INDEXED_RATIO.value in ratios
    if context is None or not (is_compressed or request.target.traits.uses_sparse_index):
        return None
    positions = -(-context // (INDEXED_RATIO.value if is_compressed else 1))
    if not is_sm100(request.device):
        return IndexerRow(positions=positions, scored_bytes=positions * _FP32_BYTES, converted_bytes=0)
    converts = engine_field(request.spec, "kernel", "sparse_indexer_topk_backend", None) != "deep_select"
    return IndexerRow(
        positions=positions,
        scored_bytes=positions * _BF16_BYTES,
        converted_bytes=positions * _FP32_BYTES if converts else 0,
    )
