"""The memory of a plan for the terminal: a row for each part, in GiB, and under ``details`` one for each line; beside
the stock engine, what differs."""

from collections.abc import Callable, Iterator, Mapping
from textwrap import fill
from typing import Any

from servespec.render.alignment import aligned
from servespec.render.memory_rows import (
    STAGE_HEADERS,
    bar,
    gib,
    held,
    line_name,
    measured_by,
    memory_rows,
    memory_verdict,
    reasons,
    short_verdict,
    spending,
    stage_rows,
)

Json = Mapping[str, Any]

_WIDTH = 80


def memory_text(memory: Json | None, *, details: bool = False) -> str:
    """The table, '' where a plan has no ledger."""
    if memory is None:
        return ""
    rows = [(row.name, gib(row.size_bytes), row.bar, row.basis) for row in memory_rows(memory)]
    if details:
        rows += [_line(line) for line in memory["lines"]]
    said = [f"  {text}" for text in (held(memory), measured_by(memory)) if text]
    heading = f"memory of one device{_of_stage(memory)}, GiB: {spending(memory)}"
    table = [heading, aligned(rows), *said, *_reasons(memory), f"  {memory_verdict(memory)}"]
    return "\n".join([*table, *_stages(memory)])


def _of_stage(memory: Json) -> str:
    return "".join(f" of stage {stage['stage']}" for stage in memory.get("stages", ()) if stage["decides"])


def _stages(memory: Json) -> Iterator[str]:
    stages = list(stage_rows(memory))
    if stages:
        yield "memory of the pipeline stages, GiB"
        yield aligned([STAGE_HEADERS, *stages])


def against_stock_text(memory: Json | None, stock: Json | None) -> str:
    """Graphs, KV cache and verdict of both, '' where either has no ledger."""
    if memory is None or stock is None:
        return ""
    return "\n".join(["memory beside stock", aligned([("", "plan", "stock"), *beside_stock(memory, stock)])])


def beside_stock(memory: Json, stock: Json) -> Iterator[tuple[str, str, str]]:
    """(what, of the plan, of the stock engine)"""
    yield from ((name, cell(memory), cell(stock)) for name, cell in _COMPARED)


def _total(key: str, words: Callable[[float], str]) -> Callable[[Json], str]:
    """A cell for a total, `not known` where it is null."""

    def cell(memory: Json) -> str:
        value = memory["totals"][key]
        return "not known" if value is None else words(value)

    return cell


def _line(line: Json) -> tuple[str, str, str, str]:
    error_bar = bar(line["low_bytes"], line["high_bytes"])
    return line_name(line), gib(line["bytes"]), error_bar, f"{line['basis']}: {line['because']}"


def _reasons(memory: Json) -> Iterator[str]:
    for text in reasons(memory):
        yield fill(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


_COMPARED: tuple[tuple[str, Callable[[Json], str]], ...] = (
    ("CUDA graphs, GiB", _total("cudagraph_bytes", gib)),
    ("KV cache, GiB", _total("kv_cache_bytes", gib)),
    ("KV cache, tokens", _total("kv_cache_tokens", "{:,}".format)),
    ("longest contexts at a time", _total("max_concurrency", "{:g}".format)),
    ("verdict", short_verdict),
)
