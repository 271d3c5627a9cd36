"""A help names the section too where the spec has none, so that what it says can be typed at the top level."""

import re
from typing import Any

import pytest

from servespec.diagnostics import Diagnostic, SpecError
from servespec.schema.source import read_source
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

DRAFTING = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}


def found(spec: Json) -> tuple[Diagnostic, ...]:
    try:
        return compiled(spec).diagnostics
    except SpecError as error:
        return error.diagnostics


def typed(finding: Diagnostic) -> Json:
    """What stands first in backticks in the help, as a spec is read."""
    (text, *_) = re.findall("`([^`]*)`", finding.help)
    return dict(read_source(text, "help").data)


@pytest.mark.parametrize(
    ("code", "words", "sections"),
    [
        (
            "P102",
            "after chosen drafts",
            {
                "scheduler": {"max_num_seqs": 256},
                "speculative": {**DRAFTING, "load_aware": {"from_requests": 64}},
            },
        ),
        (
            "R101",
            "with LoRA and drafting",
            {"speculative": {**DRAFTING, "num_speculative_tokens": 20}, "lora": {"max_loras": 1}},
        ),
        (
            "R101",
            "needs full graphs",
            {"speculative": {**DRAFTING, "enable_adaptive_verification": True}, "optimization_level": 0},
        ),
    ],
)
def test_what_a_help_says_is_typed_where_no_section_is(code: str, words: str, sections: dict[str, Any]) -> None:
    spec = spec_of("qwen3-8b", "h200", **sections)
    told = {one.code: one for one in found(spec) if words in one.message}
    then = found({**spec, **typed(told[code])})

    assert [one.message for one in then if words in one.message or one.code.startswith("S")] == []


@pytest.mark.parametrize(
    ("more", "written"),
    [({}, 3), ({"dynamic": [{"up_to": 8, "num_speculative_tokens": 5}, {"num_speculative_tokens": 1}]}, 5)],
)
def test_a_missing_k_is_told_as_it_is_typed(more: Json, written: int) -> None:
    drafting = {"method": "eagle3", "model": model_folder("eagle3-draft"), **more}
    (told,) = [one for one in found(spec_of("qwen3-8b", "h200", speculative=drafting)) if one.code == "R107"]
    then = found(spec_of("qwen3-8b", "h200", speculative={**drafting, **typed(told)}))

    assert typed(told) == {"num_speculative_tokens": written}
    assert "R107" not in {one.code for one in then}


TIERS_BELOW_K = {"dynamic": [{"up_to": 8, "num_speculative_tokens": 3}, {"num_speculative_tokens": 1}]}


def test_a_k_that_no_tier_drafts_is_lowered_to_the_deepest() -> None:
    drafting = {**DRAFTING, **TIERS_BELOW_K}
    (told,) = [one for one in found(spec_of("qwen3-8b", "h200", speculative=drafting)) if one.code == "P156"]
    then = found(spec_of("qwen3-8b", "h200", speculative={**drafting, **typed(told)}))

    assert typed(told) == {"num_speculative_tokens": 3}
    assert not {"P156", "S211"} & {one.code for one in then}


def test_a_k_that_no_tier_drafts_is_lowered_to_a_multiple_of_mtp_modules() -> None:
    drafting = {"method": "mtp", "num_speculative_tokens": 9, "dynamic": [{"num_speculative_tokens": 4}]}
    (told,) = [one for one in found(spec_of("three-mtp-modules", "h200", speculative=drafting)) if one.code == "P156"]
    then = found(spec_of("three-mtp-modules", "h200", speculative={**drafting, **typed(told)}))

    assert typed(told) == {"num_speculative_tokens": 6}
    assert not {"P156", "R109"} & {one.code for one in then}


def test_a_k_of_a_tier_that_no_batch_reaches_is_not_above_every_tier() -> None:
    """To lower it would be refused while the tier stands."""
    tiers = [{"up_to": 600, "num_speculative_tokens": 3}, {"num_speculative_tokens": 7}]
    drafting = {**DRAFTING, "dynamic": tiers}
    told = found(spec_of("qwen3-8b", "h200", speculative=drafting, scheduler={"max_num_seqs": 512}))
    codes = {one.code for one in told}

    assert "P119" in codes
    assert "P156" not in codes


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_cap_in_place_of_legacy_sizes_is_typed_without_them(adaptive: bool) -> None:
    tiers = [{"up_to": 8, "num_speculative_tokens": 7}, {"num_speculative_tokens": 3}]
    drafting = {**DRAFTING, "dynamic": tiers, "enable_adaptive_verification": adaptive}
    given = spec_of("qwen3-8b", "h200", speculative=drafting, compilation={"max_cudagraph_capture_size": 64})
    told = next(one for one in found(given) if one.code == "P101")
    other = re.search(r"or write `(\w+): (\d+)`( instead of the legacy fields)?", told.help)
    assert other is not None
    kept = {} if other[3] else given["compilation"]

    then = found({**given, "compilation": {**kept, other[1]: int(other[2])}})

    assert [one.code for one in then if one.severity == "error" or one.message == told.message] == []
