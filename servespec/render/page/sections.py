"""The sections of the page, each from the plan's JSON form: an id, a heading, and what stands below it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servespec.render.alignment import or_nothing
from servespec.render.diagnostics import address, summary
from servespec.render.memory_rows import (
    NAMES,
    by_stage,
    gib,
    held,
    measured_by,
    memory_rows,
    memory_verdict,
    reasons,
    spending,
)
from servespec.render.page.charts import coverage_chart, extent_of, grid_chart, memory_chart, tier_chart
from servespec.render.page.drawing import figure
from servespec.render.page.markup import Markup, details, element, joined, lines_of, table, with_code
from servespec.render.page.spans import Group, Span, Tier, groups_of, tiers_of
from servespec.render.plan_tables import (
    Table,
    beside_stock_table,
    captures,
    gains_table,
    graphs_table,
    launch_lines,
    memory_lines_table,
    memory_table,
    predicted_table,
    resolved_table,
    savings_table,
    sizes_table,
    sources_of,
    stages_table,
    steps_table,
)
from servespec.render.tier_rows import predicted_by

Json = Mapping[str, Any]

_NAMES = {"stock": "Stock engine", "plan": "This plan"}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page that its contents link to."""

    id: str
    title: str
    parts: tuple[Markup, ...]


def sections_of(plan: Json) -> tuple[Section, ...]:
    """All of them, in the order of the page; one with nothing to say is left out."""
    made = (
        Section("steps", "How every step runs", tuple(_steps(plan))),
        Section("coverage", "Coverage", tuple(_coverage(plan))),
        Section("memory", "Memory of one device", tuple(_memory(plan))),
        Section("graphs", "Graphs and their sizes", tuple(_graphs(plan))),
        Section("tiers", "Drafts against load", tuple(_tiers(plan))),
        Section("findings", "Findings", tuple(_findings(plan["diagnostics"]))),
        Section("launch", "Launch", tuple(_launch(plan["launch"]))),
        Section("resolved", "Resolved values", tuple(_resolved(plan))),
    )
    return tuple(section for section in made if section.parts)


# Steps


def _steps(plan: Json) -> Iterator[Markup]:
    steps = steps_table(plan)
    if steps.rows:
        yield table(steps)
    yield element("p", captures(plan))


# Coverage


def _coverage(plan: Json) -> Iterator[Markup]:
    graphs = sources_of(plan)
    yield element(
        "p",
        "Each chart goes from the smallest batch to the largest.",
        " The line is the size of the graph that a batch runs from, the shaded wedge below it what padding adds.",
    )
    yield _legend(_COVERAGE_KEYS)
    for group in groups_of(*graphs.values()):
        spans = {source: group.spans(one) for source, one in graphs.items()}
        yield element("h3", group.name)
        yield from _coverage_charts(group, spans)
        yield _coverage_tables(group, spans)


def _coverage_charts(group: Group, spans: Mapping[str, Sequence[Span]]) -> Iterator[Markup]:
    extent = extent_of(*spans.values())
    for source, own in spans.items():
        if not own:
            yield element("p", f"{_NAMES[source]}: no such steps.")
            continue

        def chart(width: int, own: Sequence[Span] = own) -> Json:
            return coverage_chart(group, own, extent, width)

        yield figure(f"{_NAMES[source]}: {_in_words(own, group)}{_padding_in_words(own)}.", chart)


def _in_words(spans: Sequence[Span], group: Group) -> str:
    """`1 to 64 requests FULL, 65 to 256 requests EAGER`"""
    runs: list[tuple[str, int, int]] = []
    for span in spans:
        if runs and runs[-1][0] == span.mode and runs[-1][2] + 1 == span.first:
            runs[-1] = (span.mode, runs[-1][1], span.last)
        else:
            runs.append((span.mode, span.first, span.last))
    if len(runs) > _MOST_RUNS:
        sizes = {mode: sum(last - first + 1 for one, first, last in runs if one == mode) for mode, _, _ in runs}
        counted = ", ".join(f"{count} {mode}" for mode, count in sizes.items())
        return f"of {spans[-1].last} sizes in {group.unit}, {counted}, in turns"
    return ", ".join(f"{_range(first, last)} {group.unit} {mode}" for mode, first, last in runs)


def _padding_in_words(spans: Sequence[Span]) -> str:
    padding = [span.most_padding_tokens for span in spans if span.most_padding_tokens is not None]
    return f"; padding of at most {max(padding)} tokens" if padding else ""


_MOST_RUNS = 6


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _coverage_tables(group: Group, spans: Mapping[str, Sequence[Span]]) -> Markup:
    shown = {f"{group.name}: {_NAMES[source]}": own for source, own in spans.items() if own}
    tables = (table(_coverage_table(caption, group, own)) for caption, own in shown.items())
    return details(f"{group.name} as tables", *tables)


def _coverage_table(caption: str, group: Group, spans: Sequence[Span]) -> Table:
    headers = (group.unit, "K", "tokens each", "runs", "graph, requests", "graph, tokens", "most padding, tokens")
    return Table(caption, headers, [_span_cells(span) for span in spans], frozenset({1, 2, 4, 5, 6}))


def _span_cells(span: Span) -> tuple[str, ...]:
    return (
        _range(span.first, span.last),
        or_nothing(span.num_speculative_tokens),
        str(span.query_len),
        span.mode,
        or_nothing(span.graph_requests),
        or_nothing(span.graph_tokens),
        or_nothing(span.most_padding_tokens),
    )


# Memory


def _memory(plan: Json) -> Iterator[Markup]:
    memory = plan["memory"]
    if memory is None:
        return
    ledgers = {source: one["memory"] for source, one in sources_of(plan).items() if one["memory"] is not None}
    yield element("p", f"GiB: {spending(memory)}; {memory_verdict(memory)}.", _which_rank(plan))
    yield _memory_figure(dict(_bars(ledgers)))
    yield table(memory_table(memory, ledgers.get("stock")))
    yield from (element("p", with_code(text)) for text in (held(memory), measured_by(memory), *reasons(memory)) if text)
    if "stages" in memory:
        yield table(stages_table(memory))
    if "remedy_savings" in plan:
        yield table(savings_table(plan["remedy_savings"]))
    if "stock" in ledgers:
        yield table(beside_stock_table(memory, ledgers["stock"]))
    yield details("Every line of the memory", table(memory_lines_table(memory)))


def _which_rank(plan: Json) -> str:
    count = plan["device"]["count"]
    if "stages" in plan["memory"]:
        return f" Of {count} devices, this is one of the stage that decides."
    return f" Of {count} devices, this is the one that holds most." if count > 1 else ""


def _bars(ledgers: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Of the plan and of the stock engine, and of each of their pipeline stages."""
    for source, memory in ledgers.items():
        stages = by_stage(memory) or {"": memory}
        yield from ((f"{_NAMES[source]} {name}".rstrip(), stage) for name, stage in stages.items())


def _memory_figure(bars: Mapping[str, Json]) -> Markup:
    said = "; ".join(f"{name}, GiB: {_bar_in_words(memory)}" for name, memory in bars.items())
    caption = "What one device holds. The dashed line is the budget, the solid one the end of the device."
    shown = {row.name for memory in bars.values() for row in memory_rows(memory) if row.takes_memory}
    legend = _legend([(f"url(#memory-{index})", name) for index, name in enumerate(NAMES) if name in shown])
    return joined([figure(caption, lambda width: memory_chart(bars, width), said=said), legend])


def _bar_in_words(memory: Json) -> str:
    return ", ".join(f"{row.name} {gib(row.size_bytes)}" for row in memory_rows(memory) if row.takes_memory)


# Graphs


def _graphs(plan: Json) -> Iterator[Markup]:
    rows = graphs_table(plan)
    if not rows.rows:
        yield element("p", "No graph is captured.")
        return
    yield table(rows)
    if "graph_gains" in plan:
        yield table(gains_table(plan["graph_gains"]))
    for unit in ("requests", "tokens"):
        grids = _grids(sources_of(plan), unit)
        if grids:
            yield _grid_figure(grids, unit)
    sizes = sizes_table(plan)
    if sizes.rows:
        yield details("All sizes", table(sizes))


def _grids(graphs: Mapping[str, Json], unit: str) -> dict[str, dict[str, list[int]]]:
    """Sizes by row and source, of the rows in one unit."""
    grids: dict[str, dict[str, list[int]]] = {}
    for source, one in graphs.items():
        for row in one["runners"]:
            if row["sizes"] and row["unit"] == unit:
                grids.setdefault(_row_name(row), {})[source] = row["sizes"]
    return grids


def _row_name(row: Json) -> str:
    """Two lines of a label."""
    q = f", q {row['query_len']}, K {row['num_speculative_tokens']}" if row["query_len"] else ""
    return f"{row['routine']}; {row['runner']}{q}"


def _grid_figure(rows: Mapping[str, Mapping[str, Sequence[int]]], unit: str) -> Markup:
    caption = f"Captured sizes in {unit}; thin ticks above are the stock engine's, thick ones below this plan's."
    return figure(caption, lambda width: grid_chart(rows, unit, width))


# Tiers


def _tiers(plan: Json) -> Iterator[Markup]:
    tiers = tiers_of([span for group in groups_of(plan) if group.is_target_decode for span in group.spans(plan)])
    if not any(tier.num_speculative_tokens for tier in tiers):
        return
    if len(tiers) > 1:
        said = ", ".join(f"{_range(one.first, one.last)} requests K = {one.num_speculative_tokens}" for one in tiers)
        yield figure(f"Drafts of a request: {said}.", lambda width: tier_chart(tiers, width))
    headers = ("requests", "K", "tokens each", "tokens of a step, at most", "runs")
    yield table(Table("Tiers by load", headers, [_tier_cells(tier) for tier in tiers], frozenset({1, 2, 3})))
    if "tiers" in plan:
        yield element("p", with_code(f"{predicted_by(plan['tiers'])}."))
        yield table(predicted_table(plan["tiers"]))
    mixed = plan["coverage"]["mixed"]
    if mixed:
        yield _mixed_table(mixed)


def _tier_cells(tier: Tier) -> tuple[str, ...]:
    return (
        _range(tier.first, tier.last),
        str(tier.num_speculative_tokens),
        str(tier.query_len),
        str(tier.most_tokens),
        ", ".join(tier.modes),
    )


def _mixed_table(mixed: Sequence[Json]) -> Markup:
    headers = ("requests", "drafted at, requests", "tokens", "runs", "graph, tokens")
    rows = [
        (
            str(step["requests"]),
            str(step["drafted_at_requests"]),
            str(step["tokens"]),
            step["mode"],
            or_nothing(step["padded_to_tokens"]),
        )
        for step in mixed
    ]
    caption = "Steps at a tier edge, when one request has joined those that drafted more"
    return table(Table(caption, headers, rows, frozenset({1, 2, 4})))


# Findings, launch, resolved values


def _findings(findings: Sequence[Json]) -> Iterator[Markup]:
    if not findings:
        yield element("p", "None.")
        return
    yield element("p", f"{summary(findings)}.")
    yield element("ul", *(_finding(finding) for finding in findings), class_="findings")


def _finding(finding: Json) -> Markup:
    parts = [
        element(
            "p",
            element("span", f"{finding['severity']} {finding['code']}", class_="severity"),
            " ",
            element("span", f"{finding['name']}, {address(finding)}", class_="place"),
        ),
        element("p", with_code(finding["message"])),
    ]
    if finding["help"]:
        parts.append(element("p", "Help: ", with_code(finding["help"])))
    parts += [element("p", f"{address(one)}: ", with_code(one["message"])) for one in finding["related"]]
    return element("li", *parts, class_=finding["severity"])


def _launch(launch: Json) -> Iterator[Markup]:
    text = lines_of(" \\\n  ", launch_lines(launch))
    yield element("pre", element("code", text), class_="launch", tabindex="0", role="group", aria_label="Launch line")


def _resolved(plan: Json) -> Iterator[Markup]:
    yield details("All values", table(resolved_table(plan)))


# Legends

_COVERAGE_KEYS = (
    ("line var(--full)", "FULL graph"),
    ("dashed var(--piecewise)", "PIECEWISE graph"),
    ("url(#pad)", "padding"),
    ("url(#eager)", "EAGER, no graph"),
    ("url(#never)", "never in one step"),
)


def _legend(keys: Iterable[tuple[str, str]]) -> Markup:
    """A list of what each line or texture stands for."""
    return element("ul", *(element("li", _swatch(look), name) for look, name in keys), class_="legend")


def _swatch(look: str) -> Markup:
    kind, _, stroke = look.partition(" ")
    if kind in ("line", "dashed"):
        dash = {"stroke_width": "3.5", "stroke_dasharray": "4 2"} if kind == "dashed" else {"stroke_width": "1.75"}
        drawn = element("path", d="M0 7H26", stroke=stroke, **dash)
    else:
        drawn = element("rect", x="1", y="1", width="24", height="12", fill=look, stroke="var(--ink)")
    return element("svg", drawn, width="26", height="14", aria_hidden="true")
