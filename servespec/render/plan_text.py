"""A plan for the terminal, made from its JSON form: verdict first, then what would be eager, memory, and the graphs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

from servespec.render import gain_rows
from servespec.render.alignment import aligned, or_nothing
from servespec.render.memory_text import against_stock_text, memory_text
from servespec.render.plan_summary import Steps, graph_count, heading, steps_of, verdict
from servespec.render.remedy_text import remedy_words, savings_text
from servespec.render.tier_rows import headers_of, predicted_by, rows_of

Json = Mapping[str, Any]

_WIDTH = 80


def plan_text(plan: Json, *, details: bool = False) -> str:
    """The whole page, at most 80 columns wide but for long lists under ``details``."""
    steps = steps_of(plan)
    eager, others = [one for one in steps if one.is_eager], [one for one in steps if not one.is_eager]
    parts = [
        "\n".join(fill(line, _WIDTH, subsequent_indent="  ") for line in (heading(plan), verdict(plan))),
        _lines(map(_step, eager)),
        _lines([*map(_step, others), *_graphs(plan)]),
        memory_text(plan["memory"], details=details),
    ]
    if "tiers" in plan:
        parts.append(_tiers(plan["tiers"]))
    if "graph_gains" in plan:
        parts.append(_gains(plan["graph_gains"]))
    if "remedy_savings" in plan:
        parts.append(savings_text(plan["remedy_savings"]))
    if "stock" in plan:
        parts.append(against_stock_text(plan["memory"], plan["stock"]["memory"]))
    parts.append(_table(plan))
    if details:
        parts += [_resolved(plan), _sizes(plan), _launch(plan)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _lines(named: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"  {name:<12} {text}" for name, text in named)


def _step(steps: Steps) -> tuple[str, str]:
    return steps.kind, steps.words


def _graphs(plan: Json) -> Iterator[tuple[str, str]]:
    count = graph_count(plan)
    yield "graphs", f"{count}, about {_seconds(plan)} to capture the target's (estimate)" if count else "none"
    if "stock" in plan:
        yield from _stock(plan["stock"])
    if "remedies" in plan:
        yield "remedies", remedy_words(plan)


def _stock(stock: Json) -> Iterator[tuple[str, str]]:
    count = graph_count(stock)
    yield "stock", f"{count} graphs, about {_seconds(stock)} (estimate)" if count else "no graphs"
    yield from (("", f"decode {one.words}") for one in steps_of(stock) if one.kind == "decode" and one.mode == "FULL")


def _seconds(graphs: Json) -> str:
    return f"{graphs['capture_seconds_estimate']:.0f} s"


_COLUMNS = ("runner", "routine", "mode", "q", "K", "sizes", "graphs", "largest")


def _table(plan: Json) -> str:
    stock = _by_row(plan.get("stock", {}).get("runners", []))
    if not plan["runners"] and not stock:
        return ""
    headers = (*_COLUMNS, "stock") if stock else _COLUMNS
    rows = [_cells(row, stock) for row in plan["runners"]]
    rows += [_stock_only(row) for key, row in stock.items() if key not in _by_row(plan["runners"])]
    return aligned([headers, *rows])


def _key(row: Json) -> tuple[Any, ...]:
    return (row["runner"], row["routine"], row["query_len"], row["num_speculative_tokens"])


def _by_row(rows: Sequence[Json]) -> dict[tuple[Any, ...], Json]:
    return {_key(row): row for row in rows}


def _cells(row: Json, stock: Mapping[tuple[Any, ...], Json]) -> tuple[str, ...]:
    cells = (
        row["runner"],
        row["routine"],
        row["mode"],
        str(row["query_len"] or ""),
        or_nothing(row["num_speculative_tokens"]),
        str(row["count"]),
        str(row["graphs"]),
        _largest(row),
    )
    if not stock:
        return cells
    other = stock.get(_key(row))
    return (*cells, f"{other['count']} @ {_largest(other)}" if other and other["sizes"] else "-")


def _stock_only(row: Json) -> tuple[str, ...]:
    query_len, k = str(row["query_len"] or ""), or_nothing(row["num_speculative_tokens"])
    stock = f"{row['count']} @ {_largest(row)}"
    return (row["runner"], row["routine"], row["mode"], query_len, k, "0", "0", "-", stock)


def _largest(row: Json) -> str:
    return f"{row['sizes'][-1]} {row['unit']}" if row["sizes"] else "-"


def _tiers(tiers: Json) -> str:
    """Columns `x K=3` say how many times the tokens of a server with that K the tiers are predicted to serve."""
    said = fill(predicted_by(tiers), _WIDTH, subsequent_indent="  ")
    return f"{said}\n{aligned([headers_of(tiers), *rows_of(tiers)])}"


def _gains(gains: Json) -> str:
    """Where an eager step waits for the host, graphs pay; where it waits for the device, they save little."""
    return f"where graphs pay, by {gains['measured_by']}\n{aligned([gain_rows.HEADERS, *gain_rows.rows_of(gains)])}"


def _resolved(plan: Json) -> str:
    lines = [
        f"  {path} = {_shown(value['value'])}  ({value['origin']}: {value['because']})"
        for path, value in plan["resolved"].items()
    ]
    return "\n".join(["resolved", *lines])


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _sizes(plan: Json) -> str:
    lines = [
        f"  {row['runner']} {row['routine']}{_query(row)}: {', '.join(map(str, row['sizes']))}"
        for row in plan["runners"]
        if row["sizes"]
    ]
    return "\n".join(["sizes", *lines]) if lines else ""


def _query(row: Json) -> str:
    return f" q={row['query_len']}" if row["query_len"] else ""


def _launch(plan: Json) -> str:
    import shlex

    env = [f"{name}={value}" for name, value in plan["launch"]["env"].items()]
    return "\n".join(["launch", "  " + shlex.join([*env, *plan["launch"]["argv"]])])
