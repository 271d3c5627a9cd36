"""A plan for the terminal, made from its JSON form: verdict first, then what would be eager, then the graphs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servespec.render.alignment import aligned
from servespec.render.memory_text import against_stock_text, memory_text

Json = Mapping[str, Any]

_TARGET_DECODE = ("uniform_decode", "adaptive_verification")


def plan_text(plan: Json, *, details: bool = False) -> str:
    """The whole page, at most 80 columns wide but for long lists under ``details``."""
    parts = [_heading(plan), "\n".join(_verdict(plan)), _table(plan), memory_text(plan["memory"], details=details)]
    if "stock" in plan:
        parts.append(against_stock_text(plan["memory"], plan["stock"]["memory"]))
    if details:
        parts += [_resolved(plan), _sizes(plan), _launch(plan)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(plan: Json) -> str:
    engine, device = plan["engine"], plan["device"]
    count = f"{device['count']} x " if device["count"] > 1 else ""
    mode = plan["resolved"]["compilation.cudagraph_mode"]["value"]
    marked = "" if plan["complete"] else " (incomplete)"
    return (
        f"plan{marked} for vLLM {engine['version']} on {count}{device['name']}: {mode}, lowering {engine['lowering']}"
    )


def _verdict(plan: Json) -> Iterator[str]:
    if not any(row["graphs"] for row in plan["runners"]):
        yield "  graphs   none: every step runs eagerly"
        return
    for routine in _TARGET_DECODE:
        yield from _routine_verdict("decode", plan, "target", routine)
    for routine in ("step0_uniform", "later_steps", "block"):
        yield from _routine_verdict(f"draft {_SHORT[routine]}", plan, "drafter", routine)
    yield from _prefill_verdict(plan)
    total = sum(row["graphs"] for row in plan["runners"])
    seconds = plan["capture_seconds_estimate"]
    yield _line("graphs", f"{total}, about {seconds:.0f} s to capture the target's (estimate)")
    yield from _stock_verdict(plan)
    if "remedies" in plan:
        yield _line("remedies", ", ".join(plan["remedies"]))


_SHORT = {"step0_uniform": "step 0", "later_steps": "later", "block": "block"}


def _line(name: str, text: str) -> str:
    return f"  {name:<12} {text}"


def _routine_verdict(name: str, plan: Json, runner: str, routine: str) -> Iterator[str]:
    ranges = [r for r in plan["coverage"]["decode"] if r["runner"] == runner and r["routine"] == routine]
    for mode, words in _MODE_WORDS.items():
        covered = _joined([r for r in ranges if r["mode"] == mode])
        if covered:
            yield _line(name, f"{covered} {words}")


_MODE_WORDS = {
    "FULL": "on FULL graphs",
    "PIECEWISE": "on PIECEWISE graphs",
    "EAGER": "EAGER",
    "UNSCHEDULED": "never fit in one step",
}

_MOST_SPANS = 4


def _joined(ranges: Sequence[Json]) -> str:
    """`1-16, 20-64 requests` from neighbouring ranges; only their number where there are many."""
    spans: list[list[int]] = []
    for covered in ranges:
        if spans and spans[-1][1] + 1 == covered["from_requests"]:
            spans[-1][1] = covered["to_requests"]
        else:
            spans.append([covered["from_requests"], covered["to_requests"]])
    if len(spans) > _MOST_SPANS:
        sizes = sum(last - first + 1 for first, last in spans)
        return f"{sizes} of the sizes from {spans[0][0]} to {spans[-1][1]} requests"
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
    return f"{shown} requests" if shown else ""


def _prefill_verdict(plan: Json) -> Iterator[str]:
    spans: list[tuple[str, int, int]] = []
    for covered in plan["coverage"]["prefill"]:
        if spans and spans[-1][0] == covered["mode"]:
            spans[-1] = (spans[-1][0], spans[-1][1], covered["to_tokens"])
        else:
            spans.append((covered["mode"], covered["from_tokens"], covered["to_tokens"]))
    for mode, first, last in spans:
        yield _line("prefill", f"{first}-{last} tokens {_MODE_WORDS[mode]}")


def _stock_verdict(plan: Json) -> Iterator[str]:
    stock = plan.get("stock")
    if stock is None:
        return
    total = sum(row["graphs"] for row in stock["runners"])
    yield _line("stock", f"{total} graphs, about {stock['capture_seconds_estimate']:.0f} s (estimate)")
    full = _joined([r for r in stock["coverage"]["decode"] if r["mode"] == "FULL" and r["runner"] == "target"])
    if full:
        yield _line("", f"decode {full} on FULL graphs")


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
        _number(row["num_speculative_tokens"]),
        str(row["count"]),
        str(row["graphs"]),
        _largest(row),
    )
    if not stock:
        return cells
    other = stock.get(_key(row))
    return (*cells, f"{other['count']} @ {_largest(other)}" if other and other["sizes"] else "-")


def _stock_only(row: Json) -> tuple[str, ...]:
    query_len, k = str(row["query_len"] or ""), _number(row["num_speculative_tokens"])
    stock = f"{row['count']} @ {_largest(row)}"
    return (row["runner"], row["routine"], row["mode"], query_len, k, "0", "0", "-", stock)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _largest(row: Json) -> str:
    return f"{row['sizes'][-1]} {row['unit']}" if row["sizes"] else "-"


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
    env = [f"{name}={value}" for name, value in plan["launch"]["env"].items()]
    return "\n".join(["launch", "  " + shell_line([*env, *plan["launch"]["argv"]])])


def shell_line(words: Sequence[str]) -> str:
    """Words as a POSIX shell would need them."""
    import shlex

    return " ".join(shlex.quote(word) for word in words)
