"""The committed field tables: current, complete, classified, and read as a person expects."""

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts import engine_fields as facts
from servespec.compiler.facts.engine_fields import Code, Computed, EngineTable, Form, Kind

ROOT = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines"))
VERSIONS = ("0.32.0", "0.33.0")


@pytest.fixture(params=VERSIONS)
def table(request: pytest.FixtureRequest) -> EngineTable:
    return facts.table(request.param)


@pytest.fixture
def newest() -> EngineTable:
    return facts.table("0.33.0")


def test_the_supported_versions() -> None:
    assert facts.versions() == VERSIONS
    assert tuple(sorted(facts.recorded_digests())) == VERSIONS


def test_another_version_has_no_table() -> None:
    with pytest.raises(KeyError):
        facts.table("0.31.0")


@pytest.mark.engine
@pytest.mark.parametrize("version", VERSIONS)
def test_the_committed_files_are_what_the_tool_writes(version: str) -> None:
    if not (ENGINES / f"vllm-{version}").is_dir():
        pytest.skip(f"no .engines/vllm-{version}: run python tools/fetch_engines.py {version}")
    command = [sys.executable, str(ROOT / "tools" / "engine_facts.py"), "--check", version]

    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_setting_is_classified(table: EngineTable) -> None:
    """A setting that nobody has judged would make every plan that meets it incomplete."""
    fields = [one for name in table.configs() for one in table.config(name).values()]
    flags = [table.flag(name) for name in table.flags()]
    variables = [table.variable(name) for name in table.variables()]

    unknown = [one.name for one in [*fields, *flags, *variables] if one is None or one.plan_relevant is None]

    assert unknown == []


def test_a_flag_that_sets_a_field_says_of_the_plan_what_the_field_says(table: EngineTable) -> None:
    pairs = [(flag, table.config(flag.config)[flag.field]) for flag in all_flags(table) if flag.field]

    disagreeing = [flag.name for flag, field in pairs if flag.plan_relevant != field.plan_relevant]

    assert len(pairs) > 250
    assert disagreeing == []


@pytest.mark.parametrize(
    ("config", "field", "of_the_plan"),
    [
        ("CompilationConfig", "cudagraph_capture_sizes", True),
        ("CompilationConfig", "cache_dir", False),
        ("SchedulerConfig", "max_num_seqs", True),
        ("SchedulerConfig", "stream_interval", False),
        ("SpeculativeConfig", "enable_adaptive_verification", True),
        ("ParallelConfig", "enable_dbo", True),
        ("ParallelConfig", "master_port", False),
        ("CacheConfig", "cache_dtype", True),
        ("VllmConfig", "compilation_config", True),
        ("VllmConfig", "profiler_config", False),
    ],
)
def test_what_changes_the_plan(table: EngineTable, config: str, field: str, of_the_plan: bool) -> None:
    assert table.config(config)[field].plan_relevant is of_the_plan


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_USE_V2_MODEL_RUNNER",
        "VLLM_USE_BREAKABLE_CUDAGRAPH",
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
        "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB",
        "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE",
        "TORCH_COMPILE_DISABLE",
        "NCCL_BUFFSIZE",
        "PYTORCH_CUDA_ALLOC_CONF",
    ],
)
def test_variables_that_change_the_plan(table: EngineTable, name: str) -> None:
    variable = table.variable(name)

    assert variable is not None
    assert variable.plan_relevant is True


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("--max-num-seqs", "max_num_seqs"),
        ("max_num_seqs", "max_num_seqs"),
        ("max-num-seqs", "max_num_seqs"),
        ("--max_num_seqs", "max_num_seqs"),
        ("-tp", "tensor_parallel_size"),
        ("-cc", "compilation_config"),
        ("-O", "optimization_level"),
        ("--no-enable-prefix-caching", "enable_prefix_caching"),
        ("--device-memory-utilization", "gpu_memory_utilization"),
        ("device_memory_utilization", "gpu_memory_utilization"),
    ],
)
def test_a_flag_is_found_by_any_of_its_spellings(table: EngineTable, spelling: str, name: str) -> None:
    flag = table.flag(spelling)

    assert flag is not None
    assert flag.name == name


@pytest.mark.parametrize("spelling", ["--max-num-seq", "-x", "", "--", "--no-max-num-seqs"])
def test_a_flag_that_does_not_exist(table: EngineTable, spelling: str) -> None:
    assert table.flag(spelling) is None


@pytest.mark.parametrize(
    ("name", "config", "field", "form", "nargs"),
    [
        ("max_num_seqs", "SchedulerConfig", "max_num_seqs", Form.VALUE, None),
        ("kv_cache_dtype", "CacheConfig", "cache_dtype", Form.VALUE, None),
        ("enable_prefix_caching", "CacheConfig", "enable_prefix_caching", Form.BOOLEAN, None),
        ("cudagraph_capture_sizes", "CompilationConfig", "cudagraph_capture_sizes", Form.LIST, "+"),
        ("compilation_config", "VllmConfig", "compilation_config", Form.JSON, None),
        ("speculative_config", "VllmConfig", "speculative_config", Form.JSON, None),
        ("spec_tokens", "SpeculativeConfig", "num_speculative_tokens", Form.VALUE, None),
        ("hf_token", "ModelConfig", "hf_token", Form.OPTIONAL_VALUE, "?"),
        ("limit_mm_per_prompt", "MultiModalConfig", "limit_per_prompt", Form.JSON, None),
        ("cpu_offload_gb", "UVAOffloadConfig", "cpu_offload_gb", Form.VALUE, None),
        ("middleware", "FrontendArgs", "middleware", Form.APPEND, None),
        ("allowed_origins", "FrontendArgs", "allowed_origins", Form.JSON, None),
        ("headless", "", "", Form.SWITCH, None),
        ("enable_lora", "LoRAConfig", "", Form.BOOLEAN, None),
        ("data_parallel_rank", "ParallelConfig", "data_parallel_rank", Form.VALUE, None),
    ],
)
def test_what_a_flag_sets_and_how_it_is_written(
    table: EngineTable, name: str, config: str, field: str, form: Form, nargs: str | None
) -> None:
    flag = table.flag(name)

    assert flag is not None
    assert (flag.config, flag.field, flag.form, flag.nargs) == (config, field, form, nargs)


def test_the_spellings_to_write(newest: EngineTable) -> None:
    caching, seqs = newest.flag("enable_prefix_caching"), newest.flag("max_num_seqs")

    assert caching is not None
    assert seqs is not None
    assert (caching.long, caching.negation) == ("--enable-prefix-caching", "--no-enable-prefix-caching")
    assert (seqs.long, seqs.negation) == ("--max-num-seqs", None)


def test_deprecated_flags_say_when_they_go(newest: EngineTable) -> None:
    deprecated = {flag.name: flag.removal for flag in all_flags(newest) if flag.deprecated}

    assert deprecated == {
        "disable_cascade_attn": "0.33.0",
        "ir_op_priority": "0.34.0",
        "log_config_file": "0.33.0",
        "mamba_cache_mode": "0.33.0",
    }


def test_types_and_defaults_of_fields(newest: EngineTable) -> None:
    speculative = newest.config("SpeculativeConfig")["num_speculative_tokens"]
    sizes = newest.config("CompilationConfig")["cudagraph_capture_sizes"]
    memory = newest.config("CacheConfig")["gpu_memory_utilization"]
    tokens = newest.config("SchedulerConfig")["max_num_batched_tokens"]

    assert [one.kind for one in speculative.type.members] == [Kind.INT, Kind.NULL]
    assert speculative.bounds.gt == 0
    assert [one.kind for one in sizes.type.members] == [Kind.LIST, Kind.NULL]
    assert sizes.type.members[0].of[0].kind is Kind.INT
    assert (memory.default, memory.bounds.gt, memory.bounds.le) == (0.92, 0, 1)
    assert tokens.default == 2048
    assert newest.config("CompilationConfig")["compilation_time"].internal
    assert isinstance(newest.config("KVTransferConfig")["kv_buffer_device"].default, Computed)


def test_a_method_that_came_and_one_that_went() -> None:
    old, new = (set(facts.table(v).config("SpeculativeConfig")["method"].type.all_choices) for v in VERSIONS)

    assert {"medusa", "mlp_speculator"} <= old - new
    assert "step5_mtp" in new - old


def test_each_literal_default_is_of_its_own_type(table: EngineTable) -> None:
    """Catches a type or a default that was read wrong."""
    fields = [one for name in table.configs() for one in table.config(name).values() if not one.required]
    settings = [one for one in [*fields, *all_flags(table)] if not isinstance(one.default, Computed)]

    wrong = {one.name: reason for one in settings if (reason := table.check_value(one.type, one.default))}

    assert len(settings) > 800
    assert wrong == {}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("num_speculative_tokens", 7, None),
        ("num_speculative_tokens", None, None),
        ("num_speculative_tokens", True, "expected an integer or null, got `true`"),
        ("num_speculative_tokens", "7", 'expected an integer or null, got `"7"`'),
        ("num_speculative_tokens", 1.5, "expected an integer or null, got `1.5`"),
        ("num_speculative_tokens", 0, "expected more than 0, got `0`"),
        ("enable_adaptive_verification", True, None),
        ("enable_adaptive_verification", "true", 'expected true or false, got `"true"`'),
        ("enable_adaptive_verification", 1, "expected true or false, got `1`"),
        ("draft_sample_method", "greedy", None),
        ("draft_sample_method", "gredy", "expected one of `greedy`, `probabilistic`, got `gredy`"),
        ("synthetic_acceptance_rates", [0.5, 1], None),
        ("synthetic_acceptance_rates", [0.5, "1"], '[1]: expected a number, got `"1"`'),
        ("synthetic_acceptance_rates", 0.5, "expected a list, each a number or null, got `0.5`"),
        ("num_speculative_tokens_per_batch_size", [[1, 4, 3]], None),
        ("num_speculative_tokens_per_batch_size", [[1, 4]], "[0]: expected 3 values, got 2"),
        ("num_speculative_tokens_per_batch_size", [[1, 4, None]], "[0][2]: expected an integer, got `null`"),
    ],
)
def test_values_of_a_field(newest: EngineTable, field: str, value: object, reason: str | None) -> None:
    assert newest.check_field(newest.config("SpeculativeConfig")[field], value) == reason


NOT_AN_INTEGER = "expected an integer"
NOT_A_FLAG = "expected true or false or null"
NO_FIELD = "`CompilationConfig` has no field of this name that can be set"
TOO_SMALL = "expected at least 0"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, None),
        ({"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2]}, None),
        ({"cudagraph_mode": "full_decode_only"}, None),
        ({"mode": 3}, None),
        ({"cudagraph_capture_sizes": [1, "2"]}, f'.cudagraph_capture_sizes[1]: {NOT_AN_INTEGER}, got `"2"`'),
        ({"pass_config": {"fuse_norm_quant": 1}}, f".pass_config.fuse_norm_quant: {NOT_A_FLAG}, got `1`"),
        ({"cudagraph_mod": 1}, f".cudagraph_mod: {NO_FIELD}"),
        ({"traced_files": []}, f".traced_files: {NO_FIELD}"),
        ({"decoder_replay_trim_threshold": -1}, f".decoder_replay_trim_threshold: {TOO_SMALL}, got `-1`"),
        ([], "expected a mapping, got `[]`"),
    ],
)  # fmt: skip
def test_values_of_a_nested_config(newest: EngineTable, value: object, reason: str | None) -> None:
    assert newest.check_value(newest.config("VllmConfig")["compilation_config"].type, value) == reason


def test_without_a_table_a_nested_config_is_any_mapping(newest: EngineTable) -> None:
    kind = newest.config("VllmConfig")["compilation_config"].type

    assert facts.check_value(kind, {"cudagraph_mod": 1}) is None
    assert facts.check_value(kind, 1) == "expected a mapping, got `1`"


@pytest.mark.parametrize(
    ("config", "field", "accepted", "refused"),
    [
        ("AttentionConfig", "backend", ["auto", "FLASH_ATTN", "flash_attn", None], ["flash-attn", 1]),
        ("SpeculativeConfig", "attention_backend", ["auto", "triton_attn"], ["none"]),
        ("KernelConfig", "moe_backend", ["triton", "FlashInfer-TRTLLM"], ["fast"]),
        ("SpeculativeConfig", "draft_sample_method", ["greedy"], ["Greedy"]),
        ("VllmConfig", "optimization_level", [0, 3, "O2"], [4, True, "2"]),
    ],
)
def test_what_a_validator_of_the_engine_takes_besides(
    newest: EngineTable, config: str, field: str, accepted: list[object], refused: list[object]
) -> None:
    setting = newest.config(config)[field]

    assert [one for one in accepted if newest.check_field(setting, one) is not None] == []
    assert [one for one in refused if newest.check_field(setting, one) is None] == []


def test_a_reason_stays_on_one_line(newest: EngineTable) -> None:
    kind = newest.config("VllmConfig")["compilation_config"].type

    assert newest.check_value(kind, {"mo\nde": 1}) == f'."mo\\nde": {NO_FIELD}'
    assert str(newest.check_value(kind, {"mode": "a\nb"})).endswith(' or null, got `"a\\nb"`')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(value=JSON, version=st.sampled_from(VERSIONS), data=st.data())
def test_a_reason_is_one_short_line_and_never_an_exception(value: Any, version: str, data: Any) -> None:
    table = facts.table(version)
    flag = table.flag(data.draw(st.sampled_from(table.flags())))
    assert flag is not None

    reason = table.check_value(flag.type, value)

    assert reason is None or (reason and "\n" not in reason)


@given(value=st.booleans() | st.text(max_size=6) | st.floats(allow_nan=False))
def test_an_integer_field_takes_integers_alone(value: object) -> None:
    field = facts.table("0.33.0").config("ParallelConfig")["tensor_parallel_size"]

    assert facts.check_value(field.type, value) is not None


@pytest.mark.parametrize(
    ("config", "field", "runs", "does_not"),
    [
        ("ModelConfig", "trust_remote_code", [True], [False, None]),
        ("ParallelConfig", "worker_cls", ["mine.Worker"], ["auto", None]),
        ("ParallelConfig", "distributed_executor_backend", ["mine.Executor"], ["mp", "ray", None]),
        ("LoadConfig", "load_format", ["mine"], ["auto", "dummy", "safetensors"]),
        ("CompilationConfig", "backend", ["mine.backend"], ["", "inductor", "eager"]),
        ("SpeculativeConfig", "method", ["custom_class"], ["eagle3", None]),
        ("FrontendArgs", "middleware", [["mine.middleware"]], [[]]),
        ("SchedulerConfig", "max_num_seqs", [], [1, 512]),
    ],
)
def test_which_values_run_code(
    newest: EngineTable, config: str, field: str, runs: list[object], does_not: list[object]
) -> None:
    setting = newest.config(config)[field]

    assert [one for one in runs if not setting.runs_code(one)] == []
    assert [one for one in does_not if setting.runs_code(one)] == []


@pytest.mark.parametrize(
    ("flag", "value", "paths"),
    [
        ("worker_cls", "mine.Worker", ("",)),
        ("worker_cls", "auto", ()),
        ("compilation_config", {"backend": "mine.backend", "mode": 3}, (".backend",)),
        (
            "speculative_config",
            {"method": "eagle3", "draft_load_config": {"load_format": "mine"}},
            (".draft_load_config.load_format",),
        ),
        (
            "kv_transfer_config",
            {"kv_connector": "X", "kv_connector_module_path": "mine"},
            (".kv_connector_module_path",),
        ),
        (
            "kv_transfer_config",
            {"kv_connector_extra_config": {"connectors": [{"kv_connector_module_path": "mine"}]}},
            (".kv_connector_extra_config.connectors[0].kv_connector_module_path",),
        ),
        ("kv_transfer_config", {"kv_connector_extra_config": {"block_size": 16}}, ()),
        ("kv_transfer_config", None, ()),
    ],
)
def test_where_inside_a_value_code_would_run(
    newest: EngineTable, flag: str, value: object, paths: tuple[str, ...]
) -> None:
    found = newest.flag(flag)

    assert found is not None
    assert newest.code_in(found, value) == paths


def test_variables_that_run_code_or_are_secret(table: EngineTable) -> None:
    names = [
        "LD_PRELOAD",
        "PYTHONPATH",
        "VLLM_PLUGINS",
        "NCCL_NET_PLUGIN",
        "VLLM_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
    ]
    found = {name: table.variable(name) for name in names}

    assert [bool(one and one.code) for one in found.values()] == [True, True, True, True, False, False]
    assert [bool(one and one.secret) for one in found.values()] == [False, False, False, False, True, True]


def test_flags_that_run_code_or_are_secret(newest: EngineTable) -> None:
    code = {flag.name for flag in all_flags(newest) if flag.code}
    secret = {flag.name for flag in all_flags(newest) if flag.secret}

    assert {"worker_extension_cls", "scheduler_cls", "tool_parser_plugin", "reasoning_parser_plugin"} <= code
    assert {"io_processor_plugin", "logits_processors", "config"} <= code
    assert secret == {"api_key", "hf_token", "model_loader_extra_config"}


def test_the_longest_pattern_wins_and_a_name_beats_a_pattern(newest: EngineTable) -> None:
    found = {name: newest.variable(name) for name in ("NCCL_IB_HCA", "NCCL_P2P_LEVEL", "NCCL_DEBUG")}

    assert [one and one.pattern for one in found.values()] == ["NCCL_IB_*", "NCCL_*", ""]
    assert [one and one.plan_relevant for one in found.values()] == [False, True, False]
    assert newest.variable("SOMETHING_ELSE") is None


def test_the_tables_hold_no_sentence_of_the_engines_documentation(table: EngineTable) -> None:
    """Names, types and places only: no text of more than a few words stands in any row."""
    rows = resources.files("servespec.compiler.facts").joinpath("vllm", f"{table.version}.json").read_text()

    sentences = [text for text in strings_in(json.loads(rows)) if text.count(" ") > 8]

    assert sentences == []


def strings_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in strings_in(one)]
    if isinstance(value, list):
        return [text for one in value for text in strings_in(one)]
    return [value] if isinstance(value, str) else []


def all_flags(table: EngineTable) -> list[facts.EngineFlag]:
    return [flag for name in table.flags() if (flag := table.flag(name)) is not None]


def test_a_setting_without_marks_runs_nothing() -> None:
    assert not Code()
    assert Code(values=("x",))
