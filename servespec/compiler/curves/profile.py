"""Step-time curves of one engine, read from what `servespec profile` and `servespec steps` write.

A decode with K drafts counts in the mode that serves it, with sampling and drafting; so a size beyond the captured ones
costs what it costs when served.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from servespec.compiler.curves.mixed_steps import MixedSteps
from servespec.compiler.curves.step_curve import StepCurve, TimedPoint, step_curve
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.launch_identity import differing_names

Json = Mapping[str, Any]

_INTERVAL_95: Final = 1.96
_MEDIAN_OVER_MEAN: Final = math.sqrt(math.pi / 2)
"""Standard errors of the median and of the mean, of normal errors."""
_QUARTILES_OF_SIGMA: Final = 1.349
"""Distance of the quartiles in standard deviations, of normal errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """``by_drafts`` are whole decode steps by K, in requests; ``without`` those of a server that never drafts.

    ``mixed`` are steps with prompts, in tokens, and ``mixed_steps`` their parts.  ``identity`` is what the engine was
    started with, as far as the time of a step depends on it; what was not timed is None.  ``on_full_graphs`` says of
    each (requests, K) whether it ran from a FULL graph.
    """

    name: str
    identity: Mapping[str, str]
    by_drafts: Mapping[int, StepCurve]
    without: StepCurve | None
    mixed: StepCurve | None
    mixed_steps: MixedSteps | None
    on_full_graphs: Mapping[tuple[int, int], bool]


def profile_of(documents: Mapping[str, Json]) -> Profile | str:
    """One profile of the documents of step times, by their files' names; or why they are none."""
    identities = {name: curve_identity(document["identity"]) for name, document in documents.items()}
    first, identity = next(iter(identities.items()))
    for name, other in identities.items():
        names = differing_names(identity, other)
        if names:
            differing = ", ".join(f"`{one}`" for one in names)
            return f"`{first}` and `{name}` were measured with another {differing}"
    sizes = [size for document in documents.values() for size in document["sizes"] if size["modes"]]
    decodes = [size for size in sizes if size["kind"] == "decode"]
    if not decodes:
        return "no decode was timed in it"
    if any(_is_void(size) for size in sizes):
        return "a step in it has nothing to do, took no time or was never run"
    drafts = sorted({size["next_drafts"] for size in decodes})
    curves = {k: step_curve(_decode_points(decodes, k)) for k in drafts}
    return Profile(
        name=", ".join(documents),
        identity=identity,
        by_drafts={k: curve for k, curve in curves.items() if curve is not None},
        without=step_curve(_undrafted_points(decodes)),
        mixed=step_curve(_point(size["tokens"], size["modes"][0]) for size in sizes if size["kind"] == "mixed"),
        mixed_steps=_mixed_steps(decodes, [size for size in sizes if size["kind"] == "mixed"]),
        on_full_graphs={
            (size["requests"], size["next_drafts"]): size["modes"][0]["mode"] == CudaGraphMode.FULL for size in decodes
        },
    )


def _is_void(size: Json) -> bool:
    mode = size["modes"][0]
    return bool(min(size["requests"], size["tokens"], mode["median_seconds"], mode["repeats"]) <= 0)


def _decode_points(decodes: Sequence[Json], num_speculative_tokens: int) -> Iterator[TimedPoint]:
    for size in decodes:
        if size["next_drafts"] == num_speculative_tokens and size["query_len"] == 1 + num_speculative_tokens:
            yield _point(size["requests"], size["modes"][0])


def _undrafted_points(decodes: Sequence[Json]) -> Iterator[TimedPoint]:
    """Steps of one token a request, without what the drafter does to keep up with them."""
    for size in decodes:
        mode = size["modes"][0]
        if size["next_drafts"] == 0 and size["query_len"] == 1:
            left = mode["median_seconds"] - mode["parts"]["drafter"]
            if left > 0:
                yield _point(size["requests"], {**mode, "median_seconds": left})


def _mixed_steps(decodes: Sequence[Json], mixed: Sequence[Json]) -> MixedSteps | None:
    target = _part_curve(mixed, "target", "tokens")
    by_drafts = {k: [size for size in decodes if size["next_drafts"] == k] for k in {d["next_drafts"] for d in decodes}}
    sampling = {k: _part_curve(sizes, "sampling", "requests") for k, sizes in sorted(by_drafts.items())}
    drafting = {k: _part_curve(sizes, "drafter", "requests") for k, sizes in sorted(by_drafts.items())}
    if target is None or None in sampling.values():
        return None
    return MixedSteps(
        target=target,
        drafter=_part_curve(mixed, "drafter", "tokens"),
        sampling={k: curve for k, curve in sampling.items() if curve is not None},
        drafting={k: curve for k, curve in drafting.items() if curve is not None},
        drafts=max(size["next_drafts"] for size in mixed),
        requests=max(size["requests"] for size in mixed),
    )


def _part_curve(sizes: Sequence[Json], part: str, unit: str) -> StepCurve | None:
    """None where some step has none of it, as where nothing is drafted."""
    seconds = [(size[unit], size["modes"][0]["parts"][part]) for size in sizes]
    if any(took <= 0 for _, took in seconds):
        return None
    return step_curve(TimedPoint(size=at, seconds=took) for at, took in seconds)


def _point(size: int, mode: Json) -> TimedPoint:
    """Its noise is the 95 % interval of the median of repeats whose quartiles lie ``spread_seconds`` apart."""
    sigma = mode["spread_seconds"] / _QUARTILES_OF_SIGMA
    error = _INTERVAL_95 * _MEDIAN_OVER_MEAN * sigma / math.sqrt(mode["repeats"])
    return TimedPoint(size=size, seconds=mode["median_seconds"], noise=error / mode["median_seconds"])


# Whether it holds for a plan

_FREE: Final = frozenset(
    {
        "lowering",
        "remedies",
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--max-model-len",
        "--load-format",
        "--stream-interval",
        "--cudagraph-metrics",
        "--worker-extension-cls",
        "--additional-config",
    }
)
"""Limits and graphs are what curves are read for; weights of any value take the same time, and how often the front end
sends what was generated is none of a step's."""
_DRAFTING_FLAG: Final = "--speculative-config"
_FREE_DRAFTING: Final = frozenset(
    {
        "num_speculative_tokens",
        "num_speculative_tokens_per_batch_size",
        "enable_adaptive_verification",
        "rejection_sample_method",
        "synthetic_acceptance_length",
        "synthetic_acceptance_rates",
        "draft_load_config",
    }
)


def curve_identity(identity: Mapping[str, str]) -> dict[str, str]:
    """Of what an engine was started with, that which the time of a step of a given shape depends on."""
    kept = {name: value for name, value in identity.items() if name not in _FREE}
    drafting = _mapping_in(kept.get(_DRAFTING_FLAG, ""))
    if drafting is not None:
        left = {key: value for key, value in drafting.items() if key not in _FREE_DRAFTING}
        kept[_DRAFTING_FLAG] = json.dumps(left, sort_keys=True)
    return kept


def _mapping_in(text: str) -> dict[str, Any] | None:
    """None where a file says something else: it is then the file of another engine."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
