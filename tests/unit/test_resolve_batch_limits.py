"""Default batch limits, by hand from the engine's rules, and what the engine refuses about them."""

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts.devices import (
    DEVICE_SCHEMA,
    DEVICES,
    GIB_BYTES,
    device_from_json,
    device_to_json,
    is_sm100,
)
from servespec.compiler.resolve.batch_limits import (
    ACTIVE,
    SCHEDULED,
    TOKENS,
    BatchLimits,
    BatchRequest,
    Drafting,
    num_lookahead_tokens,
    num_new_draft_slots,
    resolve_batch_limits,
)
from servespec.compiler.resolve.step import Weight, refused
from servespec.provenance import Origin


def limits(gpu: str = "h200", version: str = "0.33.0", **changes: object) -> BatchLimits:
    asked = {"max_model_len_tokens": 32768, **changes}
    return resolve_batch_limits(BatchRequest(device=DEVICES[gpu], version=version, **asked))  # type: ignore[arg-type]


def numbers(found: BatchLimits) -> tuple[int, int]:
    return found.max_num_seqs.value, found.max_num_batched_tokens.value


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("gb200", (1024, 16384)),
        ("b300", (1024, 16384)),
        ("h200", (1024, 8192)),
        ("h100", (1024, 8192)),
        ("rtx-pro-6000", (1024, 8192)),
        ("a100-80", (256, 2048)),
        ("a100-40", (256, 2048)),
        ("l4", (256, 2048)),
        ("gb10", (256, 2048)),
        ("cpu", (128, 2048)),
    ],
)
def test_defaults_by_device(gpu: str, expected: tuple[int, int]) -> None:
    assert numbers(limits(gpu)) == expected


def test_0_32_knows_no_rule_for_gb10() -> None:
    assert numbers(limits("gb10", "0.32.0")) == (1024, 8192)


def test_cpu_defaults_grow_with_the_ranks() -> None:
    found = limits("cpu", tensor_parallel_size=2, pipeline_parallel_size=2)

    assert numbers(found) == (512, 8192)
    assert found.max_num_seqs.because == "the engine's CPU default for 4 rank(s)"


def test_what_the_spec_sets_stands() -> None:
    found = limits(max_num_seqs=17, max_num_batched_tokens=333, performance_mode="throughput")

    assert numbers(found) == (17, 333)
    assert found.max_num_seqs.origin is Origin.SPEC
    assert found.steps == ()


def test_throughput_doubles_only_what_is_not_set() -> None:
    assert numbers(limits("gb200", performance_mode="throughput")) == (2048, 32768)
    assert numbers(limits("gb200", performance_mode="throughput", max_num_seqs=64)) == (64, 32768)


def test_batched_experts_take_256_tokens_and_as_many_requests() -> None:
    experts = {"enable_expert_parallel": True, "data_parallel_size": 2, "all2all_backend": "nixl_ep"}

    assert numbers(limits(**experts)) == (256, 256)
    assert numbers(limits(**experts, performance_mode="throughput")) == (512, 512)
    assert numbers(limits(**{**experts, "data_parallel_size": 1})) == (1024, 8192)
    assert numbers(limits(**{**experts, "all2all_backend": "deepep_high_throughput"})) == (1024, 8192)


def test_without_chunked_prefill_a_step_holds_the_longest_prompt() -> None:
    assert numbers(limits(enable_chunked_prefill=False)) == (1024, 32768)
    assert numbers(limits(enable_chunked_prefill=False, max_model_len_tokens=4096)) == (1024, 8192)


def test_tokens_do_not_exceed_all_contexts_nor_requests_the_tokens() -> None:
    assert numbers(limits(max_model_len_tokens=4)) == (1024, 4096)
    assert numbers(limits(max_model_len_tokens=4, max_num_seqs=8)) == (8, 32)
    assert numbers(limits(max_num_batched_tokens=100)) == (100, 100)


def test_one_item_of_a_prefix_lm_raises_the_default() -> None:
    found = limits(is_multimodal_prefix_lm=True, prefix_lm_item_tokens=9000)

    assert numbers(found) == (1024, 9000)
    assert [(step.before, step.after) for step in found.steps] == [("max_num_batched_tokens=8192", "9000")]


def test_an_unknown_item_is_said_to_be_unknown() -> None:
    found = limits(is_multimodal_prefix_lm=True)

    assert [(finding.field, finding.weight) for finding in found.findings] == [(TOKENS, Weight.UNKNOWN)]
    assert limits(is_multimodal_prefix_lm=True, max_num_batched_tokens=4096).findings == ()


def test_fewer_tokens_than_requests_is_refused() -> None:
    found = limits(max_num_seqs=512, max_num_batched_tokens=256)

    assert [(finding.field, finding.because) for finding in refused(found.findings)] == [
        (TOKENS, "`256` is below max_num_seqs `512`")
    ]


def test_fewer_tokens_than_the_context_is_refused_without_chunks() -> None:
    found = limits(max_num_batched_tokens=2048, max_num_seqs=8, enable_chunked_prefill=False)

    assert [finding.because for finding in refused(found.findings)] == [
        "`2048` is below max_model_len `32768` and chunked prefill is off"
    ]


def test_active_requests_above_all_requests_are_refused() -> None:
    found = limits(max_num_seqs=64, max_num_active_seqs=65)

    assert [finding.field for finding in refused(found.findings)] == [ACTIVE]
    assert found.max_num_active_seqs.value == 65


def test_tokens_beyond_all_contexts_are_warned_of() -> None:
    found = limits(max_num_batched_tokens=8192, max_num_seqs=2, max_model_len_tokens=1024)

    assert [(finding.field, finding.weight) for finding in found.findings] == [(TOKENS, Weight.WARNED)]


def test_lora_with_drafts_needs_every_draft_of_every_request() -> None:
    drafting = Drafting(method="eagle3", num_speculative_tokens=7)

    exact = limits(drafting=drafting, has_lora=True, max_num_seqs=1024)
    short = limits(drafting=drafting, has_lora=True, max_num_seqs=1025)

    assert refused(exact.findings) == ()
    assert [finding.because for finding in refused(short.findings)] == [
        "with LoRA and drafting `8192` is below max_num_seqs * (1 + K) = 8200"
    ]


@pytest.mark.parametrize(
    ("method", "anchor", "expected"),
    [
        ("eagle3", True, 7),
        ("mtp", True, 7),
        ("draft_model", True, 7),
        ("dspark", True, 7),
        ("dspark", False, 8),
        ("dflash", True, 8),
        ("ngram", True, 0),
    ],
)
def test_lookahead_tokens(method: str, anchor: bool, expected: int) -> None:
    drafting = Drafting(method=method, num_speculative_tokens=7, sample_from_anchor=anchor)

    assert num_lookahead_tokens(drafting) == expected


@pytest.mark.parametrize(
    ("method", "parallel", "expected"),
    [
        ("eagle3", False, 0),
        ("eagle3", True, 6),
        ("dflash", True, 7),
        ("dspark", True, 6),
        ("draft_model", False, 1),
        ("draft_model", True, 7),
        ("ngram", False, 0),
    ],
)
def test_new_draft_slots(method: str, parallel: bool, expected: int) -> None:
    drafting = Drafting(method=method, num_speculative_tokens=7, parallel_drafting=parallel)

    assert num_new_draft_slots(drafting) == expected


def test_block_drafts_lower_the_running_requests_and_not_the_graphs_reach() -> None:
    drafting = Drafting(method="dspark", num_speculative_tokens=15)

    found = limits(drafting=drafting)

    assert found.max_num_seqs.value == 1024
    assert found.max_num_active_seqs.value == 8192 // 15
    assert found.max_num_active_seqs.origin is Origin.DERIVED
    assert limits(drafting=drafting, max_num_active_seqs=100).max_num_active_seqs.value == 100
    assert limits(version="0.32.0", drafting=drafting).max_num_active_seqs.value is None


def test_too_few_tokens_for_a_draft_are_refused() -> None:
    drafting = Drafting(method="eagle3", num_speculative_tokens=7)
    small = {"max_num_seqs": 4, "max_num_batched_tokens": 7, "drafting": drafting}

    found = limits(**small)

    assert [finding.because for finding in refused(found.findings)] == ["`7` does not exceed the 7 slots of drafting"]
    assert refused(limits(version="0.32.0", **small).findings) == ()


def test_few_scheduled_tokens_with_drafts_are_warned_of() -> None:
    drafting = Drafting(method="eagle3", num_speculative_tokens=3)

    found = limits(drafting=drafting, max_num_batched_tokens=8191)

    assert [(finding.field, finding.weight) for finding in found.findings] == [(SCHEDULED, Weight.WARNED)]
    assert found.max_num_scheduled_tokens.value == 8191
    assert limits(drafting=drafting).findings == ()


@given(
    gpu=st.sampled_from(sorted(DEVICES)),
    length=st.integers(1, 1 << 20),
    mode=st.sampled_from(["balanced", "throughput", "interactivity"]),
    chunks=st.booleans(),
)
def test_defaults_alone_are_never_refused(gpu: str, length: int, mode: str, chunks: bool) -> None:
    found = limits(gpu, max_model_len_tokens=length, performance_mode=mode, enable_chunked_prefill=chunks)

    assert found.findings == ()
    assert found.max_num_seqs.value <= found.max_num_batched_tokens.value


@pytest.mark.parametrize("device", DEVICES.values(), ids=list(DEVICES))
def test_a_device_survives_its_json_form(device: object) -> None:
    data = device_to_json(device)  # type: ignore[arg-type]

    jsonschema.validate(data, dict(DEVICE_SCHEMA))
    assert device_from_json(data) == device


def test_the_h200_is_as_measured() -> None:
    h200 = DEVICES["h200"]

    assert h200.total_memory_bytes == 150_109_880_320
    assert round(h200.total_memory_bytes / GIB_BYTES, 1) == 139.8
    assert (h200.compute_capability, h200.sm_count) == ((9, 0), 132)


def test_sm100_is_the_family_10() -> None:
    family = {name for name, device in DEVICES.items() if is_sm100(device)}

    assert family == {"b200", "gb200", "b300", "gb300"}
