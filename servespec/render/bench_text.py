"""A bench for the terminal, made from its results document: what each arm did, then what it is worth."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from servespec.render.alignment import aligned
from servespec.runtime.bench.session import ArmReady, ArmStarting, BenchEvent, CellDone

Json = Mapping[str, Any]

_METRICS = {
    "output_tokens_per_second": "output tokens per second",
    "mean_tpot_ms": "time per output token",
    "median_ttft_ms": "time to first token",
}


def bench_text(results: Json) -> str:
    """Medians of every arm and load, then each ratio with its 95 % interval."""
    design = results["design"]
    heading = f"{_load(design)}, {design['rounds']} rounds, acceptance {results['acceptance']}"
    parts = [heading, _medians(results), *(_ratios(results, metric, title) for metric, title in _METRICS.items())]
    return "\n\n".join(part for part in parts if part) + "\n"


def _load(design: Json) -> str:
    return f"{design['input_tokens']} tokens in, {design['output_tokens']} out"


def _medians(results: Json) -> str:
    rows = [
        ("arm", "requests", "tokens/s", "TPOT ms", "TTFT ms", "p90 TTFT", "accepted", "FULL", "API server", "failed")
    ]
    for arm in results["arms"]:
        for load in results["design"]["concurrencies"]:
            cells = [one for one in results["cells"] if (one["arm"], one["concurrency"]) == (arm, load)]
            if cells:
                rows.append((arm, str(load), *_cell_words(cells)))
    return aligned(rows)


def _cell_words(cells: Sequence[Json]) -> Iterator[str]:
    for name, digits in (
        ("output_tokens_per_second", 0),
        ("mean_tpot_ms", 2),
        ("median_ttft_ms", 0),
        ("p90_ttft_ms", 0),
        ("acceptance_length", 2),
    ):
        values = [cell[name] for cell in cells if cell[name] is not None]
        yield f"{median(values):.{digits}f}" if values else "-"
    yield _full_share(cells)
    cores = [cell["api_server_cores"] for cell in cells if cell["api_server_cores"] is not None]
    yield f"{median(cores):.2f} cores" if cores else "-"
    yield str(sum(cell["prompts"] - cell["completed"] for cell in cells))


def _full_share(cells: Sequence[Json]) -> str:
    """Of the target's tokens, padding left out."""
    by_mode: Counter[str] = Counter()
    for cell in cells:
        by_mode.update({mode: ran["unpadded_tokens"] for mode, ran in (cell["steps"] or {}).items()})
    return f"{by_mode['FULL'] / by_mode.total():.0%}" if by_mode.total() else "-"


def _ratios(results: Json, metric: str, title: str) -> str:
    ratios = [one for one in results["ratios"] if one["metric"] == metric]
    if not ratios:
        return ""
    rows = [(title, "requests", "ratio", "95 % interval", "pairs")]
    rows += [
        (f"{one['arm']} / {one['over']}", str(one["concurrency"]), f"{one['median']:.3f}", _interval(one), _pairs(one))
        for one in ratios
    ]
    return aligned(rows)


def _interval(one: Json) -> str:
    return "-" if one["low_95"] is None else f"{one['low_95']:.3f} to {one['high_95']:.3f}"


def _pairs(one: Json) -> str:
    return str(len(one["ratios"]))


def bench_event_line(event: BenchEvent) -> str:
    match event:
        case ArmStarting(arm=arm, round=0):
            return f"starting {arm}, once unmeasured"
        case ArmStarting(arm=arm, round=number):
            return f"starting {arm} for round {number}"
        case ArmReady(arm=arm, seconds=seconds):
            return f"{arm} is ready after {seconds:.0f} s"
        case CellDone(cell=cell, number=number, count=count):
            said = f"{cell['output_tokens_per_second']:.0f} output tokens/s"
            return f"{number}/{count}  round {cell['round']}, {cell['arm']}, {cell['concurrency']} requests: {said}"
