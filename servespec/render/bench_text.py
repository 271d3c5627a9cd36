"""A bench for the terminal, made from its results document: what each arm did, then what it is worth."""

from collections.abc import Iterator
from pathlib import Path

from servespec.render.alignment import aligned
from servespec.render.bench_figures import HOST_BOUND_CORES, ArmAtLoad, Json, arms_at_loads, ratio_row
from servespec.runtime.bench.session import ArmReady, ArmStarting, CellDone

_METRICS = {
    "output_tokens_per_second": "output tokens per second",
    "mean_tpot_ms": "time per output token",
    "median_ttft_ms": "time to first token",
}
_ONE_LAUNCH = "intervals are of rounds of one launch of each arm; an arm named twice shows how far equal ones differ"


def bench_text(results: Json) -> str:
    """Medians of every arm and load, then each ratio with its 95 % interval."""
    design = results["design"]
    heading = f"{_load(design)}, {design['rounds']} rounds, acceptance {results['acceptance']}"
    ratios = [_ratios(results, metric, title) for metric, title in _METRICS.items()]
    note = _ONE_LAUNCH if any(ratios) and design.get("side_by_side_kv_bytes") is not None else ""
    parts = [heading, _medians(results), *ratios, failed_note(results), host_bound_note(results), note]
    return "\n\n".join(part for part in parts if part) + "\n"


def failed_note(results: Json) -> str:
    """How many requests failed and the first reason, '' where none did."""
    failing = [cell for cell in results["cells"] if cell["completed"] < cell["prompts"]]
    if not failing:
        return ""
    asked = sum(cell["prompts"] for cell in results["cells"])
    failed = sum(cell["prompts"] - cell["completed"] for cell in failing)
    reason = next((cell["first_error"] for cell in failing if cell.get("first_error")), "the client gives no reason")
    return f"{failed} of {asked} requests failed, the first at {failing[0]['concurrency']} requests: {reason}"


def host_bound_note(results: Json) -> str:
    """Which loads one process of the host bounds, '' where none does."""
    loads = sorted({at.concurrency for at in arms_at_loads(results) if at.is_host_bound})
    if not loads:
        return ""
    return (
        f"at {', '.join(map(str, loads))} requests an API server or the client takes {HOST_BOUND_CORES:.1f} of a core "
        "and more: it bounds these loads, and their ratios say little of the GPU"
    )


def _load(design: Json) -> str:
    return f"{design['input_tokens']} tokens in, {design['output_tokens']} out"


def _medians(results: Json) -> str:
    rows = [
        ("arm", "requests", "tokens/s", "TPOT ms", "TTFT ms", "p90 TTFT", "accepted", "FULL", "API server", "failed")
    ]
    return aligned([*rows, *(tuple(_words(at)) for at in arms_at_loads(results) if at.cells)])


def _words(at: ArmAtLoad) -> Iterator[str]:
    yield at.arm
    yield str(at.concurrency)
    for name, form in (
        ("output_tokens_per_second", ".0f"),
        ("mean_tpot_ms", ".2f"),
        ("median_ttft_ms", ".0f"),
        ("p90_ttft_ms", ".0f"),
        ("acceptance_length", ".2f"),
    ):
        yield _word(at.median_of(name), form)
    yield _word(at.full_share(), ".0%")
    yield _word(at.median_of("api_server_cores"), ".2f", " cores")
    yield str(sum(cell["prompts"] - cell["completed"] for cell in at.cells))


def _word(figure: float | None, form: str, unit: str = "") -> str:
    return "-" if figure is None else f"{figure:{form}}{unit}"


def _ratios(results: Json, metric: str, title: str) -> str:
    ratios = [one for one in results["ratios"] if one["metric"] == metric]
    if not ratios:
        return ""
    rows = [(title, "requests", "ratio", "95 % interval", "pairs")]
    return aligned([*rows, *(tuple(word or "-" for word in ratio_row(one)) for one in ratios)])


def stopped_line(signal_name: str, results: Path | None) -> str:
    """What a bench says that a signal ended; ``results`` is its file, None where none was written."""
    kept = "nothing was measured" if results is None else f"the same command goes on where `{results}` ends"
    return f"{signal_name} received, and every server is stopped; {kept}"


def bench_event_line(event: ArmStarting | ArmReady | CellDone) -> str:
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
