"""Every change that a verdict proposes is written into the spec, which then fits, and with one step less does not."""

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from servespec.compiler.pipeline import compile_spec
from servespec.diagnostics import Diagnostic, Severity, SpecError
from servespec.runtime.gather import Options, compile_request
from tests.plans import Json, model_folder, source_of, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

VERDICTS = {"P126", "P127", "P132"}
_FIELD = re.compile(r"`(\w+)\.(\w+): ([^`]+)`")
_INSTEAD = re.compile(r"in place of ((?:`\w+`(?: and )?)+)")

V4: Json = {
    "hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512,
    "q_lora_rank": 1024, "index_topk": 512, "n_routed_experts": 256, "hc_mult": 4,
    "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 4],
}  # fmt: skip
EAGLE3: Json = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}


@st.composite
def tight_specs(draw: st.DrawFn) -> Json:
    """Specs near the edge of a device's memory: long contexts, wide graphs, pinned caches, high shares."""
    model, gpu, longest, speculative, overrides = draw(
        st.sampled_from(
            (
                ("llama-3.1-8b", "l4", 131_072, None, {}),
                ("llama-3.1-8b", "a10", 131_072, None, {}),
                ("qwen3-8b", "l4", 40_960, EAGLE3, {}),
                ("qwen3-8b", "h200", 40_960, EAGLE3, {}),
                ("qwen3-30b-a3b", "a100-80g", 40_960, None, {}),
                ("deepseek-v4-flash", "gb200", 1 << 20, {"method": "dspark", "num_speculative_tokens": 7}, V4),
            )
        )
    )
    memory = draw(
        st.fixed_dictionaries(
            {}, optional={"gpu_memory_utilization": st.sampled_from((0.5, 0.8, 0.9, 0.95, 0.97, 0.99))}
        )
    )
    if draw(st.integers(0, 3)) == 0:
        memory = {"kv_cache_memory_bytes": f"{draw(st.integers(1, 130))}GiB"}
    caps: dict[str, st.SearchStrategy[Any]] = {
        "max_prefill_cudagraph_capture_tokens": st.integers(1, 8192),
        "max_decode_cudagraph_capture_requests": st.integers(1, 512),
        "max_decode_cudagraph_capture_tokens": st.sampled_from((2048, 4096, "unlimited")),
    }
    return spec_of(
        model,
        gpu,
        scheduler={"max_num_seqs": draw(st.sampled_from((64, 512, 1024))), "max_num_batched_tokens": 8192},
        speculative=speculative,
        compilation=draw(st.fixed_dictionaries({}, optional=caps)),
        memory=memory,
    ) | {
        "model": {
            "id": model_folder(model),
            "max_model_len": draw(st.integers(longest // 16, longest)),
            "hf_overrides": overrides,
        }
    }


def findings_of(spec: Json) -> tuple[Diagnostic, ...]:
    try:
        return compile_spec(compile_request(source_of(spec), Options())).diagnostics
    except SpecError as error:
        return tuple(error.diagnostics)


def verdict_of(spec: Json) -> Diagnostic | None:
    return next((one for one in findings_of(spec) if one.code in VERDICTS), None)


def changes_of(help_text: str) -> list[str]:
    return help_text.removeprefix("write ").split(", or ") if help_text.startswith("write ") else []


def changed(spec: Json, change: str) -> Json:
    """The spec with a change as its words say it."""
    taken_out = _INSTEAD.search(change)
    names = re.findall(r"\w+", taken_out[1].replace(" and ", " ")) if taken_out else []
    result = {**spec, "compilation": {k: v for k, v in spec["compilation"].items() if k not in names}}
    for section, field, value in _FIELD.findall(change):
        number = value if not re.fullmatch(r"[\d.]+", value) else float(value) if "." in value else int(value)
        result[section] = {**result.get(section, {}), field: number}
    return result


def one_step_less(spec: Json, change: str) -> Json | None:
    """The spec with a change that is one step smaller; None where that is no change, or the field has no such steps."""
    section, field, value = _FIELD.findall(change)[0]
    written = spec.get(section, {}).get(field, 0.92)
    if field == "gpu_memory_utilization":
        step = 0.01 if float(value) > written else -0.01
        is_more = abs(float(value) - written) > abs(step) * 1.5
        return changed(spec, f"`{section}.{field}: {float(value) - step:.2f}`") if is_more else None
    if field == "kv_cache_memory_bytes":
        steps, most = int(value.removesuffix("MiB")), int(written.removesuffix("GiB")) << 10
        return changed(spec, f"`{section}.{field}: {steps - 1 if steps > most else steps + 1}MiB`")
    return changed(spec, f"`{section}.{field}: {int(value) + 1}`") if field == "max_model_len" else None


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(tight_specs())
def test_every_proposed_change_fits_and_is_the_smallest(spec: Json) -> None:
    verdict = verdict_of(spec)
    assume(verdict is not None)
    assert verdict is not None

    for change in changes_of(verdict.help):
        assert _FIELD.search(change), change
        found = findings_of(changed(spec, change))
        left = [one for one in found if one.code in VERDICTS or one.severity is Severity.ERROR]
        assert not left, (change, [(one.code, one.message) for one in left])
        less = one_step_less(spec, change)
        assert less is None or verdict_of(less) is not None, change


def test_each_knob_is_proposed_somewhere() -> None:
    """No example of the property is needed to see each of them."""
    wide = {"max_prefill_cudagraph_capture_tokens": 8192, "max_decode_cudagraph_capture_tokens": "unlimited"}
    llama = {"id": model_folder("llama-3.1-8b")}
    specs: list[Json] = [
        spec_of("llama-3.1-8b", "l4", model={**llama, "max_model_len": 34_000}, memory={"gpu_memory_utilization": 0.9}),
        spec_of("llama-3.1-8b", "h200", memory={"kv_cache_memory_bytes": "125GiB"}),
        spec_of("llama-3.1-8b", "h200", memory={"gpu_memory_utilization": 0.2}),
        spec_of(
            "qwen3-8b", "l4", model={"id": model_folder("qwen3-8b"), "max_model_len": 4096}, speculative=EAGLE3,
            scheduler={"max_num_seqs": 64, "max_num_batched_tokens": 8192}, compilation=wide,
        ),
    ]  # fmt: skip
    fields: Counter[str] = Counter()
    for spec in specs:
        verdict = verdict_of(spec)
        assert verdict is not None, spec
        fields.update(field for _, field, _ in _FIELD.findall(verdict.help))

    assert set(fields) == {
        "gpu_memory_utilization", "kv_cache_memory_bytes", "max_model_len", "tensor_parallel_size", "count",
        "max_cudagraph_memory",
    }  # fmt: skip
