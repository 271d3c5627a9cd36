"""What the page's charts show, as Vega-Lite specifications made from a plan's JSON form.

Colours and textures are variables and patterns of the page, so that one drawing serves light, dark and paper.  A row of
steps is one path, whatever their number, which keeps the largest plans small.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log2
from typing import Any

from servespec.render.memory_rows import NAMES, MemoryRow, gib, memory_rows
from servespec.render.page.spans import Group, Span, Tier

Json = Mapping[str, Any]
Row = dict[str, Any]

_GIB = 1 << 30
_STRIP_PIXELS = 180
_LABELLED_SHARE = 0.12
"""Of the axis that a band takes up from which on its name is written into it."""
_LINES: Mapping[str, Row] = {"FULL": {"strokeWidth": 1.75}, "PIECEWISE": {"strokeWidth": 3.5, "strokeDash": [4, 2]}}
"""Thin and whole against thick and dashed, which differ without colour and where a run is shorter than a dash."""
_BANDS = {"EAGER": ("url(#eager)", "eager"), "UNSCHEDULED": ("url(#never)", "never in one step")}


@dataclass(frozen=True, slots=True)
class Extent:
    """The ends of the axes that two charts share: sizes in the group's unit, and tokens."""

    size: int
    tokens: int


def extent_of(*all_spans: Sequence[Span]) -> Extent:
    """Of charts that stand above each other."""
    spans = [span for spans in all_spans for span in spans]
    tokens = max(max(span.batch_tokens(span.last), span.graph_tokens or 0) for span in spans)
    return Extent(max(span.last for span in spans), tokens)


def coverage_chart(group: Group, spans: Sequence[Span], extent: Extent, width: int) -> Json:
    """Tokens of each batch, and of the graph it runs from; what lies between is padding."""
    scale: Row = {"type": "log", "base": 2} if group.unit == "tokens" else {"type": "linear"}
    smallest = 0.5 if group.unit == "tokens" else 0
    x = {
        "field": "size",
        "type": "quantitative",
        "title": f"{group.unit} in a step",
        "scale": {**scale, "domain": [smallest, extent.size], "nice": False},
        "axis": {"grid": False, "tickCount": 5, **_powers(group, extent.size)},
    }
    y = {
        "field": "graph",
        "type": "quantitative",
        "title": "tokens",
        "scale": {**scale, "domain": [smallest, extent.tokens], "nice": False},
        "axis": {"tickCount": 4, "minExtent": 44, "maxExtent": 44, **_powers(group, extent.tokens)},
    }
    points = list(_points(spans, smallest))
    bands = list(_bands(spans, extent, smallest))
    piece = {"field": "piece", "type": "nominal"}
    layers = [
        {
            "data": {"values": points},
            "mark": {"type": "area", "fill": "url(#pad)", "aria": False},
            "encoding": {"x": x, "y": y, "y2": {"field": "batch"}, "detail": piece},
        },
        *(_steps(points, mode, x, y) for mode in _LINES if any(point["mode"] == mode for point in points)),
        *(_band(bands, kind, x) for kind in _BANDS if any(band["kind"] == kind for band in bands)),
        *_band_names([band for band in bands if band["share"] >= _LABELLED_SHARE], x, group),
    ]
    return {"width": width, "height": _STRIP_PIXELS, "layer": layers}


def _powers(group: Group, most: int) -> Row:
    """Ticks of an axis in powers of two: few enough to read."""
    if group.unit == "requests":
        return {}
    return {"values": [1 << exponent for exponent in range(0, most.bit_length(), 3)]}


def _points(spans: Sequence[Span], smallest: float) -> Iterator[Row]:
    """The corners of the staircase; a span reaches from the size before its first, so that none is without width, and
    holds at its start what its first batch holds."""
    covered = [span for span in spans if span.mode in _LINES]
    for piece, (_, run) in enumerate(groupby(covered, key=lambda span: (span.mode, span.query_len))):
        for span in run:
            before = max(span.first - 1, smallest)
            yield _point(piece, span, before, span.batch_tokens(span.first))
            yield _point(piece, span, span.last, span.batch_tokens(span.last))


def _point(piece: int, span: Span, size: float, batch_tokens: int) -> Row:
    return {"piece": piece, "mode": span.mode, "size": size, "batch": batch_tokens, "graph": span.graph_tokens}


def _steps(points: Sequence[Row], mode: str, x: Json, y: Json) -> Row:
    """The graphs of a mode as the upper edge of the staircase."""
    return {
        "data": {"values": [point for point in points if point["mode"] == mode]},
        "mark": {
            "type": "line",
            "stroke": f"var(--{mode.lower()})",
            **_LINES[mode],
            "aria": False,
        },
        "encoding": {"x": x, "y": y, "detail": {"field": "piece", "type": "nominal"}, "order": {"value": 0}},
    }


def _bands(spans: Sequence[Span], extent: Extent, smallest: float) -> Iterator[Row]:
    """Sizes without a graph, over the whole height."""
    for mode, run in groupby((span for span in spans if span.mode in _BANDS), key=lambda span: span.mode):
        for first, last in _merged(list(run)):
            before = max(first - 1, smallest)
            yield {"kind": mode, "size": before, "last": last, "share": _share(before, last, extent, smallest)}


def _share(before: float, last: int, extent: Extent, smallest: float) -> float:
    """Of the axis, which is logarithmic where it cannot begin at nothing."""
    if not smallest:
        return (last - before) / extent.size
    return log2(last / before) / log2(extent.size / smallest)


def _merged(spans: Sequence[Span]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for span in spans:
        if merged and merged[-1][1] + 1 == span.first:
            merged[-1] = (merged[-1][0], span.last)
        else:
            merged.append((span.first, span.last))
    return merged


def _band(bands: Sequence[Row], kind: str, x: Json) -> Row:
    fill, _ = _BANDS[kind]
    return {
        "data": {"values": [band for band in bands if band["kind"] == kind]},
        "mark": {"type": "rect", "fill": fill, "stroke": "var(--eager)" if kind == "EAGER" else None, "aria": False},
        "encoding": {"x": x, "x2": {"field": "last"}},
    }


def _band_names(bands: Sequence[Row], x: Json, group: Group) -> Iterator[Row]:
    """Each written twice: what lies below keeps the texture off the letters."""
    named = [{**band, "name": _BANDS[band["kind"]][1], "size": _middle(band, group)} for band in bands]
    if not named:
        return
    for stroke in ({"stroke": "var(--paper)", "strokeWidth": 6}, {}):
        yield {
            "data": {"values": named},
            "mark": {"type": "text", "fontWeight": "bold", "aria": False, **stroke},
            "encoding": {"x": x, "text": {"field": "name"}},
        }


def _middle(band: Row, group: Group) -> float:
    if group.unit == "tokens":
        return float((band["size"] * band["last"]) ** 0.5)
    return float((band["size"] + band["last"]) / 2)


# Memory


_NAME_PIXELS = 8
"""Of a letter of a bar's name, in the widest font that a page may be shown in."""


def memory_chart(bars: Mapping[str, Json], width: int) -> Json:
    """A stacked bar for each ledger, with its budget and the device's end."""
    totals = next(iter(bars.values()))["totals"]
    segments = [one for name, memory in bars.items() for one in _segments(name, memory)]
    end = max([totals["device_bytes"] / _GIB, *(one["to"] for one in segments)])
    x = {
        "type": "quantitative",
        "title": "GiB",
        "scale": {"domain": [0, end], "nice": False},
        "axis": {"grid": False, "tickCount": 6},
    }
    y = {
        "field": "bar",
        "type": "nominal",
        "sort": list(bars),
        "title": None,
        "axis": {"ticks": False, "minExtent": _NAME_PIXELS * max(map(len, bars))},
    }
    fills = {"domain": list(NAMES), "range": [f"url(#memory-{index})" for index in range(len(NAMES))]}
    layers = [
        {
            "data": {"values": segments},
            "mark": {"type": "bar", "stroke": "var(--ink)", "strokeWidth": 0.75, "height": 34, "aria": False},
            "encoding": {
                "x": {**x, "field": "from"},
                "x2": {"field": "to"},
                "y": y,
                "fill": {"field": "part", "type": "nominal", "scale": fills, "legend": None},
            },
        },
        {
            "data": {"values": [one for one in segments if one["to"] - one["from"] >= _LABELLED_SHARE * 2 * end]},
            "mark": {"type": "text", "aria": False},
            "encoding": {"x": {**x, "field": "middle"}, "y": y, "text": {"field": "label"}},
        },
        _end_of(totals["budget_bytes"], [5, 3], x),
        _end_of(totals["device_bytes"], [1, 0], x),
    ]
    return {"width": width, "height": 56 * len(bars) + 40, "layer": layers}


def _segments(bar: str, memory: Json) -> Iterator[Row]:
    """What takes memory, from left to right; what is not known takes no room, and the words say so."""
    start = 0.0
    for row in _drawn(memory):
        end = start + row.size_bytes / _GIB
        label = f"{row.name} {gib(row.size_bytes)}"
        yield {"bar": bar, "part": row.name, "from": start, "to": end, "middle": (start + end) / 2, "label": label}
        start = end


def _drawn(memory: Json) -> list[MemoryRow]:
    return [row for row in memory_rows(memory) if row.takes_memory and row.size_bytes > 0]


def _end_of(size_bytes: int, dash: Sequence[int], x: Json) -> Row:
    return {
        "data": {"values": [{"end": size_bytes / _GIB}]},
        "mark": {"type": "rule", "stroke": "var(--ink)", "strokeWidth": 2, "strokeDash": list(dash), "aria": False},
        "encoding": {"x": {**x, "field": "end"}},
    }


# Grids and tiers


_ROW_PIXELS = 7
"""Of a letter of a row's name, which are narrower than a bar's on average: most are small."""


def grid_chart(rows: Mapping[str, Mapping[str, Sequence[int]]], unit: str, width: int) -> Json:
    """The sizes of every row of graphs as ticks, the stock engine's above the plan's."""
    names = list(rows)
    longest = max(len(line) for name in names for line in name.split("; "))
    most = max(size for grids in rows.values() for sizes in grids.values() for size in sizes)
    x = {
        "field": "size",
        "type": "quantitative",
        "title": f"captured size, {unit}",
        "scale": {"type": "log", "base": 2, "domain": [0.9, most * 1.1], "nice": False},
        "axis": {"grid": False, "values": [1 << exponent for exponent in range(0, most.bit_length(), 2)]},
    }
    y = {
        "field": "height",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [len(names) - 0.5, -0.5], "nice": False},
        "axis": {
            "grid": False,
            "ticks": False,
            "values": list(range(len(names))),
            "labelExpr": f"split({names!r}[datum.value], '; ')",
            "labelOffset": -7,
            "labelPadding": 6,
            "minExtent": max(118, _ROW_PIXELS * longest + 6),
        },
    }
    layers = [
        {
            "data": {"values": list(_ticks(rows, source))},
            "mark": {"type": "line", "stroke": stroke, "strokeWidth": strong, "strokeCap": "butt", "aria": False},
            "encoding": {"x": x, "y": y, "detail": {"field": "tick"}, "order": {"value": 0}},
        }
        for source, (stroke, strong) in _TICKS.items()
    ]
    return {"width": width, "height": 46 * len(names) + 40, "layer": layers}


_TICKS = {"stock": ("var(--muted)", 1), "plan": ("var(--full)", 2)}
_HEIGHTS = {"stock": (-0.34, -0.04), "plan": (0.04, 0.34)}


def _ticks(rows: Mapping[str, Mapping[str, Sequence[int]]], source: str) -> Iterator[Row]:
    """Two ends and a gap for each size, so that a row of ticks is one path."""
    above, below = _HEIGHTS[source]
    for index, grids in enumerate(rows.values()):
        for size in grids.get(source, ()):
            yield {"tick": index, "size": size, "height": index + above}
            yield {"tick": index, "size": size, "height": index + below}
            yield {"tick": index, "size": size, "height": None}


def tier_chart(tiers: Sequence[Tier], width: int) -> Json:
    """Drafts of a request against the requests in a step."""
    ends = sorted({1, *(tier.last for tier in tiers)})
    corners = [
        {"size": size, "k": tier.num_speculative_tokens}
        for tier in tiers
        for size in (max(tier.first - 1, 0.5), tier.last)
    ]
    x = {
        "field": "size",
        "type": "quantitative",
        "title": "requests in a step",
        "scale": {"type": "log", "base": 2, "domain": [0.5, ends[-1]], "nice": False},
        "axis": {"grid": False, "values": ends, "labelOverlap": True, "labelSeparation": 12},
    }
    y = {
        "field": "k",
        "type": "quantitative",
        "title": "drafts, K",
        "scale": {"domain": [0, max(tier.num_speculative_tokens for tier in tiers) + 1]},
        "stack": None,
        "axis": {"tickMinStep": 1, "tickCount": 4, "minExtent": 44, "maxExtent": 44},
    }
    layer = {"x": x, "y": y, "order": {"value": 0}}
    return {
        "width": width,
        "height": _STRIP_PIXELS,
        "data": {"values": corners},
        "layer": [
            {"mark": {"type": "area", "fill": "url(#pad)", "aria": False}, "encoding": {"x": x, "y": y}},
            {
                "mark": {"type": "line", "stroke": "var(--full)", "strokeWidth": 2.5, "aria": False},
                "encoding": layer,
            },
        ],
    }
