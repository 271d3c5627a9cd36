"""The memory of a plan for the terminal: a row for each part, in GiB, and under ``details`` one for each line; beside
the stock engine, what differs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

from servespec.render.alignment import aligned

Json = Mapping[str, Any]

_GIB = 1 << 30
_WIDTH = 80
_BASES = ("exact", "measured", "bound", "estimate")
_ROWS = (
    ("target weights", "target", "weights"),
    ("drafter weights", "drafter", "weights"),
    ("peak of a step", None, "activations"),
    ("context, buffers", None, "other"),
    ("CUDA graphs", None, "graphs"),
    ("indexer, wide step", None, "runtime"),
)


def memory_text(memory: Json | None, *, details: bool = False) -> str:
    """The table, '' where a plan has no ledger."""
    if memory is None:
        return ""
    totals = memory["totals"]
    heading = f"memory of one device, GiB: {_gib(totals['budget_bytes'])} of {_gib(totals['device_bytes'])} to spend"
    rows = [*_parts(memory), *_estimate(totals), *_cache(totals)]
    if details:
        rows += [_line(line) for line in memory["lines"]]
    said = (*_held(totals), *_measured_by(memory), *_reasons(memory))
    return "\n".join([heading, aligned(rows), *said, f"  {_verdict(memory)}"])


def against_stock_text(memory: Json | None, stock: Json | None) -> str:
    """Graphs, KV cache and verdict of both, '' where either has no ledger."""
    if memory is None or stock is None:
        return ""
    rows = [("", "plan", "stock"), *((name, cell(memory), cell(stock)) for name, cell in _COMPARED)]
    return "\n".join(["memory beside stock", aligned(rows)])


def _total(key: str, words: Callable[[float], str]) -> Callable[[Json], str]:
    """A cell for a total, `not known` where it is null."""

    def cell(memory: Json) -> str:
        value = memory["totals"][key]
        return "not known" if value is None else words(value)

    return cell


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / _GIB:.2f}"


_Cells = tuple[str, str, str, str]


def _parts(memory: Json) -> Iterator[_Cells]:
    for name, runner, part in _ROWS:
        lines = [
            line for line in memory["lines"] if line["part"] == part and (runner is None or line["runner"] == runner)
        ]
        if lines:
            yield _summed(name, lines)


def _summed(name: str, lines: Sequence[Json]) -> _Cells:
    size, low, high = (sum(line[key] for line in lines) for key in ("bytes", "low_bytes", "high_bytes"))
    basis = max((line["basis"] for line in lines), key=_BASES.index)
    return name, _gib(size), _range(low, high), basis


def _range(low: int, high: int) -> str:
    return "" if low == high else f"{_gib(low)} to {_gib(high)}"


def _estimate(totals: Json) -> Iterator[_Cells]:
    size = totals["engine_estimate_bytes"]
    if size is not None:
        yield "graphs, by the engine", _gib(size), "", "what it takes from the budget for them"


def _cache(totals: Json) -> Iterator[_Cells]:
    size = totals["kv_cache_bytes"]
    if size is None:
        return
    low, high = totals["kv_cache_low_bytes"], totals["kv_cache_high_bytes"]
    yield "KV cache", _gib(size), _range(low, high), totals["kv_cache_basis"]


def _line(line: Json) -> _Cells:
    name = f"{line['runner']}: {line['owner']}"
    bar = _range(line["low_bytes"], line["high_bytes"])
    return name, _gib(line["bytes"]), bar, f"{line['basis']}: {line['because']}"


def _reasons(memory: Json) -> Iterator[str]:
    for line in memory["unknown"]:
        text = f"not known: {line['runner']}'s {line['owner']}, {line['because']}"
        yield fill(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _measured_by(memory: Json) -> Iterator[str]:
    by = memory.get("measured_by")
    if by is not None:
        yield f"  measured by {by['record']}, on {by['device_name']}, {by['date']}"


def _held(totals: Json) -> Iterator[str]:
    if totals["kv_cache_tokens"] is not None:
        requests = f"{totals['max_concurrency']:g} requests of the longest context"
        yield f"  {totals['kv_cache_tokens']:,} tokens of KV cache, {requests} at a time"


def _verdict(memory: Json) -> str:
    is_under_load = memory["fits"] == "marginal" != memory["fits_at_start"]
    return "it starts, and may run out under load" if is_under_load else _VERDICTS[memory["fits"]]


_VERDICTS = {
    "yes": "it fits",
    "marginal": "it fits only within the error bars",
    "unknown": "whether it fits is not known",
    "no": "it does not fit",
}
_COMPARED: tuple[tuple[str, Callable[[Json], str]], ...] = (
    ("CUDA graphs, GiB", _total("cudagraph_bytes", _gib)),
    ("KV cache, GiB", _total("kv_cache_bytes", _gib)),
    ("KV cache, tokens", _total("kv_cache_tokens", "{:,}".format)),
    ("requests of the longest context", _total("max_concurrency", "{:g}".format)),
    ("verdict", _verdict),
)
