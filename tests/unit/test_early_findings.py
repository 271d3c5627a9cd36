"""What `validate` says of a spec without a model, and that `plan` says the same once, beside what it cannot find."""

from typing import Any

import pytest

from servespec.compiler.resolve import batch_limits, config_mode
from servespec.compiler.resolve.step import Refusal
from servespec.diagnostics import SpecError
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import spec_diagnostics
from servespec.schema.overrides import with_overrides
from servespec.schema.source import read_source
from tests.plans import compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

BASE = "servespec: 1\nmodel: {id: org/absent}\nhardware: {gpu: h200}\n"
ADAPTIVE = {
    "method": "eagle3",
    "model": model_folder("eagle3-draft"),
    "num_speculative_tokens": 3,
    "enable_adaptive_verification": True,
}
FLAWS = {
    "hardware.gpu=h2000": "R004",
    "engine.version=0.34.0": "R005",
    "attention.backend=FLASH_ATN": "R101",
    "scheduler={max_num_seqs: 256, max_num_batched_tokens: 128}": "R101",
    "parallel.tensor_parallel_size=2": "R114",
    "speculative={method: eagel3, num_speculative_tokens: 3}": "R108",
    "speculative={method: eagle3, num_speculative_tokens: 3}": "R101",
    "speculative={num_speculative_tokens: 3}": "R101",
    "speculative={method: ngram, num_speculative_tokens: 3, prompt_lookup_min: 5, prompt_lookup_max: 2}": "R101",
    "lora={max_cpu_loras: 0, max_loras: 4}": "R101",
    "model.dtype=floot16": "S217",
    "memory.kv_cache_dtype=fp8_e4m": "S217",
    "model.quantization=fp9": "S233",
    "model.load_format=safetensor": "S233",
}


def said_of(setting: str) -> list[str]:
    source = with_overrides(read_source(BASE, "spec.yaml"), (setting,))
    return [finding.code for finding in spec_diagnostics(source, allow_code=False)]


@pytest.mark.parametrize("setting", FLAWS)
def test_a_flaw_is_told_without_a_model(setting: str) -> None:
    assert said_of(setting) == [FLAWS[setting]]


@pytest.mark.parametrize(
    "setting",
    [
        "hardware.gpu=H200", "engine.version=0.32.0", "attention.backend=flash_attn", "attention.backend=auto",
        "scheduler={max_num_seqs: 256, max_num_batched_tokens: 256}", "model.quantization=AWQ",
        "model.load_format=Dummy", "memory.kv_cache_dtype=fp8", "model.dtype=half",
        "speculative={method: mtp, num_speculative_tokens: 3}", "speculative={method: glm4_moe_mtp}",
        "speculative={method: dspark}", "speculative={method: suffix}", "speculative={model: org/draft}",
        "speculative={method: extract_hidden_states, num_speculative_tokens: 1}",
        "speculative={method: ngram, num_speculative_tokens: 3, prompt_lookup_min: 5}",
        "lora={max_cpu_loras: 4, max_loras: 4}",
    ],
)  # fmt: skip
def test_what_the_engine_takes_is_no_flaw(setting: str) -> None:
    assert said_of(setting) == []


@pytest.mark.parametrize(
    ("setting", "code"),
    [("hardware={gpu: h200, count: two}", "S106"), ("speculative={method: eagle3, model: 5}", "S103")],
)
def test_a_value_that_is_refused_is_not_missing_as_well(setting: str, code: str) -> None:
    source = with_overrides(read_source(BASE, "spec.yaml"), ("parallel.tensor_parallel_size=1", setting))

    assert [finding.code for finding in spec_diagnostics(source, allow_code=False)] == [code]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("lora={max_loras: 2}", "LoRA"),
        ("parallel.pipeline_parallel_size=2", "pipeline parallelism"),
        ("speculative.use_local_argmax_reduction=true", "local argmax reduction, which keeps no draft logits"),
        ("model.return_sampling_mask=true", "sampling replay"),
        ("engine.args={return-sampling-mask: true}", "sampling replay"),
        ("engine.args={enable_return_routed_experts: true}", "routed experts in answers"),
        ("engine.args={aux-output-config: {enable_return_routed_experts: true}}", "routed experts in answers"),
    ],
)
@pytest.mark.parametrize("switch", ["enable_adaptive_verification: true", "load_aware: {from_requests: 8}"])
def test_adaptive_verification_does_not_go_with_everything(switch: str, other: str, words: str) -> None:
    drafting = f"speculative={{method: mtp, num_speculative_tokens: 2, {switch}}}"
    source = with_overrides(read_source(BASE.replace("h200", "h200, count: 2"), "spec.yaml"), (drafting, other))
    (found,) = [one for one in spec_diagnostics(source, allow_code=False) if one.code == "R101"]

    name, written = switch.partition(":")[0], other.partition("=")[0].rpartition(".")[2]
    assert found.message == f"`speculative.{name}`: adaptive verification does not run with {words}"
    assert found.help.startswith(f"delete `{name}`, or `")
    assert written == "args" or found.help.endswith(f"`{written}`")


@pytest.mark.parametrize(
    ("drafting", "other"),
    [
        ("{method: dspark, num_speculative_tokens: 2, enable_adaptive_verification: true}", "local_argmax"),
        ("{method: mtp, num_speculative_tokens: 2}", "local_argmax"),
        ("{method: mtp, num_speculative_tokens: 2, enable_adaptive_verification: true}", "no_experts"),
    ],
)
def test_what_adaptive_verification_goes_with_is_let_through(drafting: str, other: str) -> None:
    """DSpark has a confidence of its own, and what is off is in nobody's way."""
    setting = {
        "local_argmax": "speculative.use_local_argmax_reduction=true",
        "no_experts": "engine.args={enable-return-routed-experts: false}",
    }[other]
    source = with_overrides(read_source(BASE, "spec.yaml"), (f"speculative={drafting}", setting))

    assert [one.code for one in spec_diagnostics(source, allow_code=False) if one.code == "R101"] == []


def planned_findings(*settings: str, **options: Any) -> list[str]:
    source = with_overrides(read_source(BASE, "spec.yaml"), settings)
    with pytest.raises(SpecError) as refused:
        compile_request(source, Options(**options))
    return sorted(finding.code for finding in refused.value.diagnostics)


def test_a_plan_tells_all_of_them_in_one_run() -> None:
    settings = ("hardware.gpu=h2000", "engine.version=0.34.0", "attention.backend=FLASH_ATN", "model.dtype=floot16")

    assert planned_findings(*settings) == ["R004", "R005", "R101", "S217"]


def test_a_model_that_is_absent_hides_nothing() -> None:
    assert planned_findings("lora={max_cpu_loras: 0}") == ["R001", "R101"]


def test_an_unverified_engine_may_be_asked_for() -> None:
    assert planned_findings("engine.version=0.34.0", allow_unverified_engine=True) == ["R001"]


@pytest.mark.parametrize("method", ["method: custom_class, ", ""])
def test_a_class_of_the_users_own_needs_consent(method: str) -> None:
    setting = f"speculative={{{method}model: my_module.Mine, num_speculative_tokens: 2}}"
    source = with_overrides(read_source(BASE, "spec.yaml"), (setting,))

    assert said_of(setting) == ["S213"]
    assert spec_diagnostics(source, allow_code=True) == ()


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"scheduler": {"max_num_seqs": 256, "max_num_batched_tokens": 128}}, "is below max_num_seqs"),
        ({"speculative": ADAPTIVE, "lora": {"max_loras": 1}}, "does not run with LoRA"),
        (
            {
                "speculative": ADAPTIVE,
                "hardware": {"gpu": "h200", "count": 2},
                "parallel": {"pipeline_parallel_size": 2},
            },
            "does not run with pipeline parallelism",
        ),
    ],
)
def test_a_refusal_that_is_worded_anew_is_still_told_once(
    sections: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reworded(field: str, because: str, *rest: Any, **named: Any) -> Refusal:
        return Refusal(field, f"{because}, in other words", *rest, **named)

    for module in (batch_limits, config_mode):
        monkeypatch.setattr(module, "Refusal", reworded)
    with pytest.raises(SpecError) as refused:
        compiled(spec_of("qwen3-8b", "h200", **sections))

    (message,) = [one.message for one in refused.value.diagnostics if words in one.message]
    assert message.endswith(", in other words")
