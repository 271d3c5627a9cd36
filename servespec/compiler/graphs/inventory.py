"""From sizes to graphs: every shape that every manager captures."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.managers import Manager, Microbatching
from servespec.compiler.graphs.shape import Routine, Shape
from servespec.units import Requests, Tokens, TokensPerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSizes:
    """The capture sizes of one manager, each in its own unit; which of them it uses, its mode decides.

    ``decode_requests`` are request counts by query length; ``varlen_tokens`` the token counts of adaptive
    verification; ``mixed_tokens`` those of the mixed routine.
    """

    mixed_tokens: tuple[Tokens, ...] = ()
    varlen_tokens: tuple[Tokens, ...] = ()
    decode_requests: Mapping[TokensPerRequest, tuple[Requests, ...]] = field(default_factory=dict)


SizedManager = tuple[Manager, ManagerSizes]


def shapes_of(sized: Iterable[SizedManager], max_num_seqs: Requests) -> tuple[Shape, ...]:
    """Every graph of every manager; sizes ascend within a row, mixed routines come first."""
    return tuple(shape for manager, sizes in sized for shape in _manager_shapes(manager, sizes, max_num_seqs))


def _manager_shapes(manager: Manager, sizes: ManagerSizes, max_num_seqs: Requests) -> Iterator[Shape]:
    for shape in _one_case(manager, sizes, max_num_seqs):
        for case in manager.lora_cases:
            with_case = shape if case == shape.active_loras else replace(shape, active_loras=case)
            yield with_case
            yield from _microbatch_twin(with_case, manager.microbatching)


def _one_case(manager: Manager, sizes: ManagerSizes, max_num_seqs: Requests) -> Iterator[Shape]:
    """The shapes for one LoRA case, without microbatch twins."""
    if manager.mixed is not None and _captured_mixed_mode(manager) is not CudaGraphMode.NONE:
        yield from _mixed(manager, sizes.mixed_tokens, max_num_seqs)
    if manager.mode.separate_routine() and manager.mode.decode_mode() is CudaGraphMode.FULL:
        if manager.varlen:
            if manager.fixed is not None:
                yield from _uniform(manager, manager.fixed, sizes.decode_requests)
            yield from _varlen(manager, sizes.varlen_tokens, max_num_seqs)
        else:
            yield from _uniform(manager, manager.decode, sizes.decode_requests)


def _captured_mixed_mode(manager: Manager) -> CudaGraphMode:
    mode = manager.mode.mixed_mode()
    return CudaGraphMode.NONE if mode is CudaGraphMode.PIECEWISE and not manager.has_pieces else mode


def _mixed(manager: Manager, sizes: Iterable[Tokens], max_num_seqs: Requests) -> Iterator[Shape]:
    mode = manager.mode.mixed_mode()
    assert manager.mixed is not None
    for tokens in sizes:
        bound = Requests(min(tokens, max_num_seqs)) if mode is CudaGraphMode.FULL else None
        yield Shape(runner=manager.runner, routine=manager.mixed, mode=mode, tokens=tokens, requests=bound)


def _varlen(manager: Manager, sizes: Iterable[Tokens], max_num_seqs: Requests) -> Iterator[Shape]:
    for tokens in sizes:
        yield Shape(
            runner=manager.runner,
            routine=manager.decode,
            mode=CudaGraphMode.FULL,
            tokens=tokens,
            requests=Requests(min(tokens, max_num_seqs)),
            max_query_len=manager.query_len,
        )


def _uniform(
    manager: Manager, routine: Routine, requests_by_query_len: Mapping[TokensPerRequest, tuple[Requests, ...]]
) -> Iterator[Shape]:
    for query_len, counts in sorted(requests_by_query_len.items(), reverse=True):
        for steps in manager.draft_steps or (None,):
            for requests in counts:
                yield Shape(
                    runner=manager.runner,
                    routine=routine,
                    mode=CudaGraphMode.FULL,
                    tokens=Tokens(requests * query_len),
                    requests=requests,
                    query_len=query_len,
                    draft_steps=steps,
                )


def _microbatch_twin(shape: Shape, rule: Microbatching | None) -> Iterator[Shape]:
    """The same graph split into microbatches, where every request has the same number of tokens.

    Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._maybe_ubatch_twin.
    """
    if rule is None or shape.mode is not CudaGraphMode.FULL or shape.requests is None:
        return
    if shape.max_query_len is not None:
        return
    query_len, remainder = divmod(shape.tokens, shape.requests)
    if remainder or shape.query_len not in (None, query_len):
        return
    if shape.tokens >= max(rule.count, rule.threshold_tokens):
        yield replace(shape, ubatches=rule.count, query_len=TokensPerRequest(query_len))
