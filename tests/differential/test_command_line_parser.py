"""Our reading of command lines against the parser of the imported engine, over hundreds of random lines."""

import functools
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line import read_command_line
from servespec.compiler.command_line.config_file import Reading
from servespec.compiler.command_line.program import read_program
from servespec.compiler.command_line.reading import Flags, read_flags
from servespec.compiler.command_line.word import typed_words
from servespec.compiler.facts import engine_fields as facts
from servespec.compiler.facts.engine_fields import EngineFlag, EngineTable, FieldType, Form, Kind
from servespec.compiler.facts.short_forms import AUTO_FLAG, SHORT_FORM_FLAGS
from servespec.diagnostics import Diagnostic, has_errors
from tests.differential.engine_process import PYTHON, run

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with torch"),
]

ROOT = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines")).resolve()
LINES = 600

Line = dict[str, Any]

# Written by the lines themselves, read by an action of its own, or with choices that the parser changes.
LEFT_OUT = {"config", "model", "lora_modules", "log_config_file", "mm_processor_device", "all2all_backend"}

# Per flag and key, values that the engine takes; some of a config's kin are refused without each other.
CONFIG_KEYS: dict[str, dict[str, list[Any]]] = {
    "compilation_config": {
        "cudagraph_mode": ["FULL", "piecewise", "Full_And_Piecewise", "NONE"],
        "cudagraph_capture_sizes": [[1, 2, 4], [8, 512], [3]],
        "mode": [0, 3, "VLLM_COMPILE"],
        "debug_dump_path": ["dumps/x.y"],
        "pass_config.fuse_norm_quant": [True, False, "True", "0", 1],
        "compile_sizes": [[1, "2", "3"]],
        "max_cudagraph_capture_size": [512, "1k", "2K", "64"],
    },
    "attention_config": {"backend": ["FLASH_ATTN", "flashinfer", "TRITON_ATTN"], "flash_attn_version": [2, 3, "3"]},
    "kernel_config": {"moe_backend": ["auto", "triton", "deep_gemm"]},
    "speculative_config": {
        "method": ["eagle3", "mtp", "ngram"],
        "num_speculative_tokens": [1, 3, 9],
        "model": ["org/draft.v2"],
        "num_speculative_tokens_per_batch_size": [[[1, 4, 3], [5, 64, 1]]],
    },
    "kv_transfer_config": {
        "engine_id": ["node.0"],
        "kv_role": ["kv_producer", "kv_consumer", "kv_both"],
        "kv_port": [14579, "2k", "3000"],
    },
    "structured_outputs_config": {"backend": ["auto", "xgrammar", "guidance"]},
}
WORDS = ["auto", "x", "a.b/c", "Qwen/Qwen3-8B", "0", "v1.2"]


def spelled(flag: EngineFlag, rng: random.Random) -> str:
    """One of the spellings of a flag, sometimes with underscores."""
    spelling = rng.choice([one for one in flag.spellings if one != "-O"])
    if spelling.startswith("--") and rng.random() < 0.3:
        return "--" + spelling[2:].replace("-", "_")
    return spelling


def word_of(flag: EngineFlag, kind: FieldType, rng: random.Random) -> str:
    """A word that the engine takes for one value of a flag."""
    members = {one.kind: one for one in kind.members}
    if Kind.ENUM in members:
        enum = members[Kind.ENUM]
        name: str = rng.choice(enum.choices)
        return str(rng.choice(enum.values)) if flag.name == "optimization_level" else rng.choice([name, name.lower()])
    if Kind.LITERAL in members and (Kind.STR not in members or rng.random() < 0.8):
        return str(rng.choice(members[Kind.LITERAL].choices))
    if Kind.INT in members and Kind.STR not in members:
        short = flag.name in ("max_model_len", "max_num_batched_tokens", "kv_cache_memory_bytes")
        return rng.choice(["8k", "8K", "1.5k", "4096"]) if short else str(rng.randint(1, 99))
    if Kind.FLOAT in members:
        return rng.choice(["0.5", "1", ".25", "1e-3"])
    return rng.choice(WORDS)


def value_words(flag: EngineFlag, rng: random.Random) -> list[str]:
    if flag.form is Form.LIST:
        inner = next(one for one in flag.type.members if one.kind in (Kind.LIST, Kind.SET))
        return [word_of(flag, inner.of[0], rng) for _ in range(rng.randint(1, 3))]
    if flag.form is Form.JSON:
        return [json.dumps(json_value(flag, rng))]
    if flag.name == "device_ids":
        return [rng.choice(["0", "0,1", "GPU-ab, 2"])]
    return [word_of(flag, flag.type, rng)]


def some(keys: dict[str, list[Any]], rng: random.Random) -> list[str]:
    return rng.sample(sorted(keys), rng.randint(1, len(keys)))


def json_value(flag: EngineFlag, rng: random.Random) -> Any:
    keys = CONFIG_KEYS.get(flag.name)
    if keys is not None:
        return {key: rng.choice(keys[key]) for key in some(keys, rng) if "." not in key}
    members = {one.kind for one in flag.type.members}
    if Kind.LIST in members:
        return ["a", "b.c"]
    return {} if flag.type.config else {"a": 1, "b": ["c.d"]}


def flag_words(flag: EngineFlag, rng: random.Random) -> list[str]:
    """A flag with its values, in one of the ways to write it."""
    if flag.form is Form.SWITCH:
        return [spelled(flag, rng)]
    if flag.form is Form.BOOLEAN:
        return [rng.choice(flag.negations) if flag.negations and rng.random() < 0.5 else spelled(flag, rng)]
    if flag.name == "optimization_level" and rng.random() < 0.7:
        level = rng.choice("0123")
        return rng.choice([[f"-O{level}"], ["-O", level], [f"-O={level}"]])
    if flag.name in CONFIG_KEYS and rng.random() < 0.7:
        return dotted_words(flag, rng)
    words = value_words(flag, rng)
    if len(words) == 1 and rng.random() < 0.3:
        return [f"{spelled(flag, rng)}={words[0]}"]
    return [spelled(flag, rng), *words]


def dotted_words(flag: EngineFlag, rng: random.Random) -> list[str]:
    words: list[str] = []
    keys = CONFIG_KEYS[flag.name]
    for key in some(keys, rng)[:2]:
        value, name = rng.choice(keys[key]), spelled(flag, rng)
        if isinstance(value, list) and all(isinstance(one, int | str) for one in value) and rng.random() < 0.5:
            words += [f"{name}.{key}+", ",".join(map(str, value))]
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        words += [f"{name}.{key}={text}"] if rng.random() < 0.5 else [f"{name}.{key}", text]
    return words


def shortened(words: list[str], rng: random.Random) -> list[str]:
    """A flag cut short, often to something ambiguous."""
    head, equals, value = words[0].partition("=")
    if not head.startswith("--") or "." in head or rng.random() > 0.15:
        return words
    return [head[: rng.randint(4, len(head))] + equals + value, *words[1:]]


def broken(words: list[str], rng: random.Random) -> list[str]:
    """Sometimes a slip that the engine may stop at."""
    slips: list[Callable[[], list[str]]] = [
        lambda: [*words, "stray"],
        lambda: [*words, "--no-such-flag", "3"],
        lambda: words[:-1],
        lambda: [*words, "--max-num-seqs=1k"],
        lambda: [*words, "--enforce-eager=true"],
        lambda: [*words, "-tp2"],
        lambda: [*words, "--block-size"],
        lambda: [*words, "--tensor-parallel-size", "x"],
        lambda: [*words, "--swap-space", "4"],
        lambda: [*words, "--served-model-name"],
        lambda: [*words, "-cc.mode"],
    ]
    return rng.choice(slips)() if rng.random() < 0.15 else words


def file_text(flags: list[EngineFlag], rng: random.Random) -> str:
    """A config file of a few lines; JSON is YAML."""
    lines: dict[str, Any] = {}
    for flag in flags:
        key = flag.long[2:].replace("-", rng.choice("-_"))
        if flag.form in (Form.SWITCH, Form.BOOLEAN):
            lines[key] = rng.random() < 0.7
        elif flag.form is Form.JSON:
            lines[key] = json_value(flag, rng)
        elif flag.form is Form.LIST:
            lines[key] = value_words(flag, rng)
        else:
            lines[key] = value_words(flag, rng)[0]
    return json.dumps(lines)


def flags_of(table: EngineTable) -> list[EngineFlag]:
    flags = [table.flag(name) for name in table.flags() if name not in LEFT_OUT]
    return [flag for flag in flags if flag is not None and not flag.secret]


def line(table: EngineTable, rng: random.Random) -> Line:
    flags = rng.sample(flags_of(table), rng.randint(0, 5))
    configs = [flag for name in CONFIG_KEYS if (flag := table.flag(name)) and rng.random() < 0.15]
    groups = [shortened(flag_words(flag, rng), rng) for flag in [*flags, *configs]]
    if rng.random() < 0.15:
        groups.append(flag_words(rng.choice(flags_of(table)), rng))
    files: dict[str, str] = {}
    if rng.random() < 0.2:
        files["c.yaml"] = file_text(rng.sample(flags_of(table), rng.randint(1, 3)), rng)
        groups.append(["--config", "c.yaml"])
    rng.shuffle(groups)
    entry = rng.choice(["serve", "serve", "api_server"])
    words = [word for group in groups for word in group]
    model = rng.choice(["org/model", "./m.v1"])
    if entry == "api_server":
        words += rng.choice([[], ["--model", model], [f"--model={model}"]])
    else:
        words = rng.choice([[model, *words], [model, *words], [*words, "--model", model], words])
    return {"words": broken(words, rng), "entry": entry, "files": files}


@functools.cache
def lines(version: str) -> list[Line]:
    rng = random.Random(20)  # noqa: S311 - the same lines on every run
    table = facts.table(version)
    return [*(line(table, rng) for _ in range(LINES)), *lines_with_false(), *lines_with_short_forms(table)]


def lines_with_false() -> Iterator[Line]:
    """A `false` that the engine drops or takes, by the way in and the spelling of the key."""
    for entry in ("serve", "api_server"):
        for key in ("enable-prefix-caching", "enable_prefix_caching"):
            words = ["--model", "org/model", "--config", "c.yaml"]
            yield {"words": words, "entry": entry, "files": {"c.yaml": f"{key}: false"}}


def lines_with_short_forms(table: EngineTable) -> Iterator[Line]:
    for flag in flags_of(table):
        if flag.form is Form.VALUE and any(one.kind is Kind.INT for one in flag.type.members):
            yield {"words": ["--model", "org/model", flag.long, "1k"], "entry": "api_server", "files": {}}


@functools.cache
def answers(version: str) -> Any:
    root = ENGINES / f"vllm-{version}"
    if not root.is_dir():
        pytest.skip(f"no .engines/vllm-{version}")
    answer = run("real_command_line.py", root, json.dumps(lines(version)))
    assert Path(answer["file"]).is_relative_to(root)
    return answer


@pytest.fixture(params=facts.versions())
def version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


PROGRAMS = {"serve": ["vllm", "serve"], "api_server": ["python", "-m", "vllm.entrypoints.openai.api_server"]}


def ours(one: Line, version: str) -> tuple[Flags, list[Diagnostic]]:
    table = facts.table(version)
    program = read_program(typed_words([*PROGRAMS[one["entry"]], *one["words"]]))
    found: list[Diagnostic] = []
    return read_flags(program, Reading(program.entry, table, one["files"]), found), found


def pairs(version: str) -> Iterator[tuple[Line, dict[str, Any]]]:
    yield from zip(lines(version), answers(version)["answers"], strict=True)


def test_a_line_that_the_engine_takes_has_no_error(version: str) -> None:
    taken = [one for one, real in pairs(version) if "values" in real]

    for one in taken:
        _, found = ours(one, version)
        assert [d.message for d in found if has_errors([d])] == [], one
    assert len(taken) > LINES / 4


def test_a_line_that_the_engine_refuses_has_an_error(version: str) -> None:
    """Over the whole reading: the engine checks some configs in its parser that we check when carrying them."""
    refused = [(one, real) for one, real in pairs(version) if "refusal" in real]

    for one, real in refused:
        words = [*PROGRAMS[one["entry"]], *one["words"]]
        found = read_command_line(words, facts.table(version), one["files"]).leftovers
        assert has_errors(found), (one, real)
    assert len(refused) > LINES / 10


def test_every_flag_has_the_engine_value(version: str) -> None:
    defaults = answers(version)["defaults"]
    compared = 0
    for one, real in pairs(version):
        if "values" not in real:
            continue
        flags, _ = ours(one, version)
        for name, default in defaults.items():
            value = flags.settings[name].value if name in flags.settings else default
            if name not in ("model_tag", "config", "lora_modules") and name in real["values"]:
                assert same(value, real["values"][name]), (name, value, real["values"][name], one)
                compared += name in flags.settings
        assert (flags.positional.text if flags.positional else None) == real["values"]["model_tag"], one
    assert compared > LINES


def same(mine: Any, real: Any) -> bool:
    """Equal, where a config is compared by the keys that were given, an enum by name or value, a set in any
    order; to the parser `-O2` is text, and so is a backend in lower case."""
    if mine == real or (isinstance(mine, int) and real == str(mine)):
        return True
    if isinstance(mine, str) and isinstance(real, str):
        return mine == real.upper()
    if isinstance(real, dict) and "enum" in real:
        return mine in (real["enum"], real["value"]) or str(mine).upper() == real["enum"]
    if isinstance(mine, dict) and isinstance(real, dict):
        return all(key in real and same(value, real[key]) for key, value in mine.items())
    if isinstance(mine, list) and isinstance(real, list):
        return len(mine) == len(real) and (all(map(same, mine, real)) or sorted(map(str, mine)) == sorted(real))
    return False


def test_short_forms_are_taken_where_the_engine_takes_them(version: str) -> None:
    """Each flag of whole numbers is asked with `1k`; choices of numbers are no such flags."""
    lines_asked = list(lines_with_short_forms(facts.table(version)))
    asked = [(one["words"][-2], real) for one, real in pairs(version) if one in lines_asked]
    taken = {spelling for spelling, real in asked if "values" in real}

    assert taken == {"--" + name.replace("_", "-") for name in (*SHORT_FORM_FLAGS.value, AUTO_FLAG.value)}
    assert len(asked) > 40


def test_the_engine_drops_what_we_say_it_drops(version: str) -> None:
    """A `false` of a config file that is a finding leaves the engine's default as it is."""
    table, defaults = facts.table(version), answers(version)["defaults"]
    dropped = 0
    for one, real in pairs(version):
        flags, found = ours(one, version)
        for finding in (d for d in found if d.rule is rules.S312 and "values" in real):
            flag = table.flag("--" + finding.message.split("`")[1].split(":")[0])
            if flag is not None and flag.name not in flags.settings:
                assert real["values"][flag.name] == defaults[flag.name], one
                dropped += 1
    assert dropped > 0
