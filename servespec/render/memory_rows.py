"""The memory of a plan as rows of a table, made from its JSON form: a row for each part that a reader asks about."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

_KIB, _GIB = 1 << 10, 1 << 30
_BASES = ("exact", "measured", "bound", "estimate")
_ROWS = (
    ("target weights", "target", "weights"),
    ("drafter weights", "drafter", "weights"),
    ("peak of a step", None, "activations"),
    ("context, buffers", None, "other"),
    ("CUDA graphs", None, "graphs"),
    ("indexer, wide step", None, "runtime"),
)
KV_CACHE = "KV cache"
ENGINE_ESTIMATE = "graphs, by the engine"
NAMES = (*(name for name, _, _ in _ROWS), KV_CACHE)
"""Of the rows that take memory, in their order."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes of one part on one device, with the ends of its error bar and how it is known."""

    name: str
    size_bytes: int
    low_bytes: int
    high_bytes: int
    basis: str

    @property
    def takes_memory(self) -> bool:
        """False for what the engine only reckons with."""
        return self.name != ENGINE_ESTIMATE

    @property
    def bar(self) -> str:
        """`59.71 to 67.19`, '' where there is no error bar."""
        return bar(self.low_bytes, self.high_bytes)


def gib(size_bytes: float) -> str:
    """`4.45`"""
    return f"{size_bytes / _GIB:.2f}"


def bar(low_bytes: float, high_bytes: float) -> str:
    """`59.71 to 67.19`, '' where both ends are one."""
    return "" if low_bytes == high_bytes else f"{gib(low_bytes)} to {gib(high_bytes)}"


def memory_rows(memory: Json) -> tuple[MemoryRow, ...]:
    """The parts that are known, the engine's own estimate of its graphs, and the KV cache."""
    return (*_parts(memory["lines"]), *_estimate(memory["totals"]), *_cache(memory["totals"]))


def _parts(lines: Sequence[Json]) -> Iterator[MemoryRow]:
    for name, runner, part in _ROWS:
        own = [line for line in lines if line["part"] == part and (runner is None or line["runner"] == runner)]
        if own:
            size, low, high = (sum(line[key] for line in own) for key in ("bytes", "low_bytes", "high_bytes"))
            yield MemoryRow(name, size, low, high, max((line["basis"] for line in own), key=_BASES.index))


def _estimate(totals: Json) -> Iterator[MemoryRow]:
    """Nothing beside a cache that does not follow from it."""
    size = totals["engine_estimate_bytes"]
    if size is not None and not totals["kv_cache_pinned"]:
        yield MemoryRow(ENGINE_ESTIMATE, size, size, size, "what the engine sets aside")


def _cache(totals: Json) -> Iterator[MemoryRow]:
    size = totals["kv_cache_bytes"]
    if size is not None:
        low, high = totals["kv_cache_low_bytes"], totals["kv_cache_high_bytes"]
        yield MemoryRow(KV_CACHE, size, low, high, totals["kv_cache_basis"])


def spending(memory: Json) -> str:
    """`128.62 of 139.80 to spend` in GiB, or what is taken beside a set KV cache, which follows no share."""
    totals = memory["totals"]
    whole = gib(totals["device_bytes"])
    if totals["kv_cache_pinned"]:
        taken = totals["taken_bytes"]
        return f"{'not known how much' if taken is None else gib(taken)} of {whole} taken, the KV cache is set"
    return f"{gib(totals['budget_bytes'])} of {whole} to spend"


def line_name(line: Json) -> str:
    """`engine: peak of a step`; graphs of a manager begin with its name."""
    runner, owner = line["runner"], line["owner"]
    return owner if owner.startswith(f"{runner}: ") else f"{runner}: {owner}"


def held(memory: Json) -> str:
    """What the KV cache holds, '' where that is not known."""
    totals = memory["totals"]
    if totals["kv_cache_tokens"] is None:
        return ""
    tokens, each = f"{totals['kv_cache_tokens']:,} tokens of KV cache", totals["kv_bytes_per_token"] / _KIB
    return f"{tokens}, {each:.1f} KiB each; {totals['max_concurrency']:g} longest contexts at a time"


STAGE_HEADERS = ("stage", "layers", "weights", "CUDA graphs", KV_CACHE, "tokens of KV", "")


def stage_rows(memory: Json) -> Iterator[tuple[str, ...]]:
    """Under `STAGE_HEADERS`, one for each pipeline stage, in GiB; none without a pipeline."""
    for stage in memory.get("stages", ()):
        totals = stage["totals"]
        sizes = [totals[key] for key in ("weights_bytes", "cudagraph_bytes", "kv_cache_bytes")]
        tokens = totals["kv_cache_tokens"]
        yield (
            str(stage["stage"]),
            _layers(stage),
            *("not known" if size is None else gib(size) for size in sizes),
            "not known" if tokens is None else f"{tokens:,}",
            f"decides, {short_verdict(stage)}" if stage["decides"] else short_verdict(stage),
        )


def _layers(stage: Json) -> str:
    if stage["layers"] is None:
        return "not known"
    return f"{stage['first_layer']} to {stage['last_layer']}" if stage["layers"] else "none"


def by_stage(memory: Json) -> dict[str, Json]:
    """The ledgers of a pipeline by name, {} without one."""
    return {f"stage {stage['stage']}": stage for stage in memory.get("stages", ())}


def measured_by(memory: Json) -> str:
    """Whose figures stand in place of formulas, '' where all are by formula."""
    by = memory.get("measured_by")
    return "" if by is None else f"measured by {by['record']}, on {by['device_name']}, {by['date']}"


def reasons(memory: Json) -> Iterator[str]:
    """What no formula counts, and why."""
    for line in memory["unknown"]:
        yield f"not known: {line['runner']}'s {line['owner']}, {line['because']}"


def memory_verdict(memory: Json) -> str:
    """Whether it fits, as a sentence."""
    return _VERDICTS[_fit(memory)]


def short_verdict(memory: Json) -> str:
    """The same for a cell of a table."""
    return _SHORT_VERDICTS[_fit(memory)]


def _fit(memory: Json) -> str:
    is_under_load = memory["fits"] == "marginal" != memory["fits_at_start"]
    return "under load" if is_under_load else str(memory["fits"])


_VERDICTS = {
    "yes": "it fits",
    "marginal": "it fits only within the error bars",
    "under load": "it starts, and may run out under load",
    "unknown": "whether it fits is not known",
    "no": "it does not fit",
}
_SHORT_VERDICTS = {
    "yes": "fits",
    "marginal": "within the error bars",
    "under load": "may run out under load",
    "unknown": "not known",
    "no": "does not fit",
}
