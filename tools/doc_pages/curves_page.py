"""docs/reference/curves.md: what measured step times say of steps and grids, made from docs/measurements/."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from measured_launches import document

from doc_pages.markdown import code, page, sentences, table
from doc_pages.tiers_bench import TiersBench, tiers_bench, tiers_sections
from doc_pages.twins import distance_of, twins_section
from servespec.compiler.curves.measured_grid import MeasuredGrid, padding_of
from servespec.compiler.curves.profile import Profile, profile_of
from servespec.compiler.curves.step_curve import StepCurve
from servespec.compiler.facts.graph_sizes import DECODE_EPSILON, PREFILL_EPSILON
from servespec.compiler.graphs.grid import DecodeGrid, PrefillGrid
from servespec.compiler.resolve.load_aware import knee_of, upper_load
from servespec.render.profile_text import decode_rows
from servespec.units import Requests, Tokens

Json = Mapping[str, Any]

_BENCHES: Final = {"2026-11-30-h200-steps-8b-k3.json": "2026-11-30-h200-bench-8b-k3.json"}
"""Served benches of the same models, device and K."""
_ARM: Final = "extension"
_TIERS_BENCHES: Final = {
    "2026-12-01-h200-steps-30b-a3b-fp8-2.json": (
        "2026-12-01-h200-bench-tiers-30b-a3b-fp8-2.json",
        "2026-12-01-h200-bench-tiers-30b-a3b-fp8-3.json",
        "2026-12-01-h200-bench-tiers-30b-a3b-fp8.json",
    ),
    "2026-12-01-h200-steps-8b-fp8-2.json": (
        "2026-12-01-h200-bench-tiers-8b-fp8-2.json",
        "2026-12-01-h200-bench-tiers-8b-fp8-3.json",
    ),
    "2026-12-01-h200-steps-8b-fp8.json": ("2026-12-01-h200-bench-tiers-8b-fp8.json",),
}
"""Served benches of tiers, with arms of fixed K, by the curves that chose the tiers."""
_SHARES: Final = (0.1, 0.065, 0.035, 0.02)


def curves_page(root: Path) -> str:
    folder = root / "docs" / "measurements"
    served = {
        curve: [served_tiers(folder / curve, bench) for bench in benches] for curve, benches in _TIERS_BENCHES.items()
    }
    twins = [one for benches in served.values() for bench in benches for one in bench.twins]
    return page(
        "Curves",
        sentences(
            "Made from the files of step times in `docs/measurements/`. "
            "[Following the load](../guide/following-the-load.md) says how curves are measured and used. "
            "Costs of padding are predicted by the curve, over every batch up to the last one alike."
        ),
        *twins_section(twins),
        *(
            part
            for path in sorted(folder.glob("*-steps-*.json"))
            for part in _curve(path, served.get(path.name, ()), distance_of(twins))
        ),
    )


def _curve(path: Path, served: Sequence[TiersBench], apart: float) -> Iterator[str]:
    """``apart`` is how far twins differ."""
    found = document(path.name)
    profile = profile_of({path.name: found})
    assert isinstance(profile, Profile)
    drafts = ", ".join(map(str, profile.by_drafts))
    yield f"## {path.stem}"
    yield sentences(
        f"{found['device'][0]}; vLLM {found['engine']['version']}; {found['date']}; K = {drafts}. "
        f"File: [{path.name}](../measurements/{path.name})."
    )
    bench = _BENCHES.get(path.name)
    if bench is not None:
        yield from _beside_bench(profile, path.parent / bench)
    if len(profile.by_drafts) > 1:
        yield from _milliseconds(found, profile)
    for tiers in served:
        yield from tiers_sections(tiers, apart, was_ahead=_was_ahead(found))
    for k, curve in profile.by_drafts.items():
        yield f"### Decode graphs, K = {k}"
        yield _grids(curve, "requests", DECODE_EPSILON.value, DecodeGrid().sizes(Requests(curve.last)))
    if profile.mixed is not None and profile.mixed.first == 1:
        yield "### Prefill graphs"
        yield _grids(profile.mixed, "tokens", PREFILL_EPSILON.value, PrefillGrid().sizes(Tokens(profile.mixed.last)))


def served_tiers(curve: Path, bench: str) -> TiersBench:
    """A bench of tiers that ``curve`` chose, and what it predicts of them."""
    return tiers_bench(curve.parents[2] / "examples", bench, document(bench), curve)


def _was_ahead(found: Json) -> bool:
    """Whether the device was busy when a timed step began, as in a busy server."""
    return any(mode.get("host_seconds") is not None for size in found["sizes"] for mode in size["modes"])


def _milliseconds(found: Json, profile: Profile) -> Iterator[str]:
    sizes = [size for size in found["sizes"] if size["kind"] == "decode" and size["modes"]]
    header, *rows = decode_rows(sizes)
    yield "### Milliseconds of a step"
    yield sentences(
        "Target, sampling and drafting of a batch of requests with K drafts each, on FULL graphs; p: on PIECEWISE "
        "graphs, e: eager, h: waits for the host. "
        + (
            "The device was busy when a step began, as in a server that is."
            if _was_ahead(found)
            else "The device was idle when a step began, so that it waited for what the host prepares."
        )
    )
    yield table(header, rows)
    most, curve = max(profile.by_drafts.items())
    knee = knee_of(curve, upper_load(curve, Requests(curve.last)))
    yield f"The knee of K = {most}, from where `load_aware` would choose drafts, is at {knee} requests."


def _beside_bench(profile: Profile, path: Path) -> Iterator[str]:
    bench = document(path.name)
    (k,) = profile.by_drafts
    curve = profile.by_drafts[k]
    yield "### Beside a served bench"
    yield sentences(
        f"Milliseconds from one step's tokens to the next, median of {bench['design']['rounds']} rounds of the arm "
        f"{code(_ARM)} of [{path.name}](../measurements/{path.name}), beside the curve's step of as many requests. "
        "The bench prefills beside it, and from 64 requests on the host bounds it. "
        "A timed step waits for the host, whose preparation a busy server overlaps with the step before: that is why "
        "small steps look slower by the curve."
    )
    yield table(("requests", "curve, ms", "bench, ms", "curve / bench"), list(_steps_beside(curve, bench)))


def _steps_beside(curve: StepCurve, bench: Json) -> Iterator[tuple[str, ...]]:
    for requests in bench["design"]["concurrencies"]:
        cells = [one for one in bench["cells"] if one["arm"] == _ARM and one["concurrency"] == requests]
        measured, by_curve = median(one["median_itl_ms"] for one in cells), curve.seconds_at(requests) * 1000
        yield str(requests), f"{by_curve:.2f}", f"{measured:.2f}", f"{by_curve / measured:.2f}"


def _grids(curve: StepCurve, unit: str, default_share: float, default: tuple[int, ...]) -> str:
    rows = [
        _row(f"by the curve, epsilon {share:g}", MeasuredGrid(curve, share).sizes(curve.last), curve)
        for share in _SHARES
    ]
    rows.append(_row(f"default, epsilon {default_share:g}", default, curve))
    return table(("grid", "graphs", "mean padding", "worst", f"at, {unit}"), rows)


def _row(name: str, sizes: tuple[int, ...], curve: StepCurve) -> tuple[str, ...]:
    padding = padding_of(sizes, curve)
    return name, str(len(sizes)), f"{padding.mean:.1%}", f"{padding.worst:.1%}", str(padding.worst_at)
