"""The rules of tiers and drafts that need no model facts."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from servespec.diagnostics import Diagnostic, Related
from servespec.schema import spec_rules as rules
from servespec.schema.data_paths import value_at
from servespec.schema.source import SpecSource
from servespec.schema.spec import ServingSpec, SpeculativeSection

_ENGINE_TIERS = "num_speculative_tokens_per_batch_size"


def speculative_findings(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    """All findings about the speculative section."""
    yield from _verification_grid(spec, source)
    section = spec.speculative
    if section is None:
        return
    yield from _tiers_twice(section, source)
    yield from _tier_order(section, source)
    yield from _tier_width(section, source)
    yield from _engine_tiers(section, source)
    yield from _tiers_of_replicas(spec, section, source)
    yield from _curve_tiers(section, source)
    yield from _load_aware(spec, section, source)
    yield from _without_confidences(section, source)
    yield from _draft_parallel(spec, section, source)


def _verification_grid(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    is_on = spec.speculative is not None and spec.speculative.verifies_adaptively
    if spec.compilation.adaptive_verification_grid is not None and not is_on:
        place = source.place_of_key(("compilation", "adaptive_verification_grid"))
        message = "adaptive verification is off, so its grid is captured nowhere"
        yield rules.S229.at(place, message, "delete it, or write `speculative.enable_adaptive_verification: true`")


def _tiers_twice(section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    if section.dynamic and section.engine_fields.get(_ENGINE_TIERS) is not None:
        related = [Related("the same in the spec's form", source.place_of_key(("speculative", "dynamic")))]
        place = source.place_of_key(("speculative", _ENGINE_TIERS))
        yield rules.S206.at(place, "the tiers are written twice", f"delete `{_ENGINE_TIERS}`", related)


def _tier_order(section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    tiers = section.written_tiers
    before = 0
    for at, tier in enumerate(tiers):
        place = source.place_of(("speculative", "dynamic", at))
        last = at == len(tiers) - 1
        if tier.up_to is None and not last:
            yield rules.S211.at(place, f"tier {at + 1} has no `up_to` and is not the last", "write its largest batch")
        if tier.up_to is not None and last:
            message = f"the last tier ends at `{tier.up_to}`; larger batches have none"
            yield rules.S211.at(place, message, "delete its `up_to`, or add a tier without one")
        if tier.up_to is not None and tier.up_to <= before:
            yield rules.S211.at(
                place, f"`up_to: {tier.up_to}` does not exceed the `{before}` before it", "sort the tiers"
            )
        before = max(before, tier.up_to or 0)


def _tier_width(section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    most = section.num_speculative_tokens
    for at, tier in enumerate(section.written_tiers):
        if most is not None and tier.num_speculative_tokens > most:
            path = ("speculative", "dynamic", at, "num_speculative_tokens")
            related = [Related("K", source.place_of(("speculative", "num_speculative_tokens")))]
            message = f"the tier drafts `{tier.num_speculative_tokens}`, above `num_speculative_tokens: {most}`"
            yield rules.S211.at(source.place_of(path), message, f"raise K to `{tier.num_speculative_tokens}`", related)


def _engine_tiers(section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    """The engine's own notation: inclusive [first, last, K] ranges.

    Source: vllm/v1/spec_decode/dynamic/utils.py: validate_and_normalize_dynamic_sd_schedule.
    """
    ranges = section.engine_fields.get(_ENGINE_TIERS)
    if ranges is None:
        return
    fault = _engine_tiers_fault(ranges)
    if fault:
        help_text = "write `[[first, last, K], ...]`, from 1 and without overlap, or the tiers under `dynamic`"
        yield rules.S211.at(source.place_of(("speculative", _ENGINE_TIERS)), fault, help_text)


def _engine_tiers_fault(ranges: object) -> str | None:
    if not isinstance(ranges, list) or not ranges:
        return f"`{_ENGINE_TIERS}` is not a list of ranges"
    for entry in ranges:
        if not isinstance(entry, list) or len(entry) != 3 or not all(type(part) is int for part in entry):
            return "a range is not three whole numbers `[first, last, K]`"
        first, last, k = entry
        if not (1 <= first <= last and k >= 0):
            return f"the range `{entry}` is not ascending from 1 with a K of 0 or more"
    ordered = sorted(ranges)
    if ordered[0][0] != 1:
        return f"the first range starts at `{ordered[0][0]}`, so smaller batches have no K"
    for before, after in pairwise(ordered):
        if after[0] <= before[1]:
            return f"the ranges `{before}` and `{after}` overlap"
    return None


def _tiers_of_replicas(spec: ServingSpec, section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    has_tiers = section.dynamic is not None or section.engine_fields.get(_ENGINE_TIERS) is not None
    if spec.parallel.data_parallel_size == 1 or not has_tiers:
        return
    name = "dynamic" if section.dynamic is not None else _ENGINE_TIERS
    related = [Related("replicas", source.place_of_key(("parallel", "data_parallel_size")))]
    message = "replicas count their requests apart, so that the engine drops their tiers"
    help_text = f"delete `{name}`, or serve each replica by itself"
    yield rules.S236.at(source.place_of_key(("speculative", name)), message, help_text, related)


_CURVE: Final = ("speculative", "dynamic")
_ACCEPTANCE: Final = ("acceptance_rates", "acceptance_length")
_RATES_HELP: Final = "`servespec acceptance URL` prints the rates of a running server"


def _curve_tiers(section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    """What a curve cannot choose without: how often drafts are accepted, and sizes of K that can be served."""
    curve, most = section.curve_tiers, section.num_speculative_tokens
    if curve is None:
        return
    rates, length = curve.acceptance_rates, curve.acceptance_length
    is_said = any(value_at(source.data, (*_CURVE, name)) is not None for name in _ACCEPTANCE)
    if not is_said and section.engine_fields.get("rejection_sample_method") != "synthetic":
        message = "a curve chooses K by how often drafts are accepted, and nothing says so"
        help_text = f"write `acceptance_rates` or `acceptance_length` beside `from_curve`; {_RATES_HELP}"
        yield rules.S228.at(source.place_of_key(_CURVE), message, help_text)
    if rates is not None and length is not None:
        related = [Related("the rates", source.place_of_key((*_CURVE, "acceptance_rates")))]
        place = source.place_of_key((*_CURVE, "acceptance_length"))
        yield rules.S228.at(place, "rates and length both say how often drafts are accepted", "delete one", related)
    yield from _acceptance_rates(rates or (), most, source)
    if length is not None and most is not None and length > most + 1:
        message = f"one step of K = {most} gains at most {most + 1} tokens, not `{length:g}`"
        place = source.place_of((*_CURVE, "acceptance_length"))
        yield rules.S228.at(place, message, f"write a number from 1 to {most + 1}; {_RATES_HELP}")
    for at, k in enumerate(curve.candidates or ()):
        if most is not None and k > most:
            related = [Related("K", source.place_of(("speculative", "num_speculative_tokens")))]
            message = f"the candidate `{k}` is above `num_speculative_tokens: {most}`"
            place = source.place_of((*_CURVE, "candidates", at))
            yield rules.S211.at(place, message, f"raise K to `{k}`, or delete the candidate", related)


def _acceptance_rates(rates: Sequence[float], most: int | None, source: SpecSource) -> Iterator[Diagnostic]:
    for at, (before, after) in enumerate(pairwise(rates), start=1):
        if after > before:
            message = f"position {at + 1} is accepted more often (`{after:g}`) than the one before it (`{before:g}`)"
            help_text = f"write shares of all drafts, as the engine's metrics count them; {_RATES_HELP}"
            yield rules.S228.at(source.place_of((*_CURVE, "acceptance_rates", at)), message, help_text)
    if rates and most is not None and len(rates) < most:
        message = f"there are rates of {len(rates)} positions, and K is `{most}`"
        place = source.place_of((*_CURVE, "acceptance_rates"))
        yield rules.S228.at(place, message, f"write one for each of {most} drafts; {_RATES_HELP}")


_LOAD_AWARE: Final = ("speculative", "load_aware")


def _load_aware(spec: ServingSpec, section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    """What adaptive verification from a number of requests on cannot go with."""
    asked = section.load_aware
    if asked is None:
        return
    place = source.place_of((*_LOAD_AWARE, "from_requests"))
    if section.dynamic is not None or section.engine_fields.get(_ENGINE_TIERS) is not None:
        tiers = "dynamic" if section.dynamic is not None else _ENGINE_TIERS
        related = [Related("the tiers", source.place_of_key(("speculative", tiers)))]
        message = "tiers and adaptive verification both decide how many drafts a batch verifies"
        yield rules.S230.at(source.place_of_key(_LOAD_AWARE), message, f"delete `load_aware`, or `{tiers}`", related)
    if "enable_adaptive_verification" in section.model_fields_set and not section.enable_adaptive_verification:
        place_off = source.place_of(("speculative", "enable_adaptive_verification"))
        message = "`load_aware` is adaptive verification at some loads, and it is switched off here"
        yield rules.S230.at(place_off, message, "delete `enable_adaptive_verification`, or `load_aware`")
    if spec.parallel.data_parallel_size > 1:
        related = [Related("replicas", source.place_of(("parallel", "data_parallel_size")))]
        message = "replicas count their requests apart, and would run the same step in two ways"
        yield rules.S230.at(source.place_of_key(_LOAD_AWARE), message, "delete `load_aware`", related)
    if asked.from_requests == "auto" and asked.from_curve is None:
        help_text = "write `from_curve: FILE` beside it, or a number of requests"
        yield rules.S230.at(place, "`auto` is the knee of a curve, and no curve is named", help_text)
    elif asked.from_requests != "auto" and asked.from_curve is not None:
        curve_place = source.place_of_key((*_LOAD_AWARE, "from_curve"))
        message = "the curve decides nothing: the number of requests is written"
        yield rules.S230.at(curve_place, message, "delete `from_curve`, or write `from_requests: auto`")
    if asked.from_requests == 0:
        yield rules.S230.at(place, "a batch has 1 request at least", "write 2 or more")
    if asked.from_requests == 1:
        message = "adaptive verification at every load is slower than all drafts at one request"
        yield rules.S231.at(place, message, "write 2 or more, or `enable_adaptive_verification: true` if that is meant")


_WITHOUT_CONFIDENCES: Final = frozenset({"ngram", "ngram_gpu", "extract_hidden_states"})
"""Methods that say of no draft how likely it is; a draft model named `ngram` is the first of them.

Source: vllm/v1/worker/gpu/spec_decode/speculator.py: DraftModelSpeculator._maybe_predict_acceptance, which neither
NgramGPUSpeculator nor ExtractHiddenStatesSpeculator calls.
"""


def _without_confidences(section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    key = "method" if section.method is not None else "model"
    method = section.method or section.model
    if not section.verifies_adaptively or method not in _WITHOUT_CONFIDENCES:
        return
    switch = "enable_adaptive_verification" if section.load_aware is None else "load_aware"
    related = [Related("the method", source.place_of(("speculative", key)))]
    message = f"`{method}` says of no draft how likely it is, and adaptive verification chooses by that"
    yield rules.S232.at(source.place_of_key(("speculative", switch)), message, f"delete `{switch}`", related)


def _draft_parallel(spec: ServingSpec, section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    """Source: vllm/config/speculative.py: SpeculativeConfig._verify_and_get_draft_tp."""
    draft = section.engine_fields.get("draft_tensor_parallel_size")
    target = spec.parallel.tensor_parallel_size
    if type(draft) is int and draft not in (1, target):
        place = source.place_of(("speculative", "draft_tensor_parallel_size"))
        related = [Related(f"the target has `{target}`", source.place_of(("parallel", "tensor_parallel_size")))]
        help_text = "write 1" if target == 1 else f"write 1 or {target}"
        yield rules.S221.at(place, f"the draft has `{draft}` tensor-parallel ranks", help_text, related)
