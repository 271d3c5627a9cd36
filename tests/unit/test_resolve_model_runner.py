"""Model Runner V1 or V2, by hand from the engine's order of questions."""

import pytest

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.resolve.model_runner import (
    ModelRunner,
    RunnerRequest,
    RunnerResolution,
    resolve_model_runner,
    v1_unsupported,
    v2_unsupported,
)
from servespec.provenance import Origin


def request(version: str = "0.33.0", **changes: object) -> RunnerRequest:
    return RunnerRequest(version=version, **changes)  # type: ignore[arg-type]


def resolved(version: str = "0.33.0", **changes: object) -> RunnerResolution:
    return resolve_model_runner(request(version, **changes))


def test_v2_is_the_default() -> None:
    found = resolved(method="eagle3")

    assert found.runner.value is ModelRunner.V2
    assert found.runner.origin is Origin.ENGINE_DEFAULT
    assert found.findings == ()


def test_without_triton_it_is_v1() -> None:
    assert resolved(has_triton=False).runner.value is ModelRunner.V1


@pytest.mark.parametrize("has_triton", [True, False])
def test_the_variable_decides_before_triton_and_features(has_triton: bool) -> None:
    off = resolved(variable=False, has_triton=has_triton)
    on = resolved(variable=True, has_triton=has_triton, method="suffix")

    assert (off.runner.value, off.runner.origin) == (ModelRunner.V1, Origin.SPEC)
    assert on.runner.value is ModelRunner.V2
    assert [finding.because for finding in on.findings] == ["Model Runner V2 lacks speculative method `suffix`"]


def test_hisparse_and_watermarks_come_before_the_variable() -> None:
    hisparse = resolved(has_hisparse=True, variable=False)
    watermark = resolved(has_watermark=True, variable=False)

    assert (hisparse.runner.value, len(hisparse.findings)) == (ModelRunner.V2, 1)
    assert (watermark.runner.value, watermark.findings) == (ModelRunner.V2, ())


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"method": "suffix"}, "speculative method `suffix`"),
        ({"method": "custom_class"}, "speculative method `custom_class`"),
        ({"method": "eagle3", "parallel_drafting": True}, "parallel drafting outside DFlash and DSpark"),
        ({"method": "draft_model", "use_heterogeneous_vocab": True}, "draft models with a vocabulary of their own"),
        (
            {"distributed_executor_backend": "external_launcher", "pipeline_parallel_size": 2},
            "pipeline parallelism under the external launcher",
        ),
        ({"uses_microbatches": True}, "microbatches unless `VLLM_USE_V2_MODEL_RUNNER` is 1"),
    ],
)
def test_what_v2_lacks_makes_it_v1(changes: dict[str, object], missing: str) -> None:
    found = resolved(**changes)

    assert v2_unsupported(request(**changes)) == (missing,)
    assert found.runner.value is ModelRunner.V1
    assert missing in found.runner.because


def test_parallel_drafting_is_native_to_block_drafts() -> None:
    assert v2_unsupported(request(method="dspark", parallel_drafting=True)) == ()
    assert v2_unsupported(request(method="dflash", parallel_drafting=True)) == ()


def test_0_32_lacks_two_methods_more() -> None:
    assert resolved("0.32.0", method="medusa").runner.value is ModelRunner.V1
    assert resolved("0.33.0", method="medusa").runner.value is ModelRunner.V2


def test_microbatches_on_v2_allow_a_plain_decoder_only() -> None:
    asked = request(
        uses_microbatches=True,
        variable=True,
        has_lora=True,
        method="eagle3",
        pipeline_parallel_size=2,
        decode_context_parallel_size=2,
        is_multimodal=True,
        is_hybrid=True,
        mode=CudaGraphMode.PIECEWISE,
    )

    assert v2_unsupported(asked) == (
        "microbatches with LoRA",
        "microbatches with speculative decoding",
        "microbatches with pipeline parallelism",
        "microbatches with context parallelism",
        "microbatches with multimodal models",
        "microbatches with hybrid models",
        "microbatches with piecewise graphs alone",
    )
    assert v2_unsupported(request(uses_microbatches=True, variable=True)) == ()


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"prefill_context_parallel_size": 2}, ("prefill context parallelism",)),
        (
            {"pipeline_parallel_size": 2, "async_scheduling": True},
            ("pipeline parallelism with asynchronous scheduling",),
        ),
        ({"pipeline_parallel_size": 2}, ()),
        ({"enable_batch_sharded_sampling": True}, ("batch-sharded sampling",)),
        ({"method": "dspark"}, ("DSpark",)),
        ({"method": "eagle3", "enable_adaptive_verification": True}, ("adaptive verification",)),
        (
            {"method": "dflash", "draft_layer_types": ("sliding_attention", "full_attention")},
            ("DFlash drafts of mixed attention",),
        ),
        ({"method": "dflash", "draft_layer_types": ("sliding_attention",)}, ()),
        (
            {"method": "dflash", "draft_architectures": ("LiLiCorrDraftModel",)},
            ("DFlash drafts with candidate heads",),
        ),
        ({"method": "eagle3", "draft_architectures": ("LiLiCorrDraftModel",)}, ()),
        ({"is_diffusion": True}, ("diffusion models",)),
    ],
)
@pytest.mark.parametrize("version", ["0.33.0", "0.32.0"])
def test_what_v1_lacks(version: str, changes: dict[str, object], missing: tuple[str, ...]) -> None:
    assert v1_unsupported(request(version, **changes)) == missing


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"method": "dflash", "draft_architectures": ("Qwen3XPressModel",)}, ("XPress drafts",)),
        ({"method": "eagle3", "draft_lm_head_quantization": True}, ("draft head quantization",)),
        ({"method": "mtp", "draft_architectures": ("ParseAuxMTPModel",)}, ("attention-free MTP drafts",)),
        ({"architectures": ("Step5ForCausalLM",)}, ("architecture `Step5ForCausalLM`",)),
        (
            {"method": "dflash", "draft_architectures": ("DFlash2BeamDraftModel",)},
            ("DFlash drafts with candidate heads",),
        ),
    ],
)
def test_what_v1_refuses_only_since_0_33(changes: dict[str, object], missing: tuple[str, ...]) -> None:
    assert v1_unsupported(request("0.33.0", **changes)) == missing
    assert v1_unsupported(request("0.32.0", **changes)) == ()


def test_v1_with_something_it_lacks_is_refused() -> None:
    found = resolved(variable=False, method="dspark")

    assert [finding.because for finding in found.findings] == ["Model Runner V1 lacks DSpark"]
