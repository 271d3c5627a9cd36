"""What a list other than the engine's own changes beside the graphs, in words with the numbers of one plan.

One function a reader of ``facts/list_readers.py``.  It says nothing where the spec does not reach the reader, where
both lists give the same, and where the plan's costs less.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.list_readers import (
    DECODE_WRAPPER,
    DEFAULT_SPLITS,
    KIMI_PREPARED,
    LIST_READERS,
    QWEN4_FUSED_ROWS,
    SPLITS_FIELD,
    ListReader,
    Matters,
    split_accumulator_bytes,
    tokenspeed_workspace_bytes,
    triton_threshold_requests,
)
from servespec.compiler.graphs.shape import Shape
from servespec.compiler.lower import Lowering
from servespec.compiler.resolve.attention_needs import (
    AttentionNeeds,
    AttentionQuestion,
    flash_attention_version,
    uses_trtllm,
)
from servespec.compiler.resolve.request import engine_field, turns_on
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes, Tokens, size_words


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUse:
    """One list, ascending; ``split_bound_tokens`` is the widest step that takes the splits of FULL graphs."""

    sizes_tokens: tuple[Tokens, ...]
    split_bound_tokens: Tokens

    @property
    def maximum(self) -> Tokens:
        return self.sizes_tokens[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChange:
    """A resolved spec with the list of its plan and the engine's own; ``question`` None where attention is unknown."""

    resolution: Resolution
    question: AttentionQuestion | None
    stock: ListUse
    planned: ListUse

    def field(self, section: str, name: str, default: Any) -> Any:
        return engine_field(self.resolution.request.spec, section, name, default)

    def is_set(self, variable: str) -> bool:
        """Whether the spec turns a variable of the engine on that is off by default."""
        return turns_on(self.resolution.request.spec, variable)

    @property
    def needs(self) -> AttentionNeeds | None:
        return None if self.question is None else self.question.needs

    @property
    def has_full_graphs(self) -> bool:
        return self.resolution.frame.mode.has_full()

    @property
    def decode_tokens(self) -> Tokens:
        """Tokens of the widest uniform decode step, whether or not a step holds them."""
        frame = self.resolution.frame
        return Tokens(frame.max_num_seqs * frame.query_len)


def split_bound_tokens(lowering: Lowering, list_maximum_tokens: Tokens, shapes: tuple[Shape, ...]) -> Tokens:
    """The widest step whose KV splits are those of FULL graphs.

    The engine takes every step that its list covers for one; the extension takes no step wider than the widest FULL
    graph of any manager.
    """
    if lowering is not Lowering.EXTENSION:
        return list_maximum_tokens
    widest = max((shape.tokens for shape in shapes if shape.mode is CudaGraphMode.FULL), default=Tokens(0))
    return min(widest, list_maximum_tokens)


def list_change(
    resolution: Resolution,
    lowering: Lowering,
    shapes: tuple[Shape, ...],
    stock_sizes: tuple[Tokens, ...],
    planned_sizes: tuple[Tokens, ...],
) -> ListChange:
    """Both lists must hold an entry."""
    bound = split_bound_tokens(lowering, planned_sizes[-1], shapes)
    return ListChange(
        resolution=resolution,
        question=resolution.question,
        stock=ListUse(sizes_tokens=stock_sizes, split_bound_tokens=stock_sizes[-1]),
        planned=ListUse(sizes_tokens=planned_sizes, split_bound_tokens=bound),
    )


def effects(change: ListChange, matters: Matters) -> tuple[str, ...]:
    """What changes at the readers that matter for this before anything else, one phrase a reader."""
    told = (EFFECTS[reader.name](change) for reader in _reached(change) if reader.matters[0] is matters)
    return tuple(words for phrases in told for words in phrases)


def _reached(change: ListChange) -> Iterator[ListReader]:
    """Those with an effect to tell."""
    for sourced in LIST_READERS[change.resolution.engine.facts_version]:
        if sourced.value.name in EFFECTS and reaches(sourced.value, change):
            yield sourced.value


def reaches(reader: ListReader, change: ListChange) -> bool:
    """Whether the spec has the backend, architecture and GPU of a reader; its other needs are its effect's to ask."""
    request = change.resolution.request
    lowest, highest = reader.capabilities
    return (
        lowest <= request.device.compute_capability <= highest
        and _meets(reader.backends, _backends(change))
        and _meets(reader.architectures, request.target.traits.architectures)
        and _meets(reader.flash_attention, _flash_attention(change))
    )


def _meets(wanted: tuple[Any, ...], found: tuple[Any, ...]) -> bool:
    return not wanted or not set(wanted).isdisjoint(found)


def _backends(change: ListChange) -> tuple[str, ...]:
    assumed = tuple(candidate.backend for candidate in change.resolution.candidates[:1])
    return (*assumed, *(change.resolution.request.target.traits.state_backends or ()))


def _flash_attention(change: ListChange) -> tuple[int, ...]:
    """The engine asks for the version without a head size here."""
    return () if change.question is None else (flash_attention_version(change.question, for_head=False),)


def _compared(
    change: ListChange, said: str, number: Callable[[ListUse], int], shown: Callable[[int], str] = str
) -> Iterator[str]:
    """``said`` with the number of the plan's list and that of the engine's, where they differ."""
    planned, stock = number(change.planned), number(change.stock)
    if planned != stock:
        yield said.format(shown(planned), shown(stock))


def _grown(
    change: ListChange, said: str, number: Callable[[ListUse], int], shown: Callable[[int], str] = str
) -> Iterator[str]:
    """The same, only where the plan's number is the larger one."""
    if number(change.planned) > number(change.stock):
        yield from _compared(change, said, number, shown)


def _count(use: ListUse) -> int:
    return len(use.sizes_tokens)


# Attention


def _splits(change: ListChange) -> Iterator[str]:
    planned, stock = change.planned, change.stock
    if _accumulator_bytes(change, planned) > _accumulator_bytes(change, stock):
        yield (
            f"a step of at most {planned.split_bound_tokens} tokens takes up to "
            f"{size_words(_accumulator_bytes(change, planned))} for {_most_splits(change)} KV splits in FlashAttention "
            f"(stock: {size_words(_accumulator_bytes(change, stock))} at {stock.split_bound_tokens} tokens)"
        )


def _accumulator_bytes(change: ListChange, use: ListUse) -> Bytes:
    """Of one layer of the target on one rank; 0 where the config does not tell its heads."""
    needs = change.needs
    if needs is None or needs.num_heads_per_rank is None or not change.has_full_graphs:
        return Bytes(0)
    return split_accumulator_bytes(
        splits=_most_splits(change),
        heads=needs.num_heads_per_rank * needs.decode_context_parallel_size,
        tokens=use.split_bound_tokens,
        value_width=needs.kv_lora_rank if needs.use_mla and needs.kv_lora_rank else needs.head_size,
    )


def splits_within_stock(change: ListChange) -> int | None:
    """The most splits whose accumulators take no more than stock's; None where the plan's take no more anyway."""
    if graph_splits(change) == 1 or not any(_splits(change)):
        return None
    planned, stock = _accumulator_bytes(change, change.planned), _accumulator_bytes(change, change.stock)
    return max(1, _most_splits(change) * stock // planned)


def graph_splits(change: ListChange) -> int:
    """KV splits of one attention call within the list; 1 where FlashAttention keeps no accumulators."""
    takes_splits = _splits in {EFFECTS[reader.name] for reader in _reached(change)}
    return _most_splits(change) if takes_splits and change.has_full_graphs else 1


def _most_splits(change: ListChange) -> int:
    """The engine's own invariant mode never splits."""
    if change.is_set("VLLM_BATCH_INVARIANT"):
        return 1
    return int(change.field("attention", SPLITS_FIELD, DEFAULT_SPLITS.value))


def _triton_threshold(change: ListChange) -> Iterator[str]:
    heads = None if change.needs is None else change.needs.num_kv_heads_per_rank
    if heads is not None and change.has_full_graphs:
        said = "Triton splits the KV of decode steps to {} requests (stock: {})"
        yield from _compared(change, said, lambda use: triton_threshold_requests(use.sizes_tokens, heads))


def _decode_wrappers(change: ListChange) -> Iterator[str]:
    if change.question is None or uses_trtllm(change.question) is not False or not change.has_full_graphs:
        return
    size = size_words(DECODE_WRAPPER.value)
    said = f"each size of a decode step without a FULL graph keeps {size} in FlashInfer, to {{}} tokens (stock: {{}})"
    yield from _grown(change, said, lambda use: min(change.decode_tokens, use.maximum))


def _tokenspeed_workspace(change: ListChange) -> Iterator[str]:
    said = "TokenSpeed's workspace takes {} (stock: {})"
    yield from _grown(change, said, lambda use: _tokenspeed_bytes(change, use), size_words)


def _tokenspeed_bytes(change: ListChange, use: ListUse) -> Bytes:
    splits, needs = int(change.field("attention", "tokenspeed_mla_min_split_kv", 1)), change.needs
    if splits <= 1 or needs is None or needs.num_heads_per_rank is None or needs.kv_lora_rank is None:
        return Bytes(0)
    widest = min(change.resolution.frame.max_num_batched_tokens, change.decode_tokens)
    return tokenspeed_workspace_bytes(
        splits=splits,
        heads=needs.num_heads_per_rank * needs.decode_context_parallel_size,
        tokens=max(widest, use.maximum),
        latent_width=needs.kv_lora_rank,
    )


def _b12x_plans(change: ListChange) -> Iterator[str]:
    seqs = change.resolution.frame.max_num_seqs
    said = "b12x makes {} decode plans for each layer and page size (stock: {})"
    yield from _grown(change, said, lambda use: len({seqs, *(size for size in use.sizes_tokens if size <= seqs)}))


# Parallel layout


def _context_parallel(change: ListChange) -> Iterator[str]:
    """The workspaces are those of MLA, where the ranks share symmetric memory."""
    needs = change.needs
    if needs is not None and needs.use_mla and needs.decode_context_parallel_size > 1:
        said = "the workspaces of decode context parallelism hold {} tokens, wider steps use NCCL (stock: {})"
        yield from _grown(change, said, lambda use: max(change.decode_tokens, use.maximum))


def _pcie_all_reduce(change: ListChange) -> Iterator[str]:
    ranks = change.resolution.request.spec.parallel.tensor_parallel_size
    if change.is_set("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC") and ranks > 1:
        said = "the PCIe all-reduce has its workspace and tuning for steps to {} tokens (stock: {})"
        yield from _compared(change, said, lambda use: use.maximum)


# Start


def _b12x_warm_up(change: ListChange) -> Iterator[str]:
    if change.resolution.engine.kernels.b12x is not False:
        step = change.resolution.frame.max_num_batched_tokens
        said = "b12x kernels, where layers use them, are compiled for {} token counts (stock: {})"
        yield from _grown(change, said, lambda use: len({1, step, *use.sizes_tokens}))


def _qwen4_warm_up(change: ListChange) -> Iterator[str]:
    said = "the fused projection is compiled for {} token counts (stock: {})"
    yield from _grown(change, said, lambda use: sum(size <= QWEN4_FUSED_ROWS.value for size in use.sizes_tokens))


def _kimi_batches(change: ListChange) -> Iterator[str]:
    arguments = change.resolution.request.spec.engine.args
    additional = next((arguments[key] for key in arguments if key.replace("-", "_") == "additional_config"), None)
    if isinstance(additional, Mapping) and additional.get("decode_backend") == "latency_specialized":
        said = "specialized decode is prepared for {} batches (stock: {})"
        yield from _grown(change, said, lambda use: _kimi_batch_count(change, use))


def _kimi_batch_count(change: ListChange, use: ListUse) -> int:
    query_len = change.resolution.frame.query_len
    rounded = {-(-size // query_len) * query_len for size in use.sizes_tokens}
    return len({*KIMI_PREPARED.value, *(size for size in rounded if size <= KIMI_PREPARED.value[-1])})


def _compile_sizes(change: ListChange) -> Iterator[str]:
    if "cudagraph_capture_sizes" in (change.field("compilation", "compile_sizes", None) or ()):
        yield from _grown(change, "torch.compile makes code for each of {} sizes (stock: {})", _count)


Effect = Callable[[ListChange], Iterator[str]]
EFFECTS: Mapping[str, Effect] = {
    "flash-attention-splits": _splits,
    "flash-attention-mla-splits": _splits,
    "triton-3d-threshold": _triton_threshold,
    "flashinfer-decode-wrappers": _decode_wrappers,
    "tokenspeed-workspace": _tokenspeed_workspace,
    "context-parallel-workspace": _context_parallel,
    "pcie-all-reduce": _pcie_all_reduce,
    "b12x-decode-plans": _b12x_plans,
    "b12x-warm-up": _b12x_warm_up,
    "qwen4-warm-up": _qwen4_warm_up,
    "kimi-specialized-decode": _kimi_batches,
    "compile-sizes": _compile_sizes,
}
"""Every reader that matters but the key of the compile cache, which differs for every plan: it holds the list."""
