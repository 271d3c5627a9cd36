"""What a plan says first, made from its JSON form: the verdict, what would run eagerly, and how everything else runs.

The terminal's text, the Markdown and the page share it, so they cannot disagree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servespec.render.memory_rows import memory_verdict

Json = Mapping[str, Any]

_ADAPTIVE = "adaptive_verification"
_TARGET_DECODE = ("uniform_decode", _ADAPTIVE)
_DRAFTER = {
    "step0_uniform": "draft step 0",
    "step0_piecewise": "draft step 0",
    "later_steps": "draft later",
    "block": "draft block",
    "block_piecewise": "draft block",
}
"""After a step of chosen drafts a drafter's step is a mixed one."""
_MODE_WORDS = {
    "FULL": "on FULL graphs",
    "PIECEWISE": "on PIECEWISE graphs",
    "EAGER": "EAGER",
    "UNSCHEDULED": "never fit in one step",
}
_MOST_SPANS = 4


@dataclass(frozen=True, slots=True)
class Steps:
    """Some steps that run the same way: `decode`, `1-256 requests`, `FULL`.

    ``extent`` names sizes in requests or tokens; ``mode`` is how the coverage says it, ``because`` what else there is
    to say, '' for nothing.
    """

    kind: str
    extent: str
    mode: str
    because: str = ""

    @property
    def is_eager(self) -> bool:
        return self.mode == "EAGER"

    @property
    def words(self) -> str:
        """`1-256 requests on FULL graphs`"""
        said = " ".join(part for part in (self.extent, _MODE_WORDS[self.mode]) if part)
        return f"{said}: {self.because}" if self.because else said


def heading(plan: Json) -> str:
    """`plan for vLLM 0.33.0 on h200: FULL_AND_PIECEWISE, lowering extension`"""
    engine, device = plan["engine"], plan["device"]
    count = f"{device['count']} x " if device["count"] > 1 else ""
    mode = plan["resolved"]["compilation.cudagraph_mode"]["value"]
    marked = "" if plan["complete"] else " (incomplete)"
    return (
        f"plan{marked} for vLLM {engine['version']} on {count}{device['name']}: {mode}, lowering {engine['lowering']}"
    )


def verdict(plan: Json) -> str:
    """One line: whether any step runs eagerly, and whether it fits where memory is planned."""
    fits = "" if plan["memory"] is None else f"; {memory_verdict(plan['memory'])}"
    return _graphs_verdict(plan) + fits


def _graphs_verdict(plan: Json) -> str:
    if not graph_count(plan):
        return "every step runs eagerly"
    eager = list(dict.fromkeys(steps.kind.split()[0] for steps in steps_of(plan) if steps.is_eager))
    if not eager:
        return "every step runs from a graph"
    return f"some {_listed(eager)} steps run eagerly"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def graph_count(graphs: Json) -> int:
    """Of a plan, or of its `stock`."""
    return sum(row["graphs"] for row in graphs["runners"])


def steps_of(graphs: Json) -> tuple[Steps, ...]:
    """Every step that a plan, or its `stock`, covers; none where nothing is captured at all."""
    if not graph_count(graphs):
        return ()
    decode = graphs["coverage"]["decode"]
    return (
        *_target_decode(decode),
        *(steps for routine, kind in _DRAFTER.items() for steps in _routine(kind, decode, "drafter", routine)),
        *_drafter_without_graphs(graphs["runners"]),
        *_prefill(graphs["coverage"]["prefill"]),
        *_mixed(graphs["coverage"]["mixed"]),
    )


def _target_decode(decode: Sequence[Json]) -> Iterator[Steps]:
    """Where both are there, batches with all drafts are told apart from those verified adaptively."""
    has_both = {routine for routine in _TARGET_DECODE if any(one["routine"] == routine for one in decode)}
    for routine in _TARGET_DECODE:
        kind = "adaptive" if len(has_both) > 1 and routine == _ADAPTIVE else "decode"
        yield from _routine(kind, decode, "target", routine)


def _routine(kind: str, decode: Sequence[Json], runner: str, routine: str) -> Iterator[Steps]:
    ranges = [r for r in decode if r["runner"] == runner and r["routine"] == routine]
    for mode in _MODE_WORDS:
        extent = joined((r["from_requests"], r["to_requests"]) for r in ranges if r["mode"] == mode)
        if extent:
            yield Steps(kind, f"{extent} requests", mode)


def joined(ranges: Iterable[tuple[int, int]]) -> str:
    """`1-16, 20-64` from ranges in rising order; only their number where there are many."""
    spans: list[tuple[int, int]] = []
    for first, last in ranges:
        if spans and spans[-1][1] + 1 == first:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    if len(spans) > _MOST_SPANS:
        sizes = sum(last - first + 1 for first, last in spans)
        return f"{sizes} of the sizes from {spans[0][0]} to {spans[-1][1]}"
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def _drafter_without_graphs(runners: Sequence[Json]) -> Iterator[Steps]:
    yield from (Steps("draft", "", "EAGER", row["because"]) for row in runners if row["routine"] == "none")


def _prefill(ranges: Sequence[Json]) -> Iterator[Steps]:
    for mode in _MODE_WORDS:
        extent = joined((r["from_tokens"], r["to_tokens"]) for r in ranges if r["mode"] == mode)
        if extent:
            yield Steps("prefill", f"{extent} tokens", mode)


def _mixed(steps: Sequence[Json]) -> Iterator[Steps]:
    """Decode steps at a tier edge, whose requests have different query lengths."""
    for mode in _MODE_WORDS:
        extent = joined((step["requests"], step["requests"]) for step in steps if step["mode"] == mode)
        if extent:
            yield Steps("mixed", f"{extent} requests at a tier edge", mode)
