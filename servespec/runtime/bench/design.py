"""What a bench measures and in which order, before anything is started."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from servespec.compiler.traffic import TrafficAsked, positive, traffic_findings
from servespec.diagnostics import Diagnostic, Place
from servespec.provenance import PRESET_PREFIX
from servespec.runtime.bench.bench_rules import DESIGN_REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchDesign:
    """The arms, the loads and how often.

    ``concurrencies`` are in requests; ``prompts_per_request`` times one of them are the prompts of a cell.
    ``side_by_side_kv_bytes`` is the KV cache of each arm where all are up at once, None where they take turns.
    """

    arms: tuple[str, ...]
    concurrencies: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    prompts_per_request: int
    rounds: int
    seed: int
    side_by_side_kv_bytes: int | None

    @property
    def traffic(self) -> TrafficAsked:
        return TrafficAsked(
            concurrencies=self.concurrencies,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            prompts_per_request=self.prompts_per_request,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "arms": list(self.arms),
            "concurrencies": list(self.concurrencies),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "prompts_per_request": self.prompts_per_request,
            "rounds": self.rounds,
            "seed": self.seed,
            "fresh_prompts": True,
            "side_by_side_kv_bytes": self.side_by_side_kv_bytes,
        }

    def prompts_seed(self, round_number: int, concurrency: int) -> int:
        """Of the prompts of a load in a round, the same for every arm.

        No other load or round has these prompts: a server's prefix cache would hold them, and nothing be prefilled.
        """
        return crc32(f"{self.seed} {round_number} {concurrency}".encode())


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One measurement: an arm under one load in one round; rounds count from 1."""

    round: int
    arm: str
    concurrency: int


def labels_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each arm's name, or its file's; one that is there already gets a number, as one named again to see the noise."""
    labels: list[str] = []
    for name in names:
        # A preset is no file: what follows a dot of its name is part of it.
        short = name if name.startswith(PRESET_PREFIX) else Path(name).stem
        numbered = (f"{short}-{number}" for number in count(2))
        labels.append(next(one for one in chain([short], numbered) if one not in labels))
    return tuple(labels)


def arms_in(design: BenchDesign, round_number: int) -> tuple[str, ...]:
    """The order of one round: every other one runs backwards, so that a drift of the machine falls on all alike."""
    return design.arms if round_number % 2 else design.arms[::-1]


def rounds_of(design: BenchDesign) -> Iterator[tuple[Cell, ...]]:
    """The cells of each round.

    Arms that are up together are compared load by load; arms that take turns do all their loads while they are up.
    """
    for number in range(1, design.rounds + 1):
        arms = arms_in(design, number)
        if design.side_by_side_kv_bytes is None:
            yield tuple(Cell(number, arm, load) for arm in arms for load in design.concurrencies)
        else:
            yield tuple(Cell(number, arm, load) for load in design.concurrencies for arm in arms)


_SEEDS: Final = 1 << 32
"""The client draws its prompts by numpy, which takes no other. Source: vllm/benchmarks/serve.py."""


def design_findings(design: BenchDesign, max_model_len: int | None, max_num_seqs: int) -> Iterator[Diagnostic]:
    """What keeps a design from being run, each with the option that says it."""
    yield from traffic_findings(design.traffic, max_model_len, max_num_seqs, DESIGN_REFUSED)
    yield from positive("--rounds", design.rounds, DESIGN_REFUSED)
    if not 0 <= design.seed < _SEEDS:
        yield DESIGN_REFUSED.at(Place("--seed"), f"`--seed` is `{design.seed}`", f"write 0 to {_SEEDS - 1}")
