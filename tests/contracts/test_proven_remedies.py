"""Proofs of remedies are what the files of measurements that they name say."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.facts.proven_remedies import PROVEN_REMEDIES, ProvenRemedy
from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.plan import Plan
from servespec.compiler.remedies import architecture_of
from servespec.provenance import Sourced
from tests.plans import REPOSITORY, Json, compiled

pytestmark = pytest.mark.usefixtures("quiet_shell")

MEASUREMENTS = REPOSITORY / "docs/measurements"
LAUNCHES = "*-h200-memory-launches-*.json"

proofs = pytest.mark.parametrize("proof", PROVEN_REMEDIES, ids=lambda one: f"{one.remedy}-{one.architecture.target}")


@cache
def document(path: Path) -> Json:
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def spec_of(text: str) -> Json:
    found: Json = YAML(typ="safe", pure=True).load(text)
    return found


def entry(fact: Sourced[Any], kind: str) -> tuple[Json, Json]:
    """The document that a proof names, and the one of its launches or replays that has the spec of that name."""
    found = document(REPOSITORY / fact.path)
    (one,) = (one for one in found[kind] if one["spec"] == fact.quote)
    return found, one


def plan_of(text: str, models: Mapping[str, Json], folder: Path) -> Plan:
    """What is planned today for a spec with the models that it was run with."""
    spec = spec_of(text)
    for section, key in (("model", "id"), ("speculative", "model")):
        name = spec[section][key]
        own = folder / name
        own.mkdir(parents=True)
        (own / "config.json").write_text(json.dumps(models[name]), encoding="utf-8")
        spec[section][key] = str(own)
    return compiled(spec)


def check_where(proof: ProvenRemedy, found: Json, text: str, folder: Path) -> Plan:
    """The models, the GPU and the engine are those of the proof, and the remedy was asked for by name."""
    plan = plan_of(text, found["models"], folder)
    device = DEVICES[spec_of(text)["hardware"]["gpu"]]

    assert architecture_of(plan.resolution) == proof.architecture
    assert found["versions"]["vllm"] == proof.architecture.engine_version
    assert all(name.startswith(f"{device.device_name},") for name in found["device"])
    assert spec_of(text)["remedies"] == {proof.remedy: True}
    assert plan.lowered.remedies == (proof.remedy,)
    return plan


def graph_bytes(launch: Json) -> int:
    (report,) = launch["reports"]
    found: int = report["graph_bytes"]
    return found


def launches_without(text: str) -> Iterator[Json]:
    """Those of the same spec with no remedy, on whatever port."""
    wanted = bare(text)
    for path in sorted(MEASUREMENTS.glob(LAUNCHES)):
        for one in document(path)["launches"]:
            spec = spec_of(one["text"])
            if "remedies" not in spec and bare(one["text"]) == wanted and one["exit_code"] == 0:
                yield one


def bare(text: str) -> Json:
    return {name: section for name, section in spec_of(text).items() if name not in ("remedies", "serve")}


def test_a_proof_is_of_a_remedy_and_there_is_one_for_each_architecture() -> None:
    named = [(one.remedy, one.architecture) for one in PROVEN_REMEDIES]

    assert named
    assert len(named) == len(set(named))
    assert {remedy for remedy, _ in named} <= set(Remedy)


@proofs
def test_what_it_saves_was_measured_there(proof: ProvenRemedy, tmp_path: Path) -> None:
    found, launch = entry(proof.saved, "launches")
    without = list(launches_without(launch["text"]))

    check_where(proof, found, launch["text"], tmp_path)
    assert (launch["exit_code"], launch["equal"], launch["lowering"]) == (0, True, "extension")
    assert [list(report["remedies"]) for report in launch["reports"]] == [[proof.remedy]]
    assert len(without) == 5
    assert all(report["remedies"] == {} for one in without for report in one["reports"])
    assert {graph_bytes(one) - graph_bytes(launch) for one in without} == {proof.saved.value}


@proofs
def test_its_graphs_were_held_against_eager_there(proof: ProvenRemedy, tmp_path: Path) -> None:
    found, replay = entry(proof.replayed, "replays")
    rows, wrong = replay["rows"], ("differs", "not_deterministic", "not_replayed")

    plan = check_where(proof, found, replay["text"], tmp_path)
    assert sum(row.graphs for row in plan.graphs.rows) == proof.replayed.value
    assert sum(row["graphs"] for row in rows) == sum(row["equal"] for row in rows) == proof.replayed.value
    assert all(row[name] == 0 for row in rows for name in wrong)
    assert {row["runner"] for row in rows} == {"target", "drafter"}
    assert replay["failures"] == []
    assert replay["acceptance"]["graphs"] == replay["acceptance"]["eager"] > 0


def test_the_documentation_has_the_same_table() -> None:
    text = (REPOSITORY / "docs/concepts/remedies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*2026-.*\|$", text, re.MULTILINE)

    assert rows == [row_of(proof) for proof in PROVEN_REMEDIES]


def row_of(proof: ProvenRemedy) -> str:
    where, saved, replayed = proof.architecture, proof.saved, proof.replayed
    major, minor = where.compute_capability
    cells = (
        f"`{proof.remedy}`",
        f"`{where.target}`",
        f"`{where.drafter}`",
        f"{major}.{minor}",
        where.engine_version,
        f"`{where.attention_backend}`",
        f"[{saved.value / (1 << 30):.2f} GiB]({saved.path.replace('docs', '..', 1)})",
        f"[{replayed.value} graphs, all as eager]({replayed.path.replace('docs', '..', 1)})",
    )
    return f"| {' | '.join(cells)} |"
