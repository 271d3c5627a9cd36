"""The launch of every preset, given to the parser of the imported engine: no flag, field or value is of ours alone."""

import functools
import json
from typing import Any

import pytest

from servespec.compiler.facts import engine_fields as facts
from servespec.compiler.pipeline import compile_spec
from servespec.presets.catalog import preset_names
from servespec.provenance import PRESET_PREFIX
from servespec.runtime.gather import CPU_ENGINE_VERSION, Options, compile_request
from servespec.runtime.spec_file import read_spec
from tests.differential.engine_oracle import engine_root
from tests.differential.engine_process import PYTHON, run

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with torch"),
    pytest.mark.usefixtures("quiet_shell"),
]


def launch_of(name: str) -> dict[str, Any]:
    """The plan's launch for the released engine of its kind, with the values that the spec resolved to."""
    on_cpu = "__cpu__" in name
    version = CPU_ENGINE_VERSION if on_cpu else facts.versions()[-1]
    source = read_spec(f"{PRESET_PREFIX}{name}", (f"engine.version={version}",))
    plan = compile_spec(compile_request(source, Options())).to_json()
    words = plan["launch"]["argv"]
    entry = "api_server" if on_cpu else "serve"
    start = words.index("--model") if on_cpu else words.index("serve") + 1
    resolved = {path: one["value"] for path, one in plan["resolved"].items()}
    return {"version": version, "request": {"words": words[start:], "entry": entry, "files": {}}, "resolved": resolved}


@functools.cache
def launches() -> dict[str, dict[str, Any]]:
    return {name: launch_of(name) for name in preset_names()}


@functools.cache
def answers(version: str) -> dict[str, Any]:
    """What the engine makes of each launch, one process for all of a version."""
    of_version = {name: one["request"] for name, one in launches().items() if one["version"] == version}
    return dict(zip(of_version, parsed(version, list(of_version.values())), strict=True))


def parsed(version: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    root = engine_root(version)
    if root is None:
        pytest.skip(f"no vLLM {version} (tools/fetch_engines.py)")
    answers: list[dict[str, Any]] = run("real_command_line.py", root, json.dumps(requests))["answers"]
    return answers


@pytest.mark.parametrize("name", preset_names())
def test_the_engine_takes_the_launch(name: str) -> None:
    launch = launches()[name]
    answer = answers(launch["version"])[name]

    assert "refusal" not in answer, answer["refusal"]
    values, resolved = answer["values"], launch["resolved"]
    assert values["max_num_seqs"] == resolved["scheduler.max_num_seqs"]
    assert values["max_num_batched_tokens"] == resolved["scheduler.max_num_batched_tokens"]
    assert (values["speculative_config"] is not None) == ("speculative.num_speculative_tokens" in resolved)


MISTAKES = (["--no-such"], ["--max-num-seqs", "few"], ["--attention-config", '{"no_such": 1}'])


def test_the_parser_refuses_what_is_not_the_engines() -> None:
    """So that what is taken above says something."""
    request = dict(next(one for one in launches().values() if one["request"]["entry"] == "serve")["request"])
    spoilt = [{**request, "words": [*request["words"], *more]} for more in MISTAKES]
    found = parsed(facts.versions()[-1], spoilt)

    assert ["refusal" in one for one in found] == [True] * len(MISTAKES)
