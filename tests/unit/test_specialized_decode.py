"""`decode_backend: latency_specialized` in a spec: what a plan says of it, and where it is refused."""

from typing import Any

import pytest

from servespec.compiler.pipeline import compile_spec
from servespec.diagnostics import Diagnostic, SpecError
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import read_spec
from tests.plans import compiled, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

PRESET = "preset:deepseek-v4.1-flash__gb300x4__latency"


def findings(*settings: str) -> list[Diagnostic]:
    source = read_spec(PRESET, settings)
    try:
        found = compile_spec(compile_request(source, Options(settings=settings))).diagnostics
    except SpecError as error:
        found = error.diagnostics
    return [one for one in found if one.code in ("R120", "P148")]


def test_the_preset_for_one_request_has_all_that_it_needs() -> None:
    (note,) = findings()

    assert note.code == "P148"
    assert "steps of up to 64 requests (384 tokens)" in note.message
    assert "stock layers" not in note.message
    assert "NVLink multicast" in note.help
    assert note.place.range is not None


def test_decode_graphs_that_are_too_wide_for_it_are_counted_with_the_cap_that_leaves_them_out() -> None:
    (note,) = findings("scheduler.max_num_seqs=128", "compilation.max_decode_cudagraph_capture_requests=128")

    assert "decode graphs are wider and run the stock layers" in note.message
    assert "`max_decode_cudagraph_capture_requests: 64` leaves the wider ones out" in note.help
    (capped,) = findings("scheduler.max_num_seqs=128", "compilation.max_decode_cudagraph_capture_requests=64")
    assert "leaves the wider ones out" not in capped.help  # what is left of them is the one list's


def test_everything_that_is_missing_is_named_at_once() -> None:
    (refusal,) = findings(
        "hardware.gpu=gb200", "memory.kv_cache_dtype=auto", "speculative.enable_adaptive_verification=true"
    )

    assert (refusal.code, refusal.severity) == ("R120", "error")
    for words in ("compute capability 10.3", "DSpark without adaptive verification", "an fp8 KV cache"):
        assert words in refusal.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("latency_specialized", "has no specialised decode of `Qwen3ForCausalLM`"),
        ("fastest", "the engine has no decode backend `fastest`"),
    ],
)
def test_what_the_engine_would_ignore_or_end_over_is_refused(value: str, message: str) -> None:
    given: dict[str, Any] = spec_of("qwen3-8b", "h200")
    given["engine"]["args"] = {"additional-config": {"decode_backend": value}}

    with pytest.raises(SpecError) as caught:
        compiled(given)

    assert [one.code for one in caught.value.diagnostics] == ["R120"]
    assert message in caught.value.diagnostics[0].message


def test_auto_is_the_engines_own() -> None:
    given: dict[str, Any] = spec_of("qwen3-8b", "h200")
    given["engine"]["args"] = {"additional-config": {"decode_backend": "auto"}}

    assert [one.code for one in compiled(given).diagnostics if one.code == "R120"] == []
