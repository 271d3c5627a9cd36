"""The tables of a plan as text in cells, made from its JSON form; the Markdown and the page each set them their way."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servespec.render import gain_rows
from servespec.render.alignment import or_nothing
from servespec.render.launch_script import words_by_flag
from servespec.render.memory_rows import STAGE_HEADERS, MemoryRow, bar, gib, line_name, memory_rows, stage_rows
from servespec.render.memory_text import beside_stock
from servespec.render.plan_summary import Steps, graph_count, steps_of
from servespec.render.remedy_text import SAVING_HEADERS, SAVINGS, remedy_words, saving_rows
from servespec.render.tier_rows import headers_of, rows_of

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headers; the first cell names its row.

    ``numbers`` are the columns of figures, ``prose`` those whose backticks mark values; all else stands as it is.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    prose: frozenset[int] = frozenset()


def sources_of(plan: Json) -> dict[str, Json]:
    """What is captured and covered, by whom; the stock engine stands above the plan."""
    return {"stock": plan["stock"], "plan": plan} if "stock" in plan else {"plan": plan}


# Steps

_RUNS = {
    "FULL": "on a FULL graph",
    "PIECEWISE": "on a PIECEWISE graph",
    "EAGER": "EAGER, without a graph",
    "UNSCHEDULED": "never: it exceeds a step's tokens",
}


def steps_table(plan: Json) -> Table:
    """How every step runs; no rows where nothing is captured."""
    steps = sorted(steps_of(plan), key=lambda one: not one.is_eager)
    rows = [(one.kind, one.extent or "every step", _runs(one)) for one in steps]
    return Table(
        "Steps of this plan, those without a graph first", ("step", "sizes", "runs"), rows, prose=frozenset({2})
    )


def _runs(steps: Steps) -> str:
    return f"{_RUNS[steps.mode]}: {steps.because}" if steps.because else _RUNS[steps.mode]


def captures(plan: Json) -> str:
    """How many graphs, how long the target's take to capture, and the remedies of memory that captures hold."""
    said = [f"{graph_count(plan)} graphs, about {plan['capture_seconds_estimate']:.0f} s to capture the target's"]
    if "stock" in plan:
        stock = plan["stock"]
        said.append(f"the stock engine: {graph_count(stock)}, about {stock['capture_seconds_estimate']:.0f} s")
    remedies = f" Remedies: {remedy_words(plan)}." if "remedies" in plan else ""
    return f"{'; '.join(said)}. Seconds are modelled, not measured.{remedies}"


# Memory


def memory_table(memory: Json, stock: Json | None) -> Table:
    """What takes memory, and how well it is known; a column more where ``stock`` is there."""
    rows = {row.name: row for row in memory_rows(memory)}
    others = {} if stock is None else {row.name: row for row in memory_rows(stock)}
    headers = ("part", "plan, GiB", "error bar", "known", *(() if stock is None else ("stock, GiB",)))
    cells = [_memory_cells(name, rows.get(name), others.get(name)) for name in dict.fromkeys((*rows, *others))]
    shown = [row[: len(headers)] for row in cells]
    return Table("What takes memory, and how well it is known", headers, shown, frozenset({1, 2, 4}))


def _memory_cells(name: str, row: MemoryRow | None, stock: MemoryRow | None) -> tuple[str, ...]:
    other = "" if stock is None else gib(stock.size_bytes)
    return (name, "", "", "", other) if row is None else (name, gib(row.size_bytes), row.bar, row.basis, other)


def beside_stock_table(memory: Json, stock: Json) -> Table:
    rows = list(beside_stock(memory, stock))
    return Table("Beside the stock engine", ("figure", "plan", "stock"), rows, frozenset({1, 2}))


def stages_table(memory: Json) -> Table:
    """Without rows where there is no pipeline."""
    headers = tuple(name or "verdict" for name in STAGE_HEADERS)
    rows = list(stage_rows(memory))
    return Table("Memory of the pipeline stages, GiB", headers, rows, frozenset({0, 2, 3, 4, 5}))


def savings_table(savings: Sequence[Json]) -> Table:
    rows = list(saving_rows(savings))
    return Table(f"{SAVINGS[0].upper()}{SAVINGS[1:]}", SAVING_HEADERS, rows, frozenset({1, 2}))


def memory_lines_table(memory: Json) -> Table:
    rows = [
        (
            line_name(line),
            gib(line["bytes"]),
            bar(line["low_bytes"], line["high_bytes"]),
            line["basis"],
            line["because"],
        )
        for line in memory["lines"]
    ]
    headers = ("line", "GiB", "error bar", "known", "because")
    return Table("Every line of this plan's memory", headers, rows, frozenset({1, 2}), frozenset({4}))


# Graphs


def graphs_table(plan: Json) -> Table:
    """One row for a routine of a runner at one query length."""
    headers = ("of", "runner", "routine", "mode", "q", "K", "sizes", "graphs", "largest")
    rows = [_graphs_cells(source, row) for source, graphs in sources_of(plan).items() for row in graphs["runners"]]
    return Table("Rows of graphs that are captured", headers, rows, frozenset({4, 5, 6, 7, 8}))


def _graphs_cells(source: str, row: Json) -> tuple[str, ...]:
    return (
        source,
        row["runner"],
        row["routine"],
        row["mode"],
        or_nothing(row["query_len"]),
        or_nothing(row["num_speculative_tokens"]),
        str(row["count"]),
        str(row["graphs"]),
        f"{row['sizes'][-1]} {row['unit']}" if row["sizes"] else "",
    )


def sizes_table(plan: Json) -> Table:
    rows = [
        (source, *_graphs_cells(source, row)[1:3], or_nothing(row["query_len"]), row["unit"], _listed(row["sizes"]))
        for source, graphs in sources_of(plan).items()
        for row in graphs["runners"]
        if row["sizes"]
    ]
    return Table("All captured sizes", ("of", "runner", "routine", "q", "unit", "sizes"), rows, frozenset({3}))


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


# Where graphs pay


def gains_table(gains: Json) -> Table:
    caption = (
        f"Where graphs pay, by {gains['measured_by']}: what an eager step waits for, and its time over the graph's"
    )
    return Table(caption, gain_rows.HEADERS, list(gain_rows.rows_of(gains)), frozenset({4}))


# Tiers


def predicted_table(tiers: Json) -> Table:
    """What a curve predicts of the tiers that it chose, beside each K alone."""
    headers = headers_of(tiers)
    caption = "Predicted tokens per second of the tiers, and how many times that of a server with one K or none"
    return Table(caption, headers, list(rows_of(tiers)), frozenset(range(1, len(headers))))


# Resolved values


def resolved_table(plan: Json) -> Table:
    rows = [
        (path, _value(value["value"]), value["origin"], value["because"]) for path, value in plan["resolved"].items()
    ]
    headers = ("field", "value", "from", "because")
    return Table("Every blank of the spec, with who filled it and why", headers, rows, prose=frozenset({3}))


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Launch


def launch_lines(launch: Json) -> list[str]:
    """The command as a POSIX shell reads it, a line for each variable and each flag."""
    return [*(f"{name}={shlex.quote(value)}" for name, value in launch["env"].items()), *words_by_flag(launch["argv"])]
