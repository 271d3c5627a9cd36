"""Curves: steps of every batch size with each of several K, timed in one engine as it would serve them.

The engine is started with tiers that make it capture every K up to the widest batch: all but the last request count
belong to the widest K, and each of the others has one count above it.  Its workers then time steps as for
`servespec steps`, each in the mode that serves it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.extension.step_times_batches import Wanted
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import read_spec
from servespec.runtime.step_times import AUTO, wanted_of
from servespec.runtime.step_times_rules import STEPS_DESIGN
from servespec.schema.overrides import with_overrides
from servespec.schema.source import SpecSource

_K_OPTION: Final = "--num-speculative-tokens"
_ENGINE_TIERS: Final = "num_speculative_tokens_per_batch_size"
_HALVES_FROM: Final = 8
"""From here on there is a size between two powers of two."""


def plan_to_profile(spec: str, drafts_asked: str, options: Options) -> tuple[Plan, tuple[int, ...]]:
    """The plan of a launch in which every wanted K can be timed at every batch of ``spec``, and those K.

    Raises SpecError where the spec is refused, or where its engine does not draft a K of its own for each batch.
    """
    # Once: standard input has nothing for a second time.
    source = read_spec(spec)
    options = replace(options, settings=(*options.settings, *_fixed(source, options)))
    base = _compiled(source, options)
    most = base.resolution.drafting.num_speculative_tokens.value
    drafts = _drafts(drafts_asked, most)
    if most == 0:
        return base, drafts
    if base.resolution.request.spec.parallel.data_parallel_size > 1:
        raise SpecError([_one_k(base, "its replicas take no tiers")])
    seqs = int(base.resolution.limits.max_num_seqs.value)
    settings = (*options.settings, *_with_tiers(drafts, seqs), *_unbounded(base))
    made = _compiled(source, replace(options, settings=settings))
    faults = tuple(_faults(made))
    if faults:
        raise SpecError(faults)
    return made, drafts


def _compiled(source: SpecSource, options: Options) -> Plan:
    return compile_spec(compile_request(with_overrides(source, options.settings), options))


def _fixed(source: SpecSource, options: Options) -> Iterator[str]:
    """Without what follows the load; a curve that the spec names for it need not be there yet."""
    speculative = with_overrides(source, options.settings).data.get("speculative")
    for name in ("dynamic", _ENGINE_TIERS, "load_aware"):
        if isinstance(speculative, dict) and name in speculative:
            yield f"speculative.{name}=null"


def _with_tiers(drafts: Sequence[int], max_num_seqs: int) -> Iterator[str]:
    widest_first = sorted(drafts, reverse=True)
    tiers = [
        f"{{up_to: {max_num_seqs + above}, num_speculative_tokens: {k}}}" for above, k in enumerate(widest_first[:-1])
    ]
    tiers.append(f"{{num_speculative_tokens: {widest_first[-1]}}}")
    yield f"speculative.dynamic=[{', '.join(tiers)}]"
    yield f"scheduler.max_num_seqs={max_num_seqs + len(widest_first) - 1}"


def _unbounded(plan: Plan) -> Iterator[str]:
    """The bound is on the graphs of the tiers that will be served; here are those of every K at every batch.

    The whole device stands for no bound: without the field the engine's own reaches would be taken, not the widest.
    """
    if plan.resolution.request.spec.memory.max_cudagraph_memory is not None:
        yield f"memory.max_cudagraph_memory={plan.resolution.device.total_memory_bytes}"


def _faults(plan: Plan) -> Iterator[Diagnostic]:
    source, frame = plan.resolution.request.source, plan.resolution.frame
    if frame.adaptive_verification:
        place = source.place_of(("speculative", "enable_adaptive_verification"))
        message = "a curve is of steps with a fixed K, and this engine chooses how many drafts it verifies"
        yield STEPS_DESIGN.at(place, message, "pass `--set speculative.enable_adaptive_verification=false`")
    elif not frame.tiers:
        yield _one_k(plan, "`servespec plan` says why")


def _one_k(plan: Plan, why: str) -> Diagnostic:
    place = plan.resolution.request.source.place_of_key(("speculative",))
    message = "this engine does not draft a K of its own for each batch, so that one launch times one K"
    return STEPS_DESIGN.at(place, message, f"{why}; take `servespec steps` for the one K")


def _drafts(asked: str, most: int) -> tuple[int, ...]:
    """By default K and its halves down to 0, rounded down: 7, 3, 1, 0."""
    if asked == AUTO:
        halves = [most]
        while halves[-1]:
            halves.append(halves[-1] // 2)
        return tuple(sorted(halves))
    words = [word.strip() for word in asked.split(",")]
    for word in words:
        if not re.fullmatch(r"\d{1,4}", word):
            message = f"`{word}` is no number of drafts"
            raise SpecError([STEPS_DESIGN.at(Place(_K_OPTION), message, f"write `{_K_OPTION} 0,1,3,7`")])
        if int(word) > most:
            message = f"the spec drafts at most {most}, not {word}"
            help_text = f"lower it, or pass `--set speculative.num_speculative_tokens={word}`"
            raise SpecError([STEPS_DESIGN.at(Place(_K_OPTION), message, help_text)])
    return tuple(sorted(set(map(int, words))))


def wanted_profile(plan: Plan, drafts: Sequence[int], *, requests: str, tokens: str, repeats: int) -> Wanted:
    """What to time.  Raises SpecError as for `servespec steps`."""
    limits = plan.resolution.limits
    widest = int(limits.max_num_seqs.value) - (len(drafts) - 1 if plan.resolution.frame.tiers else 0)
    asked = wanted_of(plan, requests=requests, tokens=tokens, repeats=repeats, most_requests=widest)
    return replace(
        asked,
        requests=asked.requests or curve_sizes(widest),
        tokens=asked.tokens or curve_sizes(int(limits.max_num_batched_tokens.value)),
        drafts=tuple(drafts),
        served_only=True,
    )


def curve_sizes(most: int) -> tuple[int, ...]:
    """Powers of two, from eight on a size between two of them, and ``most`` itself."""
    sizes = {most}
    power = 1
    while power <= most:
        sizes.add(power)
        between = power + power // 2
        if power >= _HALVES_FROM and between <= most:
            sizes.add(between)
        power *= 2
    return tuple(sorted(sizes))
