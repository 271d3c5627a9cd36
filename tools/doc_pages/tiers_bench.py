"""Tiers that a curve chose, as they were served beside every fixed K: part of docs/reference/curves.md."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from doc_pages.bench_prompts import prompts_words
from doc_pages.compiling import plan_of_text
from doc_pages.markdown import sentences, table
from doc_pages.twins import TPOT, Twins, arm_source, interval_words, section_of, twins_of
from servespec.compiler.plan import Plan
from servespec.compiler.traffic import TrafficAsked
from servespec.compiler.traffic_prediction import FITTED_ON, predicted_traffic
from servespec.render.bench_figures import arms_at_loads
from servespec.runtime.bench.ratios import geometric_mean, interval_95
from servespec.runtime.traffic_dice import new_dice
from servespec.schema.spec import SpeculativeSection

Json = Mapping[str, Any]

FRONT_END_FROM: Final = 64
"""Chosen: with fewer requests the front end takes less than what predictions are off for other reasons."""
_METRIC: Final = "output_tokens_per_second"
_EDGES: Final = (
    "A batch that crosses a tier's edge mixes query lengths, which no FULL graph takes: short answers let batches "
    "cross edges often."
)
_CACHED_PROMPTS: Final = (
    "The engine pads a request whose whole prompt its prefix cache holds to a decode's width only where K is fixed: "
    "with tiers its first step runs on PIECEWISE graphs, which costs them something."
)


@dataclass(frozen=True, slots=True)
class TiersBench:
    """A bench with an arm of tiers by a curve; ``fixed`` are its arms of one K, by their K, 0 for none.

    All of these are lowered alike.  ``load_aware`` chooses what it verifies from a load on; None where no arm does.
    ``choice`` is what a plan says of the tiers that the curve gives the same spec, and ``played`` what
    `servespec predict` says of the bench's traffic, both in their JSON form; ``played_at_once`` would be said if
    requests took nothing of the front end.
    """

    file: str
    bench: Json
    tiers: str
    fixed: Mapping[int, str]
    load_aware: str | None
    choice: Json
    played: Json
    played_at_once: Json

    @property
    def name(self) -> str:
        """What headings call it."""
        return self.file.rpartition("bench-tiers-")[2].removesuffix(".json")

    @property
    def link(self) -> str:
        return f"[{self.file}](../measurements/{self.file})"

    @property
    def least(self) -> int:
        """The fewest drafts of a fixed arm, which gains are over."""
        return min(self.fixed)

    @property
    def loads(self) -> Sequence[int]:
        loads: list[int] = self.bench["design"]["concurrencies"]
        return loads

    @property
    def rates(self) -> Sequence[float]:
        rates: list[float] = self.choice["acceptance_rates"]
        return rates

    @property
    def twins(self) -> tuple[Twins, ...]:
        return tuple(twins_of(self.file, self.bench, self.choice["chosen"][0]["num_speculative_tokens"]))

    def pairs(self, arm: str, over: str, load: int, metric: str = _METRIC) -> tuple[float, ...]:
        return pairs_of(self.bench, arm, over, load, metric)

    def over_all_loads(self, arm: str, over: str) -> tuple[float, ...]:
        """Of each round that has every load, the geometric mean over the loads."""
        by_load = [self.pairs(arm, over, load) for load in self.loads]
        return tuple(geometric_mean(ratios) for ratios in zip(*by_load, strict=False))

    def best_fixed(self, load: int) -> int:
        return max(self.fixed, key=lambda k: fmean(self.served(self.fixed[k], load)))

    def is_below(self, load: int) -> bool:
        """Whether the best fixed K served more than the interval leaves open."""
        low, _ = interval_95(self.best_over_tiers(load))
        return low is not None and low > 1

    def best_over_tiers(self, load: int) -> tuple[float, ...]:
        return self.pairs(self.fixed[self.best_fixed(load)], self.tiers, load)

    def is_twin_of_best(self, load: int) -> bool:
        """Whether tiers and the best fixed K run the same steps: told of one request alone."""
        best = self.fixed[self.best_fixed(load)]
        return load == 1 and any({one.arm, one.over} == {best, self.tiers} for one in self.twins)

    def gains(self) -> Iterator["Gain"]:
        """Of each load: every K above the least, and the tiers."""
        steady_at = {row["requests"]: row for row in self.choice["predicted"]}
        for at in self.played["loads"]:
            load = at["requests"]
            steady = _by_drafts(steady_at[load]["fixed"], steady_at[load]["without_speculation"])
            without = at["without_speculation"]
            played = _by_drafts(at["fixed"], None if without is None else without["tokens_per_second"])
            ways = [(f"K = {k}", arm, steady[k], played[k]) for k, arm in self.fixed.items() if k > self.least]
            chosen = steady_at[load]["num_speculative_tokens"]
            ways.append(("tiers", self.tiers, steady[chosen], at["tiers"]["tokens_per_second"]))
            for name, arm, of_steady, of_played in ways:
                yield Gain(
                    load=load,
                    way=name,
                    served=geometric_mean(self.pairs(arm, self.fixed[self.least], load)),
                    steady=of_steady / steady[self.least],
                    played=of_played / played[self.least],
                    speed_error=of_played / median(self.served(arm, load)) - 1,
                )

    def median_errors(self) -> tuple[float, float]:
        """Of gains of steady batches and of played traffic, as shares of the served ones, without their signs."""
        gains = list(self.gains())
        return (
            median(abs(one.steady / one.served - 1) for one in gains),
            median(abs(one.played / one.served - 1) for one in gains),
        )

    def speed_errors(self, played: Json) -> Iterator[tuple[int, float]]:
        """Each load with how far off the tokens per second of an arm are, as a share of those served."""
        for at in played["loads"]:
            without = at["without_speculation"]
            fixed = _by_drafts(at["fixed"], None if without is None else without["tokens_per_second"])
            ways = {arm: fixed[k] for k, arm in self.fixed.items()}
            ways[self.tiers] = at["tiers"]["tokens_per_second"]
            for arm, speed in ways.items():
                yield at["requests"], speed / median(self.served(arm, at["requests"])) - 1

    def median_speed_error(self, played: Json) -> float:
        """Without their signs, of loads that the front end tells on."""
        return median(abs(error) for load, error in self.speed_errors(played) if load >= FRONT_END_FROM)

    def served(self, arm: str, load: int) -> list[float]:
        """Output tokens per second of every round."""
        return [one[_METRIC] for one in self.bench["cells"] if (one["arm"], one["concurrency"]) == (arm, load)]

    def full_share(self, arm: str, load: int) -> float:
        (found,) = (one for one in arms_at_loads(self.bench) if (one.arm, one.concurrency) == (arm, load))
        return found.full_share() or 0.0


def pairs_of(bench: Json, arm: str, over: str, load: int, metric: str = _METRIC) -> tuple[float, ...]:
    """Whichever of the two the file names first."""
    for one in bench["ratios"]:
        if one["metric"] == metric and one["concurrency"] == load:
            if (one["arm"], one["over"]) == (arm, over):
                return tuple(one["ratios"])
            if (one["arm"], one["over"]) == (over, arm):
                return tuple(1 / ratio for ratio in one["ratios"])
    raise LookupError(f"{arm} over {over} at {load}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Tokens a second over the fewest drafts: served, of a steady batch, played; and how far off played ones are."""

    load: int
    way: str
    served: float
    steady: float
    played: float
    speed_error: float


def _by_drafts(fixed: Sequence[Json], without: float | None) -> dict[int, float]:
    """By K; a server of K = 0 that never drafts is ``without``, where that was timed."""
    by_k = {one["num_speculative_tokens"]: one["tokens_per_second"] for one in fixed}
    return by_k if without is None else {**by_k, 0: without}


def tiers_bench(examples: Path, file: str, bench: Json, curve: Path) -> TiersBench:
    """A bench and what the ``curve`` of its tiers predicts of it; the models of its spec lie below ``examples``."""
    plan = tiers_plan(examples, bench, curve)
    sections = _sections(bench)
    arm, section = _arm_of_tiers(sections)
    choice = plan.to_json()["tiers"]
    assert section.curve_tiers is not None
    assert list(section.curve_tiers.acceptance_rates or ()) == choice["acceptance_rates"]
    lowered_alike = {name: one for name, one in sections.items() if _lowering(bench, name) == _lowering(bench, arm)}
    load_aware = [name for name, one in lowered_alike.items() if one is not None and one.load_aware is not None]
    plain = {name: one for name, one in lowered_alike.items() if name not in (arm, *load_aware)}
    fixed = {0 if one is None else one.num_speculative_tokens or 0: name for name, one in plain.items()}
    traffic = traffic_of(bench)
    return TiersBench(
        file=file,
        bench=bench,
        tiers=arm,
        fixed=dict(sorted(fixed.items())),
        load_aware=next(iter(load_aware), None),
        choice=choice,
        played=predicted_traffic(plan, traffic, new_dice),
        played_at_once=predicted_traffic(plan, traffic, new_dice, front_end_seconds=0.0),
    )


def _sections(bench: Json) -> dict[str, SpeculativeSection | None]:
    return {arm: section_of(arm_source(one["texts"])) for arm, one in bench["arms"].items()}


def _arm_of_tiers(sections: Mapping[str, SpeculativeSection | None]) -> tuple[str, SpeculativeSection]:
    ((arm, section),) = (
        (arm, section) for arm, section in sections.items() if section is not None and section.curve_tiers is not None
    )
    return arm, section


def _lowering(bench: Json, arm: str) -> str:
    lowering: str = bench["arms"][arm]["lowering"]
    return lowering


def tiers_plan(examples: Path, bench: Json, curve: Path) -> Plan:
    """Of the arm with tiers, by ``curve``."""
    arm, _ = _arm_of_tiers(_sections(bench))
    ((name, text),) = bench["arms"][arm]["texts"].items()
    return plan_of_text(_with_curve(text, name, curve), examples / name)


def traffic_of(bench: Json) -> TrafficAsked:
    design = bench["design"]
    return TrafficAsked(
        concurrencies=tuple(design["concurrencies"]),
        input_tokens=design["input_tokens"],
        output_tokens=design["output_tokens"],
        prompts_per_request=design["prompts_per_request"],
    )


def _with_curve(text: str, name: str, curve: Path) -> str:
    """The spec with ``curve`` in the place of the file that it was served with."""
    section = section_of(arm_source({name: text}))
    assert section is not None
    assert section.curve_files is not None
    ((file,),) = section.curve_files[1:]
    return text.replace(file, str(curve.resolve()))


def tiers_sections(found: TiersBench, apart: float, *, was_ahead: bool) -> Iterator[str]:
    """``apart`` is how far twins differ; ``was_ahead`` says whether steps were timed as in a busy server."""
    yield f"### Tiers of {found.name}, served beside fixed K"
    yield _what_was_served(found)
    yield table(_header(found), [*(_row(found, load) for load in found.loads), _row_of_all(found)])
    yield verdict(found, apart)
    yield f"### Gains of {found.name}, predicted and served"
    yield from _gains_section(found, was_ahead=was_ahead)
    if found.load_aware is not None:
        yield from _load_aware(found, found.load_aware)


def _gains_section(found: TiersBench, *, was_ahead: bool) -> Iterator[str]:
    over = f"a fixed K = {found.least}" if found.least else "a server that never drafts"
    waits = (
        ""
        if was_ahead
        else "A timed step waits for the host, which a server overlaps with the step before, so that of short steps, "
        "which few requests or few drafts make, the curve says too much. "
    )
    yield sentences(
        f"Output tokens per second of each K over those of {over}, of {found.link}. "
        "Steady is a batch of as many requests in decode steps alone, as a plan's table has it. "
        "Played is the bench's own traffic, step by step, as `servespec predict` plays it: what was served began all "
        "at once, prefilled between, and ran fewer requests at the end of each wave. " + waits
    )
    header = ("requests", "drafts", "served", "steady", "error", "played", "error", "error of played tokens/s")
    yield table(header, list(_gains(found)))
    steady, played = found.median_errors()
    errors = [error for _, error in found.speed_errors(found.played)]
    was_fitted = FITTED_ON.endswith(found.file)
    fitted = "this bench" if was_fitted else "the bench of [8b-fp8-2](#gains-of-8b-fp8-2-predicted-and-served) alone"
    yield sentences(
        f"The median error is {steady:.0%} of steady gains and {played:.0%} of played ones. "
        f"Played tokens per second themselves are {min(errors):+.0%} to {max(errors):+.0%} off. "
        f"From {FRONT_END_FROM} requests on they are {found.median_speed_error(found.played):.0%} off at the median, "
        f"and {found.median_speed_error(found.played_at_once):.0%} where requests reach the engine at once: as played, "
        f"each takes {found.played['front_end_seconds'] * 1000:g} ms of client and API server, and those sent "
        f"together pass together. That time is fitted on {fitted}."
    )


def _what_was_served(found: TiersBench) -> str:
    design = found.bench["design"]
    tiers = ", ".join(
        f"K = {tier['num_speculative_tokens']} for {tier['from_requests']} to {tier['to_requests']}"
        for tier in found.choice["chosen"]
    )
    return sentences(
        f"The curve chose {tiers} requests, at acceptance rates of {_listed(found.rates)}, which a rule "
        f"gave every arm. {len(found.bench['arms'])} servers shared one GPU, one at a time with requests; "
        f"{design['input_tokens']} tokens in, {design['output_tokens']} out. "
        f"Ratios of output tokens per second, tiers over each fixed K, geometric mean of the pairs and its interval at "
        f"95 %. {prompts_words(found.bench)}File: {found.link}."
    )


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


def _header(found: TiersBench) -> tuple[str, ...]:
    fixed = (f"tiers / K = {k}" if k else "tiers / no speculation" for k in found.fixed)
    return ("requests", *fixed, "best fixed K", "tokens on FULL graphs, tiers")


def _row(found: TiersBench, load: int) -> tuple[str, ...]:
    ratios = [interval_words(found.pairs(found.tiers, arm, load)) for arm in found.fixed.values()]
    return (str(load), *ratios, str(found.best_fixed(load)), f"{found.full_share(found.tiers, load):.0%}")


def _row_of_all(found: TiersBench) -> tuple[str, ...]:
    ratios = [interval_words(found.over_all_loads(found.tiers, arm)) for arm in found.fixed.values()]
    return ("all, geometric mean", *ratios, "", "")


def verdict(found: TiersBench, apart: float) -> str:
    """Where the best fixed K served more than the interval leaves open, and whether twins leave that open."""
    below = [load for load in found.loads if found.is_below(load)]
    of_loads = f"{len(found.loads) - len(below)} of {len(found.loads)} loads"
    return sentences(
        " ".join(
            [
                f"At {of_loads} none of these fixed K served more beyond the interval.",
                *(_of_load(found, load, apart) for load in below),
                *([_CACHED_PROMPTS] if prompts_words(found.bench) else []),
                _over_all_loads(found, apart),
            ]
        )
    )


def _of_load(found: TiersBench, load: int, apart: float) -> str:
    best = found.best_fixed(load)
    ahead = geometric_mean(found.best_over_tiers(load)) - 1
    one_did = f"At {load} {'request' if load == 1 else 'requests'} K = {best} did, by {ahead:.1%}"
    if found.is_twin_of_best(load):
        return f"{one_did}, but there it is a [twin](#twins) of the tiers. {_as_twins(found, load, apart)}"
    if ahead <= apart:
        return f"{one_did}, which is no more than [twins](#twins) differ by."
    edges = "" if load == 1 else f" {_EDGES}"
    return f"{one_did}, which is more than [twins](#twins) differ by.{edges}"


def _as_twins(found: TiersBench, load: int, apart: float) -> str:
    """What of the tokens per second of the best fixed K is of the steps that it shares with the tiers."""
    per_token = found.pairs(found.fixed[found.best_fixed(load)], found.tiers, load, TPOT)
    words = (
        f"Its time per output token is {interval_words(per_token)} of theirs, and twins differ by up to {apart:.1%}."
    )
    if geometric_mean(per_token) > 1:
        words += " So it was ahead by its first tokens alone."
    return words


def _over_all_loads(found: TiersBench, apart: float) -> str:
    """Which fixed K the tiers left behind by more than their interval and twins leave open."""
    behind, near = [], []
    for k, arm in found.fixed.items():
        ratios = found.over_all_loads(found.tiers, arm)
        low, _ = interval_95(ratios)
        is_behind = low is not None and low > 1 and geometric_mean(ratios) > 1 + apart
        (behind if is_behind else near).append(k)
    if not behind:
        return "Over all loads tiers served more than no fixed K, beyond the interval and by more than twins differ."
    of_near = f"; of K = {_in_words(near)} that cannot be said" if near else ""
    return (
        f"Over all loads tiers served more than K = {_in_words(behind)}, beyond the interval and by more than twins "
        f"differ{of_near}."
    )


def _in_words(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _gains(found: TiersBench) -> Iterator[tuple[str, ...]]:
    for one in found.gains():
        steady, played = (f"{predicted / one.served - 1:+.0%}" for predicted in (one.steady, one.played))
        gains = (f"{one.served:.2f}", f"{one.steady:.2f}", steady, f"{one.played:.2f}", played)
        yield (str(one.load), one.way, *gains, f"{one.speed_error:+.0%}")


_BY_CONFIDENCE: Final = (
    "At and above it this says little: the engine's estimate of acceptance read the drafter's own confidence, and a "
    "drafter of dummy weights has none, so that almost every draft was left out, as the acceptance length shows."
)
_BY_CONTEXT: Final = (
    "The estimate of acceptance was the rule's. "
    "At and above the knee drafts were chosen by the engine's own prices, which charge each draft with the context of "
    "a whole request, 4,095 tokens here, below as many tokens as there can be requests (512), and none above: with 64 "
    "requests most drafts were left out, with 128 none, and with more only those beyond the rows of logits that are "
    "verified at once. "
    "Steps are [priced otherwise](../guide/following-the-load.md#verify-by-load) since; that was not measured."
)
_CHOSEN_BY: Final = {
    "2026-12-01-h200-bench-tiers-8b-fp8.json": _BY_CONFIDENCE,
    "2026-12-01-h200-bench-tiers-8b-fp8-3.json": _BY_CONTEXT,
}
"""What is known of how each bench's load-aware arm chose its drafts."""


def _load_aware(found: TiersBench, arm: str) -> Iterator[str]:
    most = max(found.fixed)
    fixed = found.fixed[most]
    yield f"### Load-aware verification of {found.name}"
    yield sentences(
        f"The same bench had an arm whose drafts are chosen from a number of requests on (`load_aware`), by the "
        f"knee of this curve. Below it runs the steps of the fixed K = {most}. {_CHOSEN_BY[found.file]}"
    )
    yield table(
        ("requests", f"load-aware / K = {most}", "tiers / load-aware", "acceptance length", f"of K = {most}"),
        [
            (
                str(load),
                interval_words(found.pairs(arm, fixed, load)),
                interval_words(found.pairs(found.tiers, arm, load)),
                _accepted(found, arm, load),
                _accepted(found, fixed, load),
            )
            for load in found.loads
        ],
    )


def _accepted(found: TiersBench, arm: str, load: int) -> str:
    (at,) = (one for one in arms_at_loads(found.bench) if (one.arm, one.concurrency) == (arm, load))
    length = at.median_of("acceptance_length")
    return "" if length is None else f"{length:.2f}"
