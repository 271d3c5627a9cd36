"""The memory ledger of a plan: every line, what the engine's budget leaves for the KV cache, and whether it fits."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf

from servespec.compiler.checkpoint import Checkpoint
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.facts.memory import DEFAULT_UTILIZATION
from servespec.compiler.memory.attention_workspaces import workspace_lines
from servespec.compiler.memory.checkpoint_weights import files_line, usable_checkpoint, with_checkpoint
from servespec.compiler.memory.drafter_weights import drafter_lines
from servespec.compiler.memory.kv_cache import KvCache
from servespec.compiler.memory.kv_layers import is_known_layout, kv_cache_plan
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.memory.set_aside import not_counted, offloaded_lines
from servespec.compiler.memory.split import split_of
from servespec.compiler.memory.stage import WHOLE_MODEL, Stage
from servespec.compiler.memory.unbudgeted import unbudgeted_lines
from servespec.compiler.memory.weights import Decoder, Unknown, decoder_of, stage_lines
from servespec.compiler.memory.working import BEFORE_OWNER, working_lines
from servespec.compiler.resolve.request import engine_field
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Basis
from servespec.schema.spec import ServingSpec
from servespec.units import Bytes, Tokens

# chosen: layers that config.json describes and whose engine model was not read may keep more than keys and values
_UNREAD_LAYOUT_SHARE = 0.25


class Fit(StrEnum):
    """Whether the engine starts: with the high ends of all lines, only with lower ones, or with none.

    ``UNKNOWN`` is what would fit if it were not for lines that are not known.
    """

    YES = "yes"
    MARGINAL = "marginal"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Bytes with the ends of their error bar."""

    size: int
    low: int
    high: int

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(size=self.size + other.size, low=self.low + other.low, high=self.high + other.high)

    def left_of(self, whole: int) -> "Amount":
        """What of a whole is not this."""
        return Amount(size=whole - self.size, low=whole - self.high, high=whole - self.low)


_NOTHING = Amount(size=0, low=0, high=0)


def _fixed(size: int) -> Amount:
    return Amount(size=size, low=size, high=size)


def _sum(lines: Iterable[MemoryLine]) -> Amount:
    return sum((Amount(size=line.size, low=line.low, high=line.high) for line in lines), _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Memory of one device, on any rank of one pipeline stage; ``layers`` are the target's, None if it does not tell.

    ``estimate`` is what the engine thinks its graphs take, None where it does not ask; ``kv`` is what decides the size
    of a block, or why that is not known; ``pinned_bytes`` is the cache that the spec asks for.
    """

    stage: Stage
    layers: range | None
    device_bytes: Bytes
    budget_bytes: Bytes
    lines: tuple[MemoryLine, ...]
    unknown: tuple[Unknown, ...]
    estimate: MemoryLine | None
    kv: KvCache | str
    kv_share: float
    pinned_bytes: Bytes | None

    def of(self, part: Part) -> Amount:
        return _sum(line for line in self.lines if line.part is part)

    @property
    def spent(self) -> Amount:
        """What the engine takes from its budget before the KV cache."""
        counted = _sum(line for line in self.lines if line.is_budgeted and line.part is not Part.GRAPHS)
        return counted + (_sum([self.estimate]) if self.estimate else _NOTHING)

    @property
    def cache(self) -> Amount:
        """Bytes of the KV cache; below zero where nothing is left."""
        if self.pinned_bytes is not None:
            return _fixed(self.pinned_bytes)
        return self.spent.left_of(self.budget_bytes)

    @property
    def is_spending_known(self) -> bool:
        """Whether every line that the KV cache follows from is counted."""
        return all(line.part not in (Part.WEIGHTS, Part.ACTIVATIONS) for line in self.unknown)

    @property
    def all_lines(self) -> Amount:
        """Every line, graphs by what they take and not by what the engine thinks, without the KV cache."""
        return _sum(self.lines)

    @property
    def smallest_cache_bytes(self) -> Bytes:
        """The least KV cache that the engine starts with; 1 where the layout is not known."""
        if isinstance(self.kv, str):
            return Bytes(1)
        return Bytes(int(self.kv.smallest_bytes * (1 - self.kv_share)))

    @property
    def blocks(self) -> float:
        """How many blocks of KV its cache has room for; without bound where their size is not known."""
        return inf if isinstance(self.kv, str) else self.kv.blocks(self.cache.size)

    def tokens(self, cache_bytes: int) -> Tokens | None:
        return None if isinstance(self.kv, str) else self.kv.tokens(cache_bytes)

    @property
    def free_at_start(self) -> Amount:
        """What the engine finds free of the device, which its budget must not exceed.

        Source: vllm/v1/worker/utils.py: request_memory.
        """
        return _sum(line for line in self.lines if line.owner == BEFORE_OWNER).left_of(self.device_bytes)

    @property
    def share_fits(self) -> Fit:
        """Whether the engine finds its budget free."""
        if self.budget_bytes > self.free_at_start.high:
            return Fit.NO
        return Fit.MARGINAL if self.budget_bytes > self.free_at_start.low else Fit.YES

    @property
    def is_short_by_share(self) -> bool:
        """Whether the verdict is what it is because of the share that must be free."""
        return self.share_fits is not Fit.YES and self.share_fits is self.fits

    @property
    def fits(self) -> Fit:
        whole, share, least = self.whole, self.share_fits, self.smallest_cache_bytes
        if self.cache.high < least or whole.low > self.device_bytes or share is Fit.NO:
            return Fit.NO
        if self.cache.low < least or whole.high > self.device_bytes or share is Fit.MARGINAL:
            return Fit.MARGINAL
        return Fit.UNKNOWN if self.unknown else Fit.YES

    @property
    def fits_at_start(self) -> Fit:
        """The verdict without what only steps under load take."""
        return replace(self, lines=tuple(line for line in self.lines if line.part is not Part.RUNTIME)).fits

    @property
    def whole(self) -> Amount:
        """All on the device at once; a cache that follows the budget gives way to all that the budget counts.

        Graphs that take more than is foretold of them raise the engine's estimate too, which was seen above what is
        foretold of it by itself; so the low end does not rise with it.
        """
        if self.pinned_bytes is not None:
            return self.all_lines + self.cache
        unbudgeted = _sum(line for line in self.lines if line.part is Part.GRAPHS or not line.is_budgeted)
        if self.estimate is None:
            return _fixed(self.budget_bytes) + unbudgeted
        given_way = sum(line.high - line.size for line in self.lines if line.moves_estimate)
        followed = _fixed(self.budget_bytes - self.estimate.size) + unbudgeted
        return replace(followed, high=followed.high - given_way)


def ledger_of(
    resolution: Resolution,
    graph_lines: tuple[MemoryLine, ...],
    estimate: MemoryLine | None,
    stage: Stage = WHOLE_MODEL,
) -> Ledger | None:
    """The ledger of a stage's ranks; None on a CPU, whose memory is the machine's and no property of a device.

    ``estimate`` is the engine's own of its graphs, which it takes from the budget unless the spec turns that off.
    """
    request, spec = resolution.request, resolution.request.spec
    assert stage.count == spec.parallel.pipeline_parallel_size, stage
    if is_cpu(resolution.device):
        return None
    target = decoder_of(request.target, spec.model.dtype, spec.model.quantization)
    found = (
        *_weights(resolution, target, stage),
        *working_lines(resolution, target, stage),
        *workspace_lines(resolution, stage),
        *unbudgeted_lines(resolution),
    )
    lines = tuple(line for line in found if isinstance(line, MemoryLine))
    kv = kv_cache_plan(resolution, stage)
    return Ledger(
        stage=stage,
        layers=_layers(resolution, stage),
        device_bytes=resolution.device.total_memory_bytes,
        budget_bytes=_budget_bytes(resolution),
        lines=(*lines, *offloaded_lines(spec, lines), *graph_lines),
        unknown=(
            *(line for line in found if isinstance(line, Unknown)),
            *not_counted(resolution),
            *_unknown_cache(kv),
            *_unknown_graphs(resolution, graph_lines),
        ),
        estimate=estimate if spec.memory.estimate_cudagraph_memory is not False else None,
        kv=kv,
        kv_share=0.0 if is_known_layout(request.target) else _UNREAD_LAYOUT_SHARE,
        pinned_bytes=_pinned_bytes(spec, kv),
    )


def deciding(stages: Sequence[Ledger]) -> Ledger:
    """Of a pipeline: the stage that keeps the engine from starting, or else has room for the fewest blocks of KV."""
    return min(reversed(stages), key=lambda ledger: (-list(Fit).index(_comparable(ledger.fits)), ledger.blocks))


def with_most_graphs(stages: Sequence[Ledger]) -> Ledger:
    """Of a pipeline: the stage whose graphs take most, the last of equals."""
    return max(reversed(stages), key=lambda ledger: ledger.of(Part.GRAPHS).size)


def _comparable(fit: Fit) -> Fit:
    """What is not known of one stage is not known of any."""
    return Fit.YES if fit is Fit.UNKNOWN else fit


def _layers(resolution: Resolution, stage: Stage) -> range | None:
    request = resolution.request
    layers = request.target.traits.num_hidden_layers
    return None if layers is None else stage.of(split_of(request.spec).layers(layers))


def _budget_bytes(resolution: Resolution) -> Bytes:
    """Source: vllm/v1/worker/utils.py: request_memory."""
    share = resolution.request.spec.memory.gpu_memory_utilization
    used = DEFAULT_UTILIZATION.value if share is None else share
    return Bytes(ceil(resolution.device.total_memory_bytes * used))


def blocks_override(spec: ServingSpec) -> int | None:
    """A number of blocks, which the engine puts before every size of the KV cache."""
    blocks = engine_field(spec, "memory", "num_gpu_blocks_override", None)
    return blocks if isinstance(blocks, int) else None


def _pinned_bytes(spec: ServingSpec, kv: KvCache | str) -> Bytes | None:
    blocks = blocks_override(spec)
    if blocks is not None and isinstance(kv, KvCache):
        return Bytes(blocks * kv.block_bytes)
    pinned = spec.memory.kv_cache_memory_bytes
    return None if pinned is None else Bytes(pinned)


def _weights(resolution: Resolution, target: Decoder | str, stage: Stage) -> Iterator[MemoryLine | Unknown]:
    """The drafter's are on the last stage."""
    spec = resolution.request.spec
    checkpoint, split = usable_checkpoint(resolution.request.target, spec), split_of(spec)
    if isinstance(target, str):
        yield from _without_formula(target, checkpoint, spec)
    else:
        found = with_checkpoint(target, split, checkpoint) if checkpoint else stage_lines(target, split, Holder.TARGET)
        yield from found[stage.index]
    if stage.is_last:
        yield from drafter_lines(resolution, target)


def _without_formula(because: str, checkpoint: Checkpoint | None, spec: ServingSpec) -> Iterator[MemoryLine | Unknown]:
    """Weights of layers that no formula knows: their files, where they are at hand."""
    if checkpoint is None:
        yield Unknown(owner="weights", holder=Holder.TARGET, part=Part.WEIGHTS, because=because)
        return
    yield files_line(checkpoint, split_of(spec))
    yield Unknown(owner="peak of a step", holder=Holder.ENGINE, part=Part.ACTIVATIONS, because=because)


def _unknown_cache(kv: KvCache | str) -> Iterator[Unknown]:
    if isinstance(kv, str):
        yield Unknown(owner="KV cache", holder=Holder.ENGINE, part=Part.KV_CACHE, because=kv)


def _unknown_graphs(resolution: Resolution, graph_lines: tuple[MemoryLine, ...]) -> Iterator[Unknown]:
    if not graph_lines and resolution.frame.mode is not CudaGraphMode.NONE:
        yield Unknown(
            owner="CUDA graphs",
            holder=Holder.ENGINE,
            part=Part.GRAPHS,
            because="no formula counts those of Model Runner V1",
        )


def basis_of(ledger: Ledger) -> Basis:
    """How well the KV cache is known: no better than the worst line that it follows from."""
    if ledger.pinned_bytes is not None:
        return Basis.EXACT if not ledger.kv_share else Basis.ESTIMATE
    return max((line.basis for line in ledger.lines), default=Basis.ESTIMATE)
