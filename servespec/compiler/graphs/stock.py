"""What unmodified vLLM captures: its one token list, and what each manager makes of it.

Source: vllm/config/vllm.py: VllmConfig._set_cudagraph_sizes and
vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates, equal in 0.32.0 and 0.33.0 for what is
modelled here; the differential tests run both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from servespec.compiler.facts.graph_sizes import INTERACTIVITY_UP_TO, STRIDES
from servespec.compiler.graphs.inventory import ManagerSizes, SizedManager
from servespec.compiler.graphs.managers import Manager
from servespec.units import Requests, Tokens, TokensPerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenListRequest:
    """What the engine's list depends on.

    ``default_ceiling_tokens`` is 1,024 on compute capability 10.x and 512 elsewhere. ``sizes`` and ``max_size`` are
    the two legacy fields as a user (or a model's hook) set them.
    """

    max_num_seqs: Requests
    max_num_batched_tokens: Tokens
    query_len: TokensPerRequest
    widest_batch: Mapping[TokensPerRequest, Requests]
    default_ceiling_tokens: Tokens
    every_small_count: bool = False
    sizes: tuple[Tokens, ...] | None = None
    max_size: Tokens | None = None


@dataclass(frozen=True, slots=True)
class TokenList:
    """The engine's list, ascending, and what it lost on the way.

    ``dropped`` are explicit entries above ``max_num_batched_tokens``; ``truncated_from`` is an explicit maximum that
    the list does not reach.
    """

    sizes: tuple[Tokens, ...]
    dropped: tuple[Tokens, ...] = ()
    truncated_from: Tokens | None = None

    @property
    def maximum(self) -> Tokens:
        return self.sizes[-1] if self.sizes else Tokens(0)


def stock_token_list(request: TokenListRequest) -> TokenList:
    """``cudagraph_capture_sizes`` as the engine resolves it for a mode that captures graphs.

    ``sizes`` must not be empty and must agree with ``max_size`` where both are set; the checks report those.
    """
    if request.sizes is not None:
        kept = sorted({size for size in request.sizes if size <= request.max_num_batched_tokens})
        dropped = sorted(set(request.sizes) - set(kept))
        return TokenList(tuple(kept), tuple(dropped))
    ceiling = min(request.max_num_batched_tokens, request.max_size or _default_maximum(request))
    sizes = set(_strided(ceiling, request.every_small_count))
    if request.max_num_batched_tokens <= ceiling:
        sizes.add(request.max_num_batched_tokens)
    if request.max_size is None:
        sizes.update(t for t in _decode_tokens(request) if t <= request.max_num_batched_tokens)
    ordered = tuple(sorted(sizes))
    truncated = request.max_size if request.max_size and request.max_size != ordered[-1] else None
    return TokenList(ordered, truncated_from=truncated)


def stock_manager_sizes(manager: Manager, sizes: Sequence[Tokens], max_num_seqs: Requests) -> ManagerSizes:
    """The sizes one manager takes from the list: each entry rounded up to a multiple of each query length.

    Where the engine verifies adaptively it has no uniform graphs.
    """
    limit = min(max_num_seqs * manager.query_len, max(sizes, default=0))
    mixed_limit = manager.mixed_limit_tokens or max(sizes, default=0)
    return ManagerSizes(
        mixed_tokens=tuple(size for size in sizes if size <= mixed_limit),
        varlen_tokens=tuple(size for size in sizes if size <= max_num_seqs * manager.query_len),
        decode_requests={
            query_len: rounded_up_requests(sizes, query_len, Tokens(limit), max_num_seqs)
            for query_len in (() if manager.varlen else manager.captured_tiers)
        },
    )


def stock_sizes(managers: Iterable[Manager], token_list: TokenList, max_num_seqs: Requests) -> tuple[SizedManager, ...]:
    return tuple((m, stock_manager_sizes(m, token_list.sizes, max_num_seqs)) for m in managers)


def rounded_up_requests(
    sizes: Iterable[Tokens], query_len: TokensPerRequest, limit_tokens: Tokens, max_num_seqs: Requests
) -> tuple[Requests, ...]:
    """Request counts that the list gives at ``query_len``; an entry rounded beyond a limit is lost."""
    counts = {-(-size // query_len) for size in sizes}
    return tuple(Requests(n) for n in sorted(counts) if n * query_len <= limit_tokens and n <= max_num_seqs)


def _default_maximum(request: TokenListRequest) -> Tokens:
    return Tokens(min(request.max_num_seqs * request.query_len * 2, request.default_ceiling_tokens))


def _strided(ceiling: Tokens, every_small_count: bool) -> list[Tokens]:
    """1, 2, 4, then every 8 to 256, then every 16, up to ``ceiling``."""
    small = range(1, min(ceiling, INTERACTIVITY_UP_TO.value) + 1) if every_small_count else (1, 2, 4)
    sizes = [*small, *_stepped(ceiling)]
    return [Tokens(size) for size in sizes if size <= ceiling]


def _decode_tokens(request: TokenListRequest) -> list[Tokens]:
    """n * q for the counts the engine adds so that decode batches land on the list."""
    maximum = _default_maximum(request)
    if request.query_len == 1:
        return [Tokens(request.max_num_seqs)] if request.max_num_seqs <= maximum else []
    return [
        Tokens(n * query_len)
        for query_len, widest in request.widest_batch.items()
        for n in _added_counts(Requests(min(widest, request.default_ceiling_tokens)))
        if n * query_len <= maximum
    ]


def _added_counts(widest: Requests) -> list[int]:
    return [n for n in (1, 2, 4) if n <= widest] + [*_stepped(widest), widest]


def _stepped(last: int) -> Iterator[int]:
    """8, 16, ... below 256, then 256, 272, ... up to ``last``."""
    fine, coarse = STRIDES.value
    yield from range(fine, min(last + 1, 256), fine)
    yield from range(256, last + 1, coarse)
