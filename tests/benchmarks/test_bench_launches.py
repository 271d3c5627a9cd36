"""Launches of a bench from its results and records: what is told of each arm, and what keeps one from being told."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import bench_launches
import pytest

from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.runtime.bench.arms import Arm, arm_of
from servespec.runtime.bench.command import further_settings
from servespec.runtime.bench.design import BenchDesign
from servespec.runtime.capture_log import planned_counts
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.record import Measured, record_of
from servespec.runtime.spec_file import read_spec
from tests.plans import MODELS, Json
from tests.step_curves import roofline, step_document, written

pytestmark = pytest.mark.usefixtures("quiet_shell")

FIXED = """\
servespec: 1
model: {id: models/target, max_model_len: 4096}
hardware: {gpu: h200}
scheduler: {max_num_seqs: 64}
speculative: {method: eagle3, model: models/draft, num_speculative_tokens: 7}
engine: {version: 0.33.0, lowering: extension}
"""
TIERS = FIXED.replace(
    "_tokens: 7}", "_tokens: 7, dynamic: {from_curve: curve.json, acceptance_rates: [.8, .6, .5, .4, .3, .2, .1]}}"
)
DESIGN = BenchDesign(
    arms=("spec", "fixed", "stock"),
    concurrencies=(1,),
    input_tokens=32,
    output_tokens=96,
    prompts_per_request=2,
    rounds=1,
    seed=0,
    side_by_side_kv_bytes=4 << 30,
)
MADE_ELSEWHERE = {
    "versions": {"servespec": "0.1.0", "vllm": "0.33.0"},
    "device": ["A GPU of another machine"],
    "driver": "1.2.3",
    "date": "2001-02-03",
    "command": "servespec bench tiers.yaml --arms spec,fixed.yaml --record log",
}
SIDE_BY_SIDE = ["memory.kv_cache_memory_bytes=4294967296", "memory.gpu_memory_utilization=0.05"]
COSTS = {"pool_bytes": 3 << 20, "device_bytes": 5 << 20, "seconds": 0.5}


@pytest.fixture(scope="module")
def benched(tmp_path_factory: pytest.TempPathFactory, quiet_shell: None) -> Path:
    """The folder of two specs with the models, `bench.json`, and what the bench left under `log`."""
    folder = tmp_path_factory.mktemp("specs")
    for name, model in (("target", "qwen3-8b"), ("draft", "eagle3-draft")):
        shutil.copytree(MODELS / model, folder / "models" / name)
    (folder / "tiers.yaml").write_text(TIERS)
    (folder / "fixed.yaml").write_text(FIXED)
    identity = identity_of(plan_of(folder / "fixed.yaml").to_json())
    written(folder, step_document(identity, roofline(), (0, 1, 3, 7)))
    arms = [arm(folder, label) for label in DESIGN.arms]
    for one in arms:
        leave(one, folder / "log" / f"{one.label}-1")
    document = {
        **MADE_ELSEWHERE,
        "design": DESIGN.to_json(),
        "arms": {one.label: one.to_json() for one in arms},
        "launches": [{"arm": one.label, "round": 1} for one in arms],
    }
    (folder / "bench.json").write_text(json.dumps(document))
    return folder


def plan_of(spec: Path, *settings: str) -> Plan:
    return compile_spec(compile_request(read_spec(str(spec), settings), Options(settings=settings)))


def arm(folder: Path, label: str) -> Arm:
    spec = str(folder / {"fixed": "fixed.yaml"}.get(label, "tiers.yaml"))
    name = label if label == "stock" else spec
    return arm_of(name, label, spec, Options(), further_settings(DESIGN))


def leave(arm: Arm, folder: Path) -> None:
    """As a launch of ``arm`` would: every graph captured, each row for three MiB."""
    folder.mkdir(parents=True)
    plan = plan_of(Path(arm.spec), *arm.settings, "serve.port=49113")
    record = record_of(plan, Measured(started=1.0, ready=2.0, ended=3.0, exit_code=143))
    for row in record["runners"]:
        row["captured"] = {"graphs": [row["graphs"]], "verdict": "as_planned", "costs": [COSTS]}
    record["measured"] |= {"verdict": "as_planned", "evidence": "workers", "graphs_at_exit": "same"}
    (folder / "record.json").write_text(json.dumps(record))
    bars = planned_counts(plan).items()
    lines = [f"Capturing {title} CUDA graphs ({mode}): 100%|#| {count}/{count}" for (title, mode), count in bars]
    (folder / "engine.log").write_text("\n".join(lines))
    graph = {"graph": [8, 1, 8, 0, 0, 1, 0], **COSTS}
    report = {
        "format": 1,
        "capture_seconds": 1.5,
        "graph_bytes": 7 << 20,
        "memory": {"held_bytes": 9 << 20},
        "remedies": {"one_capture_stream": 3},
        "captures": [{"class": "ModelCudaGraphManager", "query_len": 8, "mode": "FULL", "graphs": [graph]}],
        "managers": [{"class": "ModelCudaGraphManager", "query_len": 8, "full": [graph["graph"]]}],
        "compiled_pieces": [{"pieces": 37, "sizes": [[1, 0], [2, 0]]}],
    }
    (folder / "captured-0-0.json").write_text(json.dumps(report))


def bench_in(folder: Path) -> Json:
    found: Json = json.loads((folder / "bench.json").read_text())
    return found


@pytest.fixture(scope="module")
def document(benched: Path) -> Json:
    return bench_launches.document_of(bench_in(benched), benched / "log", benched)


def test_the_machine_is_that_of_the_bench(document: Json) -> None:
    assert {key: document[key] for key in MADE_ELSEWHERE} == MADE_ELSEWHERE


def test_every_launch_says_what_was_planned_and_captured(document: Json) -> None:
    assert [(one["arm"], one["spec"], one["text"]) for one in document["launches"]] == [
        ("spec", "tiers.yaml", TIERS),
        ("fixed", "fixed.yaml", FIXED),
        ("stock", "tiers.yaml", TIERS),
    ]
    assert [one["lowering"] for one in document["launches"]] == ["extension", "extension", "none"]
    assert list(document["models"]) == ["models/target", "models/draft"]
    for one in document["launches"]:
        assert one["planned"] == one["captured"]
        assert set(one["planned"]) == {f"{name} PIECEWISE" for name in ("target", "prefill")} | {
            f"{name} FULL" for name in ("target", "prefill", "decode")
        }
        assert one["equal"] is True
        assert one["measured"]["graphs_at_exit"] == "same"
        assert one["exit_code"] == 143


def test_settings_of_side_by_side_are_over_every_spec(document: Json) -> None:
    tiers, fixed, stock = (one["settings"] for one in document["launches"])

    assert fixed == SIDE_BY_SIDE
    assert tiers[:2] == SIDE_BY_SIDE
    assert stock[:3] == ["engine.lowering=none", *SIDE_BY_SIDE]


def test_tiers_stand_in_place_of_their_curve(document: Json, benched: Path, tmp_path: Path) -> None:
    """As the note of the plan writes them, so that the plan can be made again without the curve."""
    (tiers, *_), (_, _, setting) = document["launches"], document["launches"][0]["settings"]
    record = json.loads((benched / "log" / "spec-1" / "record.json").read_text())
    (note,) = (one for one in record["diagnostics"] if one["code"] == "P142")

    assert len(record["tiers"]["chosen"]) > 1
    assert note["help"] == f"write it by hand as `{setting.removeprefix('speculative.').replace('=', ': ', 1)}`"
    (tmp_path / "models").symlink_to(benched / "models")
    (tmp_path / "spec.yaml").write_text(tiers["text"])
    again = plan_of(tmp_path / "spec.yaml", *tiers["settings"]).to_json()
    assert [row["sizes"] for row in again["runners"]] == [row["sizes"] for row in record["runners"]]


def test_what_the_other_arms_change_is_left_out(document: Json, benched: Path) -> None:
    costs = [cost for one in document["launches"] for row in one["row_costs"] for cost in row["costs"]]

    assert costs
    assert all(cost == {"pool_bytes": 3 << 20} for cost in costs)
    text = json.dumps(document["launches"])
    assert not any(f'"{word}"' in text for word in ("device_bytes", "graph_bytes", "held_bytes", "seconds", "ranks"))
    assert document["launches"][0]["reports"] == [
        {
            "format": 1,
            "remedies": {"one_capture_stream": 3},
            "managers": [{"class": "ModelCudaGraphManager", "query_len": 8, "full": 1}],
            "compiled_pieces": [{"pieces": 37, "sizes": 2}],
        }
    ]
    assert str(benched) not in json.dumps(document)


def test_a_graph_that_is_missing_is_told(benched: Path, tmp_path: Path) -> None:
    records = shutil.copytree(benched / "log", tmp_path / "log")
    log = records / "fixed-1" / "engine.log"
    log.write_text("\n".join(log.read_text().splitlines()[1:]))

    spec, fixed, _ = bench_launches.document_of(bench_in(benched), records, benched)["launches"]

    assert (spec["equal"], fixed["equal"]) == (True, False)


def refusal(bench: Json, records: Path, models: Path) -> str:
    with pytest.raises(SystemExit) as caught:
        bench_launches.document_of(bench, records, models)
    return str(caught.value)


def test_a_missing_folder_of_records_is_named(benched: Path, tmp_path: Path) -> None:
    said = refusal(bench_in(benched), tmp_path / "elsewhere", benched)

    assert said.startswith(f"there is no record.json in {tmp_path / 'elsewhere' / 'spec-1'}: ")
    assert "--record" in said


def without_a_log(_: Json, folder: Path) -> None:
    (folder / "log" / "fixed-1" / "engine.log").unlink()


def without_side_by_side(bench: Json, _: Path) -> None:
    bench["design"]["side_by_side_kv_bytes"] = None


def with_another_cache(bench: Json, _: Path) -> None:
    bench["design"]["side_by_side_kv_bytes"] = 5 << 30


def with_another_text(bench: Json, _: Path) -> None:
    bench["arms"]["fixed"]["texts"]["fixed.yaml"] = FIXED.replace("64", "32")


def with_another_config(_: Json, models: Path) -> None:
    (models / "models" / "draft" / "config.json").write_text("{}")


def without_models(_: Json, models: Path) -> None:
    shutil.rmtree(models / "models")


def with_a_broken_record(_: Json, folder: Path) -> None:
    (folder / "log" / "fixed-1" / "record.json").write_text("{}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_a_log, "there is no engine.log in"),
        (without_side_by_side, "the arms of this bench took turns"),
        (with_another_cache, "arm spec was served from more than its one spec"),
        (with_another_text, "arm fixed was served from more than its one spec"),
        (with_another_config, "draft/config.json is not the config that arm spec was served with"),
        (without_models, "target/config.json is not the config that arm spec was served with"),
        (with_a_broken_record, "is no record of a launch"),
    ],
)
def test_what_is_not_of_the_launch_is_refused(
    change: Callable[[Json, Path], None], said: str, benched: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(benched, tmp_path / "specs", symlinks=True)
    bench = bench_in(folder)
    change(bench, folder)

    assert said in refusal(bench, folder / "log", folder)


def test_the_file_is_written_and_its_verdict_is_the_exit_code(
    benched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Mapping[str, object]
) -> None:
    out = tmp_path / "launches.json"
    words = ["--out", str(out), "--models", str(benched), str(benched / "bench.json"), str(benched / "log")]
    monkeypatch.setattr("sys.argv", ["bench_launches.py", *words])

    assert bench_launches.main() == 0
    assert json.loads(out.read_text()) == json.loads(json.dumps(document))
