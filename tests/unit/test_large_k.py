"""A large fixed K at many requests (P110): what the help says is typed, and then it plans."""

from typing import Any

import pytest

from servespec.diagnostics import Diagnostic
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

TIERS = {"dynamic": [{"up_to": 16, "num_speculative_tokens": 7}, {"num_speculative_tokens": 1}]}
ADAPTIVE = {"enable_adaptive_verification": True}
EAGLE = {"method": "eagle3", "model": model_folder("eagle3-draft")}
TWO = {"gpu": "h200", "count": 2}


def spec(drafting: Json, **sections: Any) -> Json:
    given = {"scheduler": {"max_num_seqs": 512}, **sections}
    return spec_of("qwen3-8b", "h200", speculative={**drafting, "num_speculative_tokens": 7}, **given)


def advice(given: Json) -> Diagnostic | None:
    found = [one for one in compiled(given).diagnostics if one.code == "P110"]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("drafting", "sections", "ways"),
    [
        (EAGLE, {}, (TIERS, ADAPTIVE)),
        (EAGLE, {"lora": {"max_loras": 2}}, (TIERS,)),
        (EAGLE, {"hardware": TWO, "parallel": {"pipeline_parallel_size": 2}}, (TIERS,)),
        (EAGLE, {"hardware": {"gpu": "rtx-pro-6000"}}, (TIERS,)),
        (EAGLE, {"attention": {"backend": "FLASHINFER"}}, (TIERS,)),
        ({"method": "ngram"}, {}, (TIERS,)),
        (EAGLE, {"hardware": TWO, "parallel": {"data_parallel_size": 2}}, (ADAPTIVE,)),
        ({"method": "suffix"}, {}, ()),
    ],
)
def test_only_what_the_engine_takes_is_advised_and_it_is_the_end_of_it(
    drafting: Json, sections: Json, ways: tuple[Json, ...]
) -> None:
    found = advice(spec(drafting, **sections))
    assert found is not None
    for way, words in ((TIERS, "speculative.dynamic"), (ADAPTIVE, "enable_adaptive_verification: true")):
        assert (words in found.help) is (way in ways), found.help
    for way in ways:
        assert advice(spec({**drafting, **way}, **sections)) is None
    if not ways:
        assert found.help == "write a smaller K"
