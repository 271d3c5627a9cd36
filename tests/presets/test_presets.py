"""Every preset is planned, and says of itself what is true."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Severity
from servespec.presets.catalog import (
    Preset,
    PresetBasis,
    PresetGoal,
    every_model,
    model_facts,
    preset_names,
    preset_of,
    presets,
    with_cost,
    without_cost,
)
from servespec.provenance import PRESET_PREFIX
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import read_spec, spec_diagnostics
from servespec.schema.modeline import MODELINE
from tests.plans import REPOSITORY

pytestmark = pytest.mark.usefixtures("quiet_shell", "no_model_cache")

each = pytest.mark.parametrize("name", preset_names())

ACCEPTED_WARNINGS = {
    # The budget of one decode graph ends the drafts' graphs at 585 requests, as published.
    "deepseek-v4-flash-dspark__gb200x4__balanced": {"P102"},
    # Both are published at budgets that leave less than the error bars of the ledger.
    "deepseek-v4-flash-dspark__rtx-pro-6000x2__long-context": {"P127"},
    "deepseek-v4-flash__gb10x2__balanced": {"P127"},
    # Steps of 4,096 tokens, as published.
    "deepseek-v4.1-flash__gb300x4__latency": {"R102"},
    # Dense models: prompts above the cap run eagerly on purpose, since graphs of them gain nothing.
    "llama-3.1-8b__h200__variable-load": {"P107"},
    "llama-3.3-70b__h200x2__balanced": {"P107"},
    "qwen3-8b__h200__balanced": {"P107"},
    "qwen3-8b__h200__latency": {"P107"},
    "qwen3.8-27b__gb200__balanced": {"P107"},
}
"""The only warnings that a preset's plan has, by preset; each is told in the preset's comments."""


VALUED = re.compile(r" *(?:- |[\w-]+: )\S.*")
EVIDENT = re.compile(
    r"servespec: 1"
    r"|hardware: \{gpu: [\w-]+(?:, count: \d)?\}"
    r"|model: \{id: \S+\}"
    r"|  (?:id|model): \S+"
    r"| *method: \w+"
)
"""Lines that need no reason: a preset's name says its model and its machine."""


@pytest.fixture(scope="module")
def no_model_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@cache
def plan_of(name: str) -> Plan:
    """As a person gets it who has neither network nor model."""
    return compile_spec(compile_request(read_spec(f"{PRESET_PREFIX}{name}"), Options()))


@cache
def document_of(name: str) -> dict[str, Any]:
    return plan_of(name).to_json()


# What a preset says


@each
def test_the_name_says_model_hardware_and_goal(name: str) -> None:
    preset, spec = preset_of(name), plan_of(name).resolution.request.spec
    hardware = preset.gpu if preset.count == 1 else f"{preset.gpu}x{preset.count}"

    assert name == f"{preset.model}__{hardware}__{preset.goal}"
    assert (spec.hardware.gpu, spec.hardware.count, spec.model.id) == (preset.gpu, preset.count, preset.model_id)


@each
def test_it_starts_with_the_schema_and_two_paragraphs(name: str) -> None:
    preset = preset_of(name)
    first, *rest = preset.text.splitlines()

    assert first == MODELINE
    assert preset.summary.endswith(".")
    assert preset.evidence.endswith(".")
    assert rest[0].startswith("# ")
    assert max(map(len, preset.text.splitlines())) <= 120


@each
def test_every_value_says_why(name: str) -> None:
    """On its line or the one above."""
    _, *lines = without_cost(preset_of(name).text).splitlines()
    unexplained = [
        line
        for above, line in pairwise(lines)
        if VALUED.fullmatch(line) and "#" not in line and "#" not in above and not EVIDENT.fullmatch(line)
    ]

    assert unexplained == []


@each
def test_what_is_measured_names_its_figures(name: str) -> None:
    preset = preset_of(name)
    files = re.findall(r"docs/measurements/[\w.-]+\.json", preset.evidence)

    assert [file for file in files if not (REPOSITORY / file).is_file()] == []
    assert bool(files) == (preset.basis is PresetBasis.MEASURED)


@each
def test_the_memory_of_what_is_modelled_is_known(name: str) -> None:
    memory = document_of(name)["memory"]
    fits = memory["fits"] if memory else None

    assert (
        fits
        in {
            PresetBasis.MEASURED: ("yes", "marginal", "unknown"),
            PresetBasis.MODELLED: ("yes",),
            PresetBasis.EXAMPLE: ("unknown", None),
        }[preset_of(name).basis]
    )


@each
def test_nothing_is_recommended_for_a_dense_model_on_one_gpu(name: str) -> None:
    preset = preset_of(name)
    facts = model_facts(preset.model_id)
    assert facts is not None
    names = text_config(facts.config)
    is_dense = "num_hidden_layers" in names and not any("experts" in key for key in names)
    alone = preset.count == 1 and preset.gpu != "cpu"

    assert not (is_dense and alone) or "nothing is recommended for a dense model on one GPU" in preset.evidence
    assert "recommended" not in preset.evidence or (is_dense and alone)


def test_what_nobody_validated_says_so() -> None:
    unvalidated = {one.model for one in presets() if one.evidence.startswith("unvalidated: ")}

    assert unvalidated == {"glm-5-fp8", "hy4"}


def test_there_are_presets_for_every_kind_of_gpu() -> None:
    by_capability: dict[tuple[int, int], list[Preset]] = {}
    for one in presets():
        by_capability.setdefault(DEVICES[one.gpu].compute_capability, []).append(one)
    blackwell = [*by_capability[10, 0], *by_capability[10, 3]]

    assert {one.gpu for one in blackwell} == {"gb200", "b200", "gb300"}
    assert min(len(blackwell), len(by_capability[9, 0]), len(by_capability[12, 0])) >= 3
    assert {one.count for one in by_capability[12, 0]} == {1, 2}
    assert {one.goal for one in by_capability[12, 0] if one.count == 2} == {
        PresetGoal.LONG_CONTEXT,
        PresetGoal.VARIABLE_LOAD,
    }
    assert [one.count for one in by_capability[12, 1]] == [2]
    assert [one.goal for one in by_capability[0, 0]] == [PresetGoal.FIRST_STEPS]


# What is planned


@each
def test_it_is_valid_strictly(name: str) -> None:
    findings = spec_diagnostics(read_spec(f"{PRESET_PREFIX}{name}"), allow_code=False)

    assert [one.code for one in findings if one.severity is not Severity.NOTE] == []


@each
def test_it_is_planned_with_no_other_warning(name: str) -> None:
    warnings = {one.code for one in plan_of(name).diagnostics if one.severity is Severity.WARNING}

    assert warnings == ACCEPTED_WARNINGS.get(name, set())


@each
def test_every_decode_batch_of_the_target_runs_from_a_full_graph(name: str) -> None:
    document = document_of(name)
    rows = [row for row in document["coverage"]["decode"] if row["runner"] == "target"]
    modes = {row["mode"] for row in rows}
    widest = document["resolved"]["scheduler.max_num_seqs"]["value"]

    assert modes == {"prefill-only": {"PIECEWISE"}, "first-steps": {"EAGER"}}.get(preset_of(name).goal, {"FULL"})
    assert (rows[0]["from_requests"], rows[-1]["to_requests"]) == (1, widest)
    # Loads at which verification may be of either kind are in two ranges.
    assert all(after["from_requests"] <= before["to_requests"] + 1 for before, after in pairwise(rows))


@each
def test_a_dry_run_gives_the_launch_line(name: str) -> None:
    done = CliRunner().invoke(app, ["serve", "--dry-run", "--format", "json", f"{PRESET_PREFIX}{name}"])
    launch = json.loads(done.stdout)
    graphs_off = preset_of(name).gpu == "cpu"

    assert done.exit_code == 0
    assert preset_of(name).model_id in launch["argv"]
    assert ("--enforce-eager" in launch["argv"]) == graphs_off
    assert shlex.join(launch["argv"])


def test_the_cpu_preset_is_the_embedded_engines() -> None:
    name = "smollm2-135m__cpu__first-steps"
    document = document_of(name)

    assert document["launch"]["argv"][:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert document["engine"]["lowering"] == "none"


def test_a_value_is_laid_over_a_preset() -> None:
    source = read_spec("preset:qwen3-8b__h200__balanced", ("scheduler.max_num_seqs=8",))

    assert source.data["scheduler"] == {"max_num_seqs": 8, "max_num_batched_tokens": 8192}
    assert source.name == "preset:qwen3-8b__h200__balanced"


# The generated block


def test_the_block_is_laid_after_the_spec_and_replaced() -> None:
    text = "servespec: 1\nmodel: {id: a}\n"
    once = with_cost(text, "vLLM 1", ["", "  decode 1-2", "rest"])

    assert without_cost(once) == text
    assert with_cost(once, "vLLM 1", ["", "  decode 1-2", "rest"]) == once
    assert once.splitlines()[3:] == [
        "# What it costs and gives, as planned for vLLM 1; written by tools/gen_docs.py, estimates where it says so:",
        "#",
        "#     decode 1-2",
        "#   rest",
        "# End of what the plan says",
    ]


@each
def test_the_block_is_of_the_plan_that_people_get(name: str) -> None:
    """The tool compiles from values; this is the plan of the command line."""
    document = document_of(name)
    graphs = sum(row["graphs"] for row in document["runners"])
    line = next(line for line in preset_of(name).text.splitlines() if line.startswith("#     graphs  "))

    assert line.split()[2].rstrip(":").replace(",", "") == (str(graphs) if graphs else "none")


# Facts of models


def test_every_model_of_a_preset_has_facts_and_no_other_has() -> None:
    named = set()
    for name in preset_names():
        spec = plan_of(name).resolution.request.spec
        named |= {spec.model.id, *filter(None, [spec.speculative.model if spec.speculative else None])}

    assert named == {facts.model for facts in every_model()}


@pytest.mark.parametrize("facts", tuple(every_model()), ids=lambda facts: facts.model)
def test_facts_say_where_they_are_from(facts: Any) -> None:
    assert facts.source
    assert facts.config["architectures"]
    assert model_facts(facts.model) == facts


def test_the_wheel_has_the_presets() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel")
    builder = wheel.WheelBuilder(str(REPOSITORY))
    packed = {Path(one.distribution_path) for one in builder.recurse_included_files()}
    present = {path.relative_to(REPOSITORY) for path in (REPOSITORY / "servespec/presets").rglob("*") if path.is_file()}

    assert {path for path in present if "__pycache__" not in path.parts} <= packed
