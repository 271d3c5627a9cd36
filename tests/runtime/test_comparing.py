"""`plan --against`: another spec, a plan, a record or the legacy list; 6 where they differ."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.comparison_schema import COMPARISON_SCHEMA
from servespec.compiler.json_text import json_text
from servespec.runtime.capture import Verdict
from servespec.runtime.record import Measured, record_of
from tests.plans import compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

DRAFTS = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
SPEC = spec_of("qwen3-8b", "h200", speculative=DRAFTS, scheduler={"max_num_seqs": 48})
WIDER = {**SPEC, "compilation": {"max_decode_cudagraph_capture_requests": 32}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a spec, another, and the plan and the record of the first."""
    monkeypatch.chdir(tmp_path)
    plan = compiled(SPEC)
    Path("one.yaml").write_text(json.dumps(SPEC))
    Path("other.yaml").write_text(json.dumps(WIDER))
    Path("plan.json").write_text(json_text(plan.to_json()))
    Path("record.json").write_text(json_text(record_of(plan, Measured(started=0.0))))
    return tmp_path


def plan(*words: str) -> Any:
    return CliRunner().invoke(app, ["plan", *words])


@pytest.mark.parametrize("other", ["one.yaml", "plan.json", "record.json"])
def test_0_for_the_same(folder: Path, other: str) -> None:
    done = plan("one.yaml", "--against", other)

    assert (done.exit_code, done.stdout) == (0, f"one.yaml is the same as {other}\n")


def test_a_launch_that_captured_something_else_is_told(folder: Path) -> None:
    """Its plan is the same, and what it captured is no part of a plan."""
    record = json.loads(Path("record.json").read_text())
    said = {}
    for verdict in Verdict:
        record["measured"]["verdict"] = verdict
        Path("drifted.json").write_text(json.dumps(record))
        said[verdict] = plan("one.yaml", "--against", "drifted.json")

    assert {one.exit_code for one in said.values()} == {0}
    assert [verdict for verdict, one in said.items() if "warning[R024]" in one.stderr] == [Verdict.DIFFERS]


@pytest.mark.parametrize("other", ["one.yaml", "plan.json", "record.json"])
def test_6_for_another(folder: Path, other: str) -> None:
    done, read = plan("other.yaml", "--against", other), plan("other.yaml", "--against", other, "--format", "json")
    document = json.loads(read.stdout)

    assert (done.exit_code, read.exit_code) == (6, 6)
    assert done.stdout.startswith(f"{other} -> other.yaml\n")
    jsonschema.Draft202012Validator(COMPARISON_SCHEMA).validate(document)
    target = next(row for row in document["runners"] if row["routine"] == "uniform_decode")
    # 48 requests of four tokens are 192, within the engine's own reach; the default grid to 32 is sparser.
    assert (target["before"]["largest"], target["after"]["largest"]) == (48, 32)
    assert {
        "runner": "target", "routine": "uniform_decode", "from_requests": 33, "to_requests": 48, "before": "FULL",
        "after": "PIECEWISE", "padding": "none",
    } in document["coverage"]["decode"]  # fmt: skip


def test_the_launch_and_every_total_with_details(folder: Path) -> None:
    brief, whole = plan("other.yaml", "--against", "one.yaml"), plan("other.yaml", "--against", "one.yaml", "--details")

    assert "launch: --additional-config differs" in brief.stdout
    assert "  --additional-config: " in whole.stdout
    assert ("kv_cache_low_bytes" in brief.stdout, "kv_cache_low_bytes" in whole.stdout) == (False, True)


def test_the_legacy_list_of_the_same_spec(folder: Path) -> None:
    done = plan("other.yaml", "--against", "legacy")

    assert done.exit_code == 6
    assert "  engine.lowering: legacy -> extension" in done.stdout


def test_a_command_line_against_a_plan(folder: Path) -> None:
    words = ["--gpu", "h200", "--", "vllm", "serve", model_folder("qwen3-8b"), "--max-num-seqs", "48"]
    done = plan("--against", "plan.json", *words)

    assert done.exit_code == 6
    assert done.stdout.startswith("plan.json -> command line\n")
    assert "a spec that mends it" not in done.stdout


def test_stock_stands_beside_the_plan_and_is_no_difference(folder: Path) -> None:
    done = plan("other.yaml", "--against", "stock")

    assert done.exit_code == 0
    assert "memory beside stock" in done.stdout


def test_the_config_of_one_model_is_not_that_of_another(folder: Path) -> None:
    """With `--model-config` a spec that names no folder is planned; another model has to be found for itself."""
    config = Path(model_folder("qwen3-8b")) / "config.json"
    shutil.copy(config, "config.json")
    named = {**SPEC, "model": {"id": "/nowhere/qwen"}, "speculative": None}
    Path("one.yaml").write_text(json.dumps(named))
    Path("same.yaml").write_text(json.dumps({**named, "scheduler": {"max_num_seqs": 48}}))
    Path("another.yaml").write_text(json.dumps({**named, "model": {"id": "/nowhere/else"}}))

    same = plan("one.yaml", "--against", "same.yaml", "--model-config", "config.json")
    other = plan("one.yaml", "--against", "another.yaml", "--model-config", "config.json")

    assert same.exit_code == 0
    assert (other.exit_code, "/nowhere/else" in other.stderr) == (1, True)


def test_a_preset_stands_where_a_spec_does(folder: Path) -> None:
    name = "preset:qwen3-8b__h200__balanced"
    same, other = plan(name, "--against", name), plan("one.yaml", "--against", name)
    unknown = plan("one.yaml", "--against", "preset:qwen3-8b__h200__balance")

    assert (same.exit_code, other.exit_code) == (0, 6)
    assert other.stdout.startswith(f"{name} -> one.yaml\n")
    assert (unknown.exit_code, "error[R014]" in unknown.stderr) == (1, True)


def test_other_models_are_told_by_name() -> None:
    done = plan("preset:qwen3-30b-a3b-fp8__h200__throughput", "--against", "preset:qwen3-8b__h200__latency")

    assert "  model.id: Qwen/Qwen3-8B -> Qwen/Qwen3-30B-A3B-FP8\n" in done.stdout
    assert "  speculative.model: Tengyunw/qwen3_8b_eagle3 -> Tengyunw/qwen3_30b_moe_eagle3\n" in done.stdout
    assert "launch: the program or its model, " in done.stdout


def test_a_spec_on_standard_input_stands_beside_a_file(folder: Path) -> None:
    done = CliRunner().invoke(app, ["plan", "one.yaml", "--against", "-"], input=Path("other.yaml").read_bytes())

    assert (done.exit_code, done.stdout.splitlines()[0]) == (6, "- -> one.yaml")


@pytest.mark.parametrize(("wrong", "meant"), [("stok", "stock"), ("Legacy", "legacy")])
def test_a_misspelled_word_is_told_the_nearest(folder: Path, wrong: str, meant: str) -> None:
    done = plan("one.yaml", "--against", wrong)

    assert (done.exit_code, done.stdout) == (1, "")
    assert f"= help: did you mean `{meant}`?" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("nothing", None, "error[R018]: `nothing` is no file, and not `stock` or `legacy`"),
        ("c.yaml", "max-num-seqs: 8\n", "error[R018]: `c.yaml` holds no plan: it is a file of the kind engine config"),
        ("s.yaml", "servespec: 1\n", "error[S101]"),
        ("p.json", None, "error[R017]: the file is no plan"),
    ],
)
def test_1_for_what_is_no_plan(folder: Path, name: str, text: str | None, said: str) -> None:
    if name == "p.json":
        text = Path("plan.json").read_text().replace('"mode": "FULL"', '"mode": "HALF"')
    if text is not None:
        Path(name).write_text(text)

    done = plan("one.yaml", "--against", name)

    assert (done.exit_code, done.stdout) == (1, "")
    assert said in " ".join(done.stderr.split())
