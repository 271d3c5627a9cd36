"""Command lines as people write them: each spelling, each home, each thing that is not carried."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from servespec.compiler.command_line import CommandLine, command_line_source, read_command_line
from servespec.compiler.command_line.human_number import expanded, human_readable_int, human_readable_int_or_auto
from servespec.compiler.command_line.tiers import tiers_of
from servespec.compiler.facts.engine_fields import table
from servespec.compiler.pipeline import spec_findings
from servespec.diagnostics import SpecError
from servespec.schema.parse import parse_spec

TABLE = table("0.33.0")
MODEL = "Qwen/Qwen3-8B"


def read(*words: str, files: Mapping[str, str] | None = None) -> CommandLine:
    """What follows `vllm serve MODEL`."""
    return read_command_line(["vllm", "serve", MODEL, *words], TABLE, files or {})


def data_of(*words: str, files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What is read besides the model; nothing may be left over."""
    command = read(*words, files=files)
    assert command.leftovers == ()
    return {name: value for name, value in command.data.items() if name not in ("servespec", "model")}


def said(command: CommandLine) -> list[tuple[str, str, str]]:
    return [(one.code, one.message, one.help) for one in command.leftovers]


# Spellings of flags


@pytest.mark.parametrize(
    ("words", "data"),
    [
        (["--max-num-seqs", "256"], {"scheduler": {"max_num_seqs": 256}}),
        (["--max-num-seqs=256"], {"scheduler": {"max_num_seqs": 256}}),
        (["--max_num_seqs", "256"], {"scheduler": {"max_num_seqs": 256}}),
        (["--max_num-seqs=256"], {"scheduler": {"max_num_seqs": 256}}),
        (["-tp", "2"], {"parallel": {"tensor_parallel_size": 2}}),
        (["-tp=2"], {"parallel": {"tensor_parallel_size": 2}}),
        (["-n2"], {"parallel": {"nnodes": 2}}),
        (["--gpu-mem", "0.9"], {"memory": {"gpu_memory_utilization": 0.9}}),
        (["--device-memory-utilization", "0.9"], {"memory": {"gpu_memory_utilization": 0.9}}),
        (["--no-enable-prefix-caching"], {"memory": {"enable_prefix_caching": False}}),
        (["--disable-prefix-caching"], {"memory": {"enable_prefix_caching": False}}),
        (["--enable-prefix-caching"], {"memory": {"enable_prefix_caching": True}}),
        (["--max-num-batched-tokens", "8k"], {"scheduler": {"max_num_batched_tokens": 8000}}),
        (["--max-num-batched-tokens", "8K"], {"scheduler": {"max_num_batched_tokens": 8192}}),
        (["--kv-cache-memory-bytes", "1.5G".lower()], {"memory": {"kv_cache_memory_bytes": 1_500_000_000}}),
        (["-O2"], {"optimization_level": 2}),
        (["-O", "2"], {"optimization_level": 2}),
        (["-O=2"], {"optimization_level": 2}),
        (["--optimization-level=0"], {"optimization_level": 0}),
        (["--cudagraph-capture-sizes", "1", "2", "4"], {"compilation": {"cudagraph_capture_sizes": [1, 2, 4]}}),
        (["--attention-backend", "flash_attn"], {"attention": {"backend": "FLASH_ATTN"}}),
        (["--attention-backend", "auto"], {"attention": {"backend": "auto"}}),
        (["--moe-backend", "Deep-Gemm"], {"kernel": {"moe_backend": "deep_gemm"}}),
        (["--host", "0.0.0.0", "--port", "80"], {"serve": {"host": "0.0.0.0", "port": 80}}),  # noqa: S104
        (["--quantization", "None"], {}),
        (["--enable-lora", "--max-loras", "4"], {"lora": {"max_loras": 4}}),
        (["--enable-lora"], {"lora": {}}),
    ],
)  # fmt: skip
def test_flags(words: list[str], data: dict[str, Any]) -> None:
    assert data_of(*words) == data


@pytest.mark.parametrize(
    ("words", "data"),
    [
        (["--seed", "7"], {"seed": 7}),
        (["--seed", "-1"], {"seed": -1}),
        (["--limit-mm-per-prompt.image", "2"], {"limit_per_prompt": {"image": 2}}),
        (["--mm-processor-cache-gb=.5"], {"mm_processor_cache_gb": 0.5}),
        (["--max-model-len", "32k"], {"max_model_len": 32000}),
        (["--served-model-name", "qwen"], {"served_model_name": "qwen"}),
        (["--hf-overrides", '{"num_hidden_layers": 4}'], {"hf_overrides": {"num_hidden_layers": 4}}),
        (["--hf-overrides.num_hidden_layers", "4"], {"hf_overrides": {"num_hidden_layers": 4}}),
        (["--trust-remote-code", "--enforce-eager"], {"trust_remote_code": True, "enforce_eager": True}),
    ],
)
def test_flags_of_the_model(words: list[str], data: dict[str, Any]) -> None:
    command = read(*words)

    assert command.data["model"] == {"id": MODEL, **data}
    assert command.leftovers == ()


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["--reasoning-parser", "qwen3"], {"reasoning-parser": "qwen3"}),
        (["--reasoning-parser", "None"], {"reasoning-parser": ""}),
        (["--served-model-name", "a", "b"], {"served-model-name": ["a", "b"]}),
        (["--middleware", "a.b", "--middleware", "c.d"], {"middleware": ["a.b", "c.d"]}),
        (["--disable-log-stats"], {"disable-log-stats": True}),
        (["--no-enable-log-requests"], {"enable-log-requests": False}),
        (["--device-ids", "2,GPU-a"], {"device-ids": [2, "GPU-a"]}),
        (["--additional-config", '{"a": 1}'], {"additional-config": {"a": 1}}),
        (["--profiler-config.profiler=torch"], {"profiler-config": {"profiler": "torch"}}),
        (["--cpu-offload-gb", "4"], {"cpu-offload-gb": 4.0}),
    ],
)
def test_flags_without_a_field_go_to_the_engine_args(words: list[str], args: dict[str, Any]) -> None:
    assert data_of(*words) == {"engine": {"args": args}}


# Whole configs


@pytest.mark.parametrize(
    ("words", "compilation"),
    [
        (["-cc.cudagraph_mode=FULL"], {"cudagraph_mode": "FULL"}),
        (["-cc.cudagraph_mode", "full_and_piecewise"], {"cudagraph_mode": "FULL_AND_PIECEWISE"}),
        (["-cc", '{"cudagraph_mode": 1}'], {"cudagraph_mode": "PIECEWISE"}),
        (["--compilation_config.mode=3"], {"mode": 3}),
        (["-cc.cudagraph_capture_sizes+=1,2", "-cc.cudagraph_capture_sizes+", "4"],
         {"cudagraph_capture_sizes": [1, 2, 4]}),
        (["-cc.pass_config.fuse_norm_quant=True", "-cc.pass_config.fuse_act_quant=false"],
         {"pass_config": {"fuse_norm_quant": True, "fuse_act_quant": False}}),
        (["-cc", '{"max_cudagraph_capture_size": 2K}'], {"max_cudagraph_capture_size": 2048}),
        (["-cc.max_cudagraph_capture_size=1k"], {"max_cudagraph_capture_size": 1000}),
        (["-cc", '{"cudagraph_mode": null}'], {}),
    ],
)  # fmt: skip
def test_the_compilation_config(words: list[str], compilation: dict[str, Any]) -> None:
    assert data_of(*words) == {"compilation": compilation}


def test_the_speculative_config_in_json_with_dashes_and_tiers() -> None:
    ranges = [[1, 16, 7], [17, 64, 3], [65, 256, 1]]
    config = {"method": "eagle3", "num-speculative-tokens": 7, "num_speculative_tokens_per_batch_size": ranges}

    assert data_of("--speculative-config", json.dumps(config))["speculative"] == {
        "method": "eagle3",
        "num_speculative_tokens": 7,
        "dynamic": [
            {"up_to": 16, "num_speculative_tokens": 7},
            {"up_to": 64, "num_speculative_tokens": 3},
            {"num_speculative_tokens": 1},
        ],
    }


def test_the_speculative_shortcuts() -> None:
    words = ["--spec-method", "mtp", "--spec-tokens", "3", "-sc.model", "org/draft"]

    assert data_of(*words)["speculative"] == {"method": "mtp", "num_speculative_tokens": 3, "model": "org/draft"}


@pytest.mark.parametrize(
    ("ranges", "tiers"),
    [
        ([[1, 4, 2]], [{"num_speculative_tokens": 2}]),
        ([[5, 9, 0], [1, 4, 2]], [{"up_to": 4, "num_speculative_tokens": 2}, {"num_speculative_tokens": 0}]),
        ([[1, 4, 2], [6, 9, 1]], None),
        ([[2, 4, 2]], None),
        ([[1, 4, 2], [4, 9, 1]], None),
        ([[4, 1, 2]], None),
        ([[1, 4, -1]], None),
        ([[1, True, 2]], None),
        ([[1, 4]], None),
        ([], None),
    ],
)
def test_tiers_say_contiguous_ranges_from_one(ranges: Any, tiers: Any) -> None:
    assert tiers_of(ranges) == tiers


def test_ranges_with_a_gap_keep_the_engine_name() -> None:
    ranges = [[1, 4, 2], [6, 9, 1]]
    words = ["-sc", json.dumps({"num_speculative_tokens": 2, "num_speculative_tokens_per_batch_size": ranges})]

    assert data_of(*words)["speculative"] == {
        "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": ranges,
    }


# Programs, models, variables


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "org/m", "--seed", "1"],
        ["/opt/venv/bin/vllm", "serve", "--seed", "1", "org/m"],
        ["vllm", "serve", "--seed", "1", "--model", "org/m"],
        ["vllm", "serve", "--model=org/m", "--seed", "1"],
        ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m", "--seed", "1"],
        ["python3.12", "-u", "-m", "vllm.entrypoints.openai.api_server", "--seed=1", "--model=org/m"],
        ["python3", "-m", "vllm.entrypoints.cli.main", "serve", "org/m", "--seed", "1"],
    ],
)
def test_programs_and_places_of_the_model(words: list[str]) -> None:
    command = read_command_line(words, TABLE, {})

    assert command.data == {"servespec": 1, "model": {"id": "org/m", "seed": 1}}
    assert command.leftovers == ()


def test_a_container_gives_variables_and_arguments() -> None:
    words = "docker run --gpus all --mount type=bind,src=/a -e VLLM_USE_V2_MODEL_RUNNER=0 --env=NCCL_DEBUG=INFO "
    words += "-p 8000:8000 --name x vllm/vllm-openai:v0.33.0 --model org/m"
    command = read_command_line(words.split(), TABLE, {})

    assert command.data == {
        "servespec": 1,
        "model": {"id": "org/m"},
        "engine": {"model_runner": "v1", "env": {"NCCL_DEBUG": "INFO"}, "version": "0.33.0"},
    }
    options = "--gpus all --mount type=bind,src=/a -p 8000:8000 --name x"
    message = f"`docker run {options} vllm/vllm-openai:v0.33.0` before the program is not carried"
    assert said(command) == [("S317", message, "")]


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.32.0", "0.32.0"),
        ("registry:5000/mirror/vllm-openai-rocm:v0.33.0-cu130@sha256:0f", "0.33.0"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
    ],
)
def test_the_tag_of_an_image_is_the_engine_s_version(image: str, version: str | None) -> None:
    engine = read_command_line(["docker", "run", image, "org/m"], TABLE, {}).data.get("engine", {})

    assert engine.get("version") == version


def test_an_image_is_read_with_its_own_engine_s_flags() -> None:
    unknown = next(name for name in TABLE.flags() if table("0.32.0").flag(name) is None)
    line = ["docker", "run", "vllm/vllm-openai:v0.32.0", "org/m", f"--{unknown.replace('_', '-')}", "1"]

    assert [
        one.message.split("`")[0] for one in read_command_line(line, TABLE, {}).leftovers if one.code == "S302"
    ] == ["vLLM 0.32.0 has no flag "]


def test_an_image_with_an_unknown_engine_is_told() -> None:
    command = read_command_line(["docker", "run", "vllm/vllm-openai:v0.11.0", "org/m"], TABLE, {})

    message = "the image has vLLM 0.11.0, and what is known is 0.32.0, 0.33.0"
    help_text = "it is read as vLLM 0.33.0 would read it; check the spec with your engine"
    assert ("S324", message, help_text) in said(command)
    assert "engine" not in command.data


def test_what_a_container_is_told_besides_is_listed_without_secrets() -> None:
    words = [
        "docker",
        "run",
        "--env-file",
        "prod.env",
        "--label",
        "api_key=hush",
        "--registry-token",
        "hush",
        "-e",
        "A",
    ]
    words += ["--env-file=b.env", "--name", "a name", "vllm/vllm-openai", "org/m"]
    command = read_command_line(words, TABLE, {})

    options = "--env-file prod.env --label api_key=… --registry-token … -e A --env-file=b.env --name 'a name'"
    assert [(code, message) for code, message, _ in said(command)] == [
        ("S317", f"`docker run {options} vllm/vllm-openai` before the program is not carried"),
        ("S323", "the variables of `prod.env` are not read"),
        ("S310", "`api_key` (word 6) may hold a secret and is not carried"),
        ("S310", "`--registry-token` (word 8) may hold a secret and is not carried"),
        ("S323", "the variables of `b.env` are not read"),
    ]


@pytest.mark.parametrize(
    ("wrapper", "shown"),
    [
        (["srun", "--export=ALL,HF_TOKEN=hush,A=1"], "srun --export=ALL,HF_TOKEN=…,A=1"),
        (["srun", "--export", "ALL,HF_TOKEN=hush"], "srun --export ALL,HF_TOKEN=…"),
        (["srun", "--export=A=1,HF_TOKEN=hush,WANDB_API_KEY=hush"], "srun --export=A=1,HF_TOKEN=…,WANDB_API_KEY=…"),
        (["singularity", "exec", "--env=HF_TOKEN=hush"], "singularity exec --env=HF_TOKEN=…"),
        (["singularity", "exec", "--env=A=b HF_TOKEN='hush hush' C=d"], "singularity exec --env=A=b HF_TOKEN=… C=d"),
        (["docker", "run", "--label=token=hush"], "docker run --label=token=…"),
        (["docker", "run", "--label", 'my-api-key="hush, hush"'], "docker run --label my-api-key=…"),
        (["docker", "run", "--label", '{"api_key": "hush"}'], 'docker run --label {"api_key": …'),
        (["run", "--header", "Authorization: Bearer hush"], "run --header Authorization: …"),
        (["run", "hf_hushhush"], "run hf_…"),
        (["run", "--to=http://a/sk-hushhush?b"], "run --to=http://a/sk-…?b"),
        (["run", "-v", "hf_cache:/x/token:/y"], "run -v hf_cache:/x/token:/y"),
    ],
)
def test_a_secret_anywhere_in_a_word_is_not_shown(wrapper: list[str], shown: str) -> None:
    command = read_command_line([*wrapper, "vllm", "serve", "org/m"], TABLE, {})

    assert f"`{shown}` before the program is not carried" in [message for _, message, _ in said(command)]
    assert "hush" not in repr(command)
    assert ("…" in shown) == any(one.code == "S310" for one in command.leftovers)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--gpus", "4"], "the container has 4 GPUs, and the layout takes 2"),
        (['--gpus="device=0"'], "the container has 1 GPU, and the layout takes 2"),
        (["--gpus", "device=0,1"], None),
        (["--gpus", "all"], None),
    ],
)
def test_the_gpus_of_a_container_are_held_against_the_layout(option: list[str], told: str | None) -> None:
    command = read_command_line(["docker", "run", *option, "vllm/vllm-openai", "org/m", "-tp", "2"], TABLE, {})

    assert [message for _, message, _ in said(command) if "layout" in message] == ([told] if told else [])


IMAGE = "vllm/vllm-openai:v0.33.0"
SERVER_MODULE = "vllm.entrypoints.openai.api_server"


@pytest.mark.parametrize(
    "words",
    [
        ["docker", "run", "--entrypoint", "bash", IMAGE, "-c", "vllm serve org/m --seed 5"],
        ["docker", "run", "--entrypoint=/bin/sh", IMAGE, "-ec", "cd /x && exec vllm serve org/m --seed 5"],
        ["docker", "run", "--entrypoint", "vllm", IMAGE, "serve", "org/m", "--seed", "5"],
        ["docker", "run", "--entrypoint", "", IMAGE, "vllm", "serve", "org/m", "--seed", "5"],
        ["docker", "run", "--entrypoint", "python3", IMAGE, "-m", SERVER_MODULE, "--model", "org/m", "--seed", "5"],
        ["docker", "run", IMAGE, "sh", "-c", "vllm serve org/m --seed 5"],
        ["docker", "run", "--entrypoint", "/bin/bash", "mine", "-c", "vllm serve org/m --seed 5"],
        ["docker", "run", "--entrypoint=/bin/bash", "mine", "-c", "vllm serve org/m --seed 5"],
        ["docker", "run", "-e", "SEED=5", IMAGE, "bash", "-euo", "pipefail", "-c", "vllm serve org/m --seed $SEED"],
        ["srun", "bash", "-c", f"docker run {IMAGE} org/m --seed 5"],
    ],
)
def test_a_program_of_a_container_s_own(words: list[str]) -> None:
    command = read_command_line(words, TABLE, {})

    assert command.data["model"] == {"id": "org/m", "seed": 5}
    assert command.data.get("engine", {}).get("version") == (None if "mine" in words else "0.33.0")
    assert {code for code, _, _ in said(command)} <= {"S317", "S315"}


def test_an_image_with_another_entry_point_serves_nothing() -> None:
    with pytest.raises(SpecError) as raised:
        read_command_line(["docker", "run", "--entrypoint", "bash", IMAGE, "-c", "nvidia-smi"], TABLE, {})

    assert [one.message for one in raised.value.diagnostics] == ["`docker run` starts no vLLM server"]


def test_variables_of_an_inner_script_are_the_program_s() -> None:
    words = ["srun", "bash", "-c", "export VLLM_LOGGING_LEVEL=DEBUG; VLLM_NO_USAGE_STATS=1 vllm serve org/m --seed $S"]
    command = read_command_line(words, TABLE, {})

    assert command.data["engine"]["env"] == {"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_NO_USAGE_STATS": "1"}
    assert [(code, message) for code, message, _ in said(command)] == [
        ("S317", "`srun` before the program is not carried"),
        ("S318", "nothing above sets `$S` in `$S` (word 4)"),
    ]


def test_variables_go_to_their_fields_or_to_the_engine_env() -> None:
    words = ["VLLM_USE_BREAKABLE_CUDAGRAPH=1", "env", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0"]
    words += ["VLLM_SPARSE_INDEXER_MAX_LOGITS_MB=512", "VLLM_USE_V2_MODEL_RUNNER=1", "vllm", "serve", "org/m"]
    command = read_command_line(words, TABLE, {})

    assert command.data == {
        "servespec": 1,
        "model": {"id": "org/m"},
        "compilation": {"breakable_cudagraph": True},
        "memory": {"estimate_cudagraph_memory": False},
        "engine": {"model_runner": "v2", "env": {"VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": "512"}},
    }
    assert command.leftovers == ()


@pytest.mark.parametrize(("value", "meant"), [("1", True), ("0", False), ("true", False)])
def test_breakable_graphs_are_on_for_one_alone(value: str, meant: bool) -> None:
    words = [f"VLLM_USE_BREAKABLE_CUDAGRAPH={value}", "vllm", "serve", "org/m"]

    assert read_command_line(words, TABLE, {}).data["compilation"] == {"breakable_cudagraph": meant}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the command line is empty"),
        (["vllm", "bench", "serve"], "`vllm bench` starts no vLLM server"),
        (["python", "-m", "http.server"], "`python -m` starts no vLLM server"),
        (["docker", "run", "nginx"], "`docker run` starts no vLLM server"),
    ],
)
def test_other_programs_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        read_command_line(words, TABLE, {})

    assert [(one.code, one.message) for one in raised.value.diagnostics] == [("S301", message)]


def test_without_a_model_the_engine_serves_its_default() -> None:
    command = read_command_line(["vllm", "serve"], TABLE, {})

    assert command.data["model"] == {"id": "Qwen/Qwen3-0.6B"}
    assert said(command) == [
        ("S314", "no model is named, so vLLM serves `Qwen/Qwen3-0.6B`", "name the model"),
    ]


# What is not carried


@pytest.mark.parametrize(
    ("words", "code", "message", "help_text"),
    [
        (["--max-sum-seqs", "4"], "S302", "vLLM 0.33.0 has no flag `--max-sum-seqs` (word 4)",
         "did you mean `--max-num-seqs`?"),
        (["-tp2"], "S302", "vLLM 0.33.0 has no flag `-tp2` (word 4)", "write `-tp 2`"),
        (["-O.cudagraph_mode=FULL"], "S305", ("`--optimization-level` (word 4): expected one of 0, 1, 2, 3, got "
         "`.cudagraph_mode=FULL`"), "write one of them"),
        (["--num-scheduler-steps", "8"], "S303", "`--num-scheduler-steps` (word 4) is a removed vLLM field",
         "delete it: the engine schedules asynchronously by itself"),
        (["--num-speculative-tokens", "3"], "S302", "vLLM 0.33.0 has no flag `--num-speculative-tokens` (word 4)",
         "a spec says it as `speculative.num_speculative_tokens`"),
        (["--decode_context_parallel-size=2", "--prompt-lookup-max", "3"], "S302",
         "vLLM 0.33.0 has no flag `--prompt-lookup-max` (word 5)", "a spec says it as `speculative.prompt_lookup_max`"),
        (["--rope-scaling", "{}"], "S303", "`--rope-scaling` (word 4) is a removed vLLM field",
         "write it as `rope_parameters` under `model.hf_overrides`"),
        (["--task=embed"], "S303", "`--task` (word 4) is a removed vLLM field",
         "write `model.runner`, and `model.convert` for a pooling model"),
        (["--max-num", "4"], "S304", ("`--max-num` (word 4) may mean `--max-num-active-seqs`, "
         "`--max-num-batched-tokens`, `--max-num-queued-reqs`, `--max-num-queued-tokens` and 2 more"),
         "write it in full"),
        (["--max-num-seqs", "1k"], "S305", "`--max-num-seqs` (word 4): expected a whole number in digits, got `1k`",
         "write a whole number in digits"),
        (["--max-num-seqs"], "S305", "`--max-num-seqs` (word 4) has no value",
         "write an integer or null; one that starts with `-` after `=`"),
        (["--enforce-eager=true"], "S305", "`--enforce-eager` (word 4) takes no value", "write `--enforce-eager`"),
        (["--enforce-eager=false"], "S305", "`--enforce-eager` (word 4) takes no value", "write `--no-enforce-eager`"),
        (["-cc", "{cudagraph_mode: FULL}"], "S305", ("`-cc` (word 4): the value is not JSON (expecting property name "
         "enclosed in double quotes: line 1 column 2 (char 1))"), 'write JSON, such as `{"key": 1}`'),
        (["-cc.cudagraph_mode=FUL"], "S305", ("`--compilation-config.cudagraph_mode` (word 4): expected one of `NONE`, "
         "`PIECEWISE`, `FULL`, `FULL_DECODE_ONLY`, `FULL_AND_PIECEWISE` or null, got `FUL`"),
         "did you mean `FULL`?"),
        (["--attention_config.use_fp4_indexer_cache", "True"], "S303",
         "`--attention-config.use_fp4_indexer_cache` (word 4) is a renamed vLLM field",
         "write `attention.indexer_kv_dtype: mxfp4`; `false` is the default"),
        (["-cc.full_cuda_graph=true"], "S303",
         "`--compilation-config.full_cuda_graph` (word 4) is a removed vLLM field",
         "write `compilation.cudagraph_mode: FULL_DECODE_ONLY`"),
        (["-cc.cudagraph_modes=FULL"], "S302",
         "vLLM 0.33.0 knows no `--compilation-config.cudagraph_modes` (word 4)", "did you mean `cudagraph_mode`?"),
        (["-cc.max_decode_cudagraph_capture_requests=256"], "S302",
         "`--compilation-config.max_decode_cudagraph_capture_requests` (word 4) is a field of servespec, not of vLLM",
         "vLLM 0.33.0 has no such field; a spec has, as `compilation.max_decode_cudagraph_capture_requests`"),
        (["--seed", "1", "stray"], "S306", "`stray` (word 6) belongs to no flag",
         "delete it, or check the flag before it"),
        (["--seed", "1", "--seed=2"], "S307", "`--seed` (word 4) is given again: `--seed` (word 6) wins",
         "delete one of them"),
        (["-cc.mode=0", "-cc.mode=3"], "S307",
         "`-cc.mode` is given more than once; the last one (word 5) wins", "delete the others"),
        (["--cudagraph-capture-sizes", "1", "-cc.cudagraph_capture_sizes=[1]"], "S308",
         ("vLLM refuses `--cudagraph-capture-sizes` (word 4) beside `--compilation-config.cudagraph_capture_sizes` "
         "(word 6)"), "delete one of them"),
        (["--spec-tokens", "3", "-sc.num_speculative_tokens=3"], "S308", ("vLLM refuses `--spec-tokens` (word 4) "
         "beside `--speculative-config.num_speculative_tokens` (word 6)"), "delete one of them"),
        (["--moe-backend", "triton", "--kernel-config.moe_backend=deep_gemm"], "S309",
         "`--moe-backend` (word 4) replaces `--kernel-config.moe_backend` (word 6)", "delete one of them"),
        (["-cc", '{"mode": 3}', "-cc.cudagraph_mode=FULL"], "S309", ("the dotted keys from `-cc` (word 6) on replace "
         "the whole value of `-cc` (word 4)"), "write all keys in one form, under one spelling"),
        (["-cc.mode=3", "--compilation-config.cudagraph_mode=FULL"], "S309", ("the dotted keys from "
         "`--compilation-config` (word 5) on replace the whole dotted keys of `-cc` (word 4)"),
         "write all keys in one form, under one spelling"),
        (["--api-key", "s", "t"], "S310", "`--api-key` (word 4) may hold a secret and is not carried",
         "set `VLLM_API_KEY` in the shell that starts the server"),
        (["--hf-token=s"], "S310", "`--hf-token` (word 4) may hold a secret and is not carried",
         "set `HF_TOKEN` in the shell that starts the server"),
        (["--kv-transfer-config.kv_connector_extra_config", '{"a": 1}'], "S310",
         "`--kv-transfer-config.kv_connector_extra_config` (word 4) may hold a secret and is not carried",
         "keep it out of specs"),
        (["--config=a.yaml"], "S313", "vLLM reads no file for `--config` (word 4) joined by `=`",
         "write `--config a.yaml`, in two words"),
        (["--max-loras", "4"], "S313", "`--max-loras` (word 4) has no effect without `--enable-lora`",
         "add `--enable-lora`, or delete it"),
        (["--max-model-len", "auto"], "S316", ("`--max-model-len` (word 4): a spec has no form for `auto`, the longest "
         "context that fits the memory"), "write the length that the engine logs at its start"),
        (["--help"], "S301", "`--help` (word 4) prints help and starts no server", "delete it"),
        (["-cc.mode"], "S305", "`-cc.mode` (word 4) is the last word and has no value", "write its value"),
        (["-sc", "[1]"], "S305", "`-sc` (word 4): expected a mapping", 'write `{"key": value}`'),
        (["--gpu-memory-utilization", "1.5"], "S305",
         "`--gpu-memory-utilization` (word 4): expected at most 1, got `1.5`", "write a number, at most 1"),
    ],
)  # fmt: skip
def test_findings(words: list[str], code: str, message: str, help_text: str) -> None:
    assert said(read(*words)) == [(code, message, help_text)]


def test_a_negative_fraction_is_taken_for_a_dotted_key() -> None:
    assert ("S305", "vLLM reads `-0.5` (word 5) as a dotted key, not as a number") in [
        (code, message) for code, message, _ in said(read("--watermark", "-0.5"))
    ]


def test_a_flag_cut_short_is_taken_where_it_means_one() -> None:
    assert data_of("--max-num-se", "4") == {"scheduler": {"max_num_seqs": 4}}


@pytest.mark.parametrize("words", [["--moe-backend", "auto"], ["--no-monokernel"]])
def test_a_kernel_flag_that_is_off_leaves_the_config_as_it_is(words: list[str]) -> None:
    config = {"moe_backend": "triton", "monokernel": True}

    assert data_of(*words, "--kernel-config", json.dumps(config)) == {"kernel": config}


def test_a_dotted_value_replaces_the_json_of_the_same_flag() -> None:
    assert read("-cc", '{"mode": 3}', "-cc.cudagraph_mode=FULL").data["compilation"] == {"cudagraph_mode": "FULL"}


def test_the_last_of_two_wins_and_a_refused_last_one_is_not_carried() -> None:
    assert read("--seed", "1", "--seed", "2").data["model"] == {"id": MODEL, "seed": 2}
    assert read("--seed", "1", "--seed", "x").data["model"] == {"id": MODEL}


def test_a_value_that_is_lost_is_still_refused() -> None:
    command = read("-cc", '{"mode": "x"}', "-cc", "{}")

    assert [one.code for one in command.leftovers] == ["S305", "S307"]


@pytest.mark.parametrize(
    ("assignment", "code", "message"),
    [
        ("HF_TOKEN=s", "S310", "`HF_TOKEN` (word 1) may hold a secret and is not carried"),
        ("AWS_SECRET=s", "S310", "`AWS_SECRET` (word 1) may hold a secret and is not carried"),
        ("FOO=1", "S315", "vLLM 0.33.0 reads no variable `FOO` (word 1)"),
        ("VLLM_USE_V2_MODEL_RUNNER=yes", "S305", "`VLLM_USE_V2_MODEL_RUNNER` (word 1): expected 0 or 1, got `yes`"),
    ],
)
def test_variables_that_are_not_carried(assignment: str, code: str, message: str) -> None:
    command = read_command_line([assignment, "vllm", "serve", "org/m"], TABLE, {})

    assert command.data == {"servespec": 1, "model": {"id": "org/m"}}
    assert [(one.code, one.message) for one in command.leftovers] == [(code, message)]


def test_findings_stand_in_the_order_of_the_words() -> None:
    words = ["--seed", "x", "--max-loras", "4", "--api-key", "k", "--enforce-eager=1", "--zzz"]

    assert [one.place.word for one in read(*words).leftovers] == [4, 6, 8, 10, 11]


def test_the_module_reads_no_positional_model() -> None:
    words = ["python", "-m", "vllm.entrypoints.openai.api_server", "org/m"]
    command = read_command_line(words, TABLE, {})

    assert command.data["model"] == {"id": "Qwen/Qwen3-0.6B"}
    assert [one.code for one in command.leftovers] == ["S314", "S313"]


# The config file


def test_a_config_file_is_read_and_the_command_line_wins() -> None:
    text = """
max-num-seqs: 64
tensor_parallel_size: 4
enforce-eager: yes
headless: false
compilation-config: {cudagraph_mode: FULL, pass_config: {fuse_norm_quant: true}}
cudagraph-capture-sizes: [1, 2]
quantization: null
"""
    command = read("--max-num-seqs", "128", "--config", "a.yaml", files={"a.yaml": text})

    assert command.leftovers == ()
    assert command.data == {
        "servespec": 1,
        "model": {"id": MODEL, "enforce_eager": True},
        "parallel": {"tensor_parallel_size": 4},
        "scheduler": {"max_num_seqs": 128},
        "compilation": {
            "cudagraph_mode": "FULL",
            "pass_config": {"fuse_norm_quant": True},
            "cudagraph_capture_sizes": [1, 2],
        },
    }


def test_the_model_of_a_config_file_counts_where_no_other_is_named() -> None:
    files = {"a.yaml": "model: org/from-file\n"}

    assert read_command_line(["vllm", "serve", "--config", "a.yaml"], TABLE, files).data["model"]["id"] == (
        "org/from-file"
    )
    assert read("--config", "a.yaml", files=files).data["model"]["id"] == MODEL


def test_findings_of_a_config_file_have_its_lines() -> None:
    command = read("--config", "a.yaml", files={"a.yaml": "seed: x\nenable-prefix-caching: false\n"})

    assert [(one.code, one.message, one.place.file) for one in command.leftovers] == [
        ("S305", "`--seed`: expected a whole number in digits, got `x`", "a.yaml"),
        ("S312", "vLLM drops `enable-prefix-caching: false`", "a.yaml"),
    ]
    assert [one.place.range.start.line for one in command.leftovers if one.place.range] == [1, 2]


def test_the_module_passes_false_on_where_the_key_has_dashes() -> None:
    words = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", "--config", "a.yaml"]
    dashes = read_command_line(words, TABLE, {"a.yaml": "enable-prefix-caching: false\n"})
    underscores = read_command_line(words, TABLE, {"a.yaml": "enable_prefix_caching: false\n"})

    assert dashes.data["memory"] == {"enable_prefix_caching": False}
    assert "memory" not in underscores.data
    assert [one.code for one in underscores.leftovers] == ["S312"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--config", "b.yaml"], "S311", "the file `b.yaml` (word 5) cannot be read"),
        (["--config", "a.json"], "S311", "`a.json` (word 5) is not a YAML file by its name"),
        (["--config"], "S311", "`--config` (word 4) names no file"),
        (["--config", "a.yaml", "--config", "a.yaml"], "S311", "`--config` (word 6) names a second file"),
        (["--config", "bad.yaml"], "S007", None),
    ],
)
def test_config_files_that_cannot_be_used(words: list[str], code: str, message: str | None) -> None:
    command = read(*words, files={"a.yaml": "seed: 1\n", "bad.yaml": "seed: 1\nseed: 2\n"})
    first = command.leftovers[0]

    assert first.code == code
    assert message is None or first.message == message


def test_a_config_file_without_any_model() -> None:
    command = read_command_line(["vllm", "serve", "--config", "a.yaml"], TABLE, {"a.yaml": "seed: 1\n"})

    assert [one.code for one in command.leftovers] == ["S311"]


# Numbers


@pytest.mark.parametrize(
    ("text", "number"), [("1k", 1000), ("1K", 1024), ("25.6k", 25600), (" 2M ", 2**21), ("3g", 3 * 10**9), ("7", 7)]
)
def test_short_numbers(text: str, number: int) -> None:
    assert human_readable_int(text) == number


@pytest.mark.parametrize("text", ["1.5K", "k", "1kb", "", "1e3", "9" * 400 + ".0k"])
def test_what_is_no_short_number(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any ValueError means that it is none
        human_readable_int(text)


def test_auto_is_minus_one() -> None:
    assert [human_readable_int_or_auto(text) for text in ("auto", "AUTO", "-1", "8K")] == [-1, -1, -1, 8192]


def test_short_numbers_in_json_are_written_out_where_they_are_bare() -> None:
    assert expanded('{"a": 80m, "80m": "1k", "b": [1.5k]}') == '{"a": 80000000, "80m": "1k", "b": [1500]}'


# The whole


def test_the_source_is_a_spec_of_the_command_line() -> None:
    command = read("-tp", "2", "-sc", '{"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 7}')
    source = command_line_source(command, "h200", 2)
    spec = parse_spec(source).spec

    assert source.name == "command line"
    assert list(source.data) == ["servespec", "model", "hardware", "parallel", "speculative"]
    assert source.data["hardware"] == {"gpu": "h200", "count": 2}
    assert source.place_of(("model", "id")).range is None
    assert json.loads(source.text) == source.data
    assert spec is not None
    assert spec_findings(spec, source, TABLE, allow_code=False) == ()
