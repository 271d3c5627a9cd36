"""Whatever stands in a spec, compiling it gives a plan or findings, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.render.diagnostics import concise, text
from servespec.runtime.spec_file import spec_diagnostics
from tests.plans import Json, compiled, model_folder, source_of, spec_of
from tests.strategies import JUNK, changed, paths_of, specs

pytestmark = pytest.mark.usefixtures("quiet_shell")

many = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])

CASES = Path(__file__).resolve().parents[1] / "golden" / "cases"
TEXTS = tuple(path.read_bytes() for path in sorted(CASES.glob("*/spec.yaml")))
PIECES = [
    b"\n", b" ", b"  ", b"\t", b":", b": ", b"-", b"- ", b"{", b"}", b"[", b"]", b",", b"#", b"&a ", b"*a", b"'", b'"',
    b"|", b">", b"!!int ", b"null", b"~", b"0", b"-1", b"1e3", b"9" * 30, b".nan", b".inf", b"true", b"yes", b"\x00",
    b"\xff", b"servespec", b"dynamic", b"up_to", b"<<", b"?", b"%",
]  # fmt: skip


def outcome_of(spec: Json | bytes) -> Plan | SpecError:
    """What compiling gives; findings must be fit to show."""
    try:
        return compiled(spec)
    except SpecError as error:
        findings = [finding.to_json() for finding in error.diagnostics]
        assert findings
        assert text(findings, {}, color=False)
        assert concise(findings).count("\n") == len(findings)
        return error


@many
@given(specs(), st.data())
def test_a_spec_with_junk_in_one_place(spec: Json, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(paths_of(spec), key=str)))

    outcome_of(encoded(changed(spec, path, data.draw(JUNK))))


@many
@given(specs(), st.data())
def test_a_spec_with_a_key_too_many(spec: Json, data: st.DataObject) -> None:
    section = data.draw(st.sampled_from([(), *((name,) for name, value in spec.items() if isinstance(value, dict))]))
    key = data.draw(st.sampled_from(KEYS) | st.text(max_size=6))

    outcome_of(encoded(changed(spec, (*section, key), data.draw(JUNK))))


KEYS = [
    "dynamic", "num_speculative_tokens_per_batch_size", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
    "enforce_eager", "all2all_backend", "enable_dbo", "ubatch_size", "parallel_drafting", "compile_sizes", "args",
    "env", "splitting_ops", "hf_overrides", "kv_connector", "kv_connector_extra_config", "max_num_active_seqs",
    "mode", "data_parallel_size", "pipeline_parallel_size", "enable_chunked_prefill", "max_num_scheduled_tokens",
    "backend", "draft_tensor_parallel_size", "use_trtllm_attention", "flash_attn_version", "block_size", "dtype",
    "max_model_len",
]  # fmt: skip


def encoded(spec: Any) -> bytes:
    return json.dumps(spec, ensure_ascii=True).encode()


@many
@given(st.data())
def test_a_model_config_with_junk_in_it(data: st.DataObject) -> None:
    """The model's own file is not the user's, yet a plan depends on it."""
    model = data.draw(st.sampled_from(("qwen3-8b", "deepseek-v3.2", "gpt-oss-20b", "qwen3-next-80b-a3b")))
    names = st.sampled_from(CONFIG_KEYS) | st.text(max_size=8)
    overrides = data.draw(st.dictionaries(names, JUNK, max_size=4))
    spec = spec_of(model, "h200", model={"id": model_folder(model), "hf_overrides": overrides})

    outcome_of(encoded(spec))


CONFIG_KEYS = [
    "architectures", "model_type", "text_config", "thinker_config", "hidden_size", "num_attention_heads", "head_dim",
    "num_key_value_heads", "kv_lora_rank", "index_topk", "vocab_size", "num_experts", "n_routed_experts", "dtype",
    "layer_types", "sliding_window", "quantization_config", "num_nextn_predict_layers", "n_predict", "block_size",
    "compress_ratios", "rope_scaling", "rope_parameters", "max_position_embeddings", "is_encoder_decoder",
    "sample_from_anchor", "attn_logit_softcapping", "tie_word_embeddings", "canvas_length", "is_causal",
]  # fmt: skip


@many
@given(
    st.sampled_from(TEXTS), st.lists(st.tuples(st.floats(0, 1), st.sampled_from(PIECES), st.integers(0, 3)), max_size=4)
)
@example(b"", [])
@example(b"servespec: 1\nmodel: 3\nhardware: []\n", [])
def test_a_file_with_bytes_changed(raw: bytes, edits: list[tuple[float, bytes, int]]) -> None:
    for where, piece, cut in edits:
        at = int(where * len(raw))
        raw = raw[:at] + piece + raw[at + cut :]

    outcome_of(raw)


@many
@given(specs(), st.data())
def test_what_is_refused_early_is_refused_late(spec: Json, data: st.DataObject) -> None:
    """`validate` never finds an error that `plan` does not."""
    path = data.draw(st.sampled_from(sorted(paths_of(spec), key=str)))
    raw = encoded(changed(spec, path, data.draw(JUNK)))
    try:
        early = {f for f in spec_diagnostics(source_of(raw), allow_code=False) if f.severity == "error"}
    except SpecError as error:
        early = set(error.diagnostics)

    late = outcome_of(raw)

    assert not early or (isinstance(late, SpecError) and early <= set(late.diagnostics))
