"""`servespec bench` as it is typed: what it refuses before anything starts, its arms, and what it prints."""

import json
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.lower import Lowering
from servespec.render.bench_text import bench_text
from servespec.runtime.bench import command
from servespec.runtime.bench.arms import arm_of
from servespec.runtime.bench.client import bench, kept, reason_of
from servespec.runtime.bench.design import Cell
from servespec.runtime.bench.ratios import paired_ratios
from servespec.runtime.bench.results import cell_json
from servespec.runtime.gather import Options
from servespec.runtime.machine import made_on, this_command
from tests.bench.test_session import HEAD
from tests.plans import REPOSITORY

pytestmark = pytest.mark.usefixtures("quiet_shell")

CASES = REPOSITORY / "tests" / "golden" / "cases"
SPLIT, LEGACY, CPU = (str(CASES / name / "spec.yaml") for name in ("eagle3-h200-five-fields", "legacy-list", "cpu"))


DESIGN: dict[str, Any] = {
    "arms": ("spec",),
    "concurrencies": (1,),
    "input_tokens": 8,
    "output_tokens": 8,
    "prompts_per_request": 1,
    "rounds": 1,
    "seed": 0,
    "side_by_side_kv_bytes": None,
}


def refused(tmp_path: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["bench", *words, "-o", str(tmp_path / "bench.json")])

    assert result.exit_code in (1, 4), result.output
    assert list(tmp_path.iterdir()) == []
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-"], "error[L028]: a bench serves its spec many times"),
        ([SPLIT, "--arms", "fast"], "error[L028]: there is no arm `fast`"),
        ([SPLIT, "--arms", "stock,,legacy"], "error[L028]: `stock,,legacy` has an empty place"),
        ([SPLIT, "--concurrency", "1,many"], "error[L028]: `many` is not a whole number"),
        ([SPLIT, "--concurrency", "100000"], "concurrency 100000 is above `scheduler.max_num_seqs`"),
        ([SPLIT, "--side-by-side", "6 gigs"], "error[L028]: "),
        ([LEGACY, "--input-tokens", "40900"], "requests of 41028 tokens are longer than `model.max_model_len` 40960"),
        ([SPLIT, "--seed", "-1"], "error[L028]: `--seed` is `-1`"),
        ([SPLIT, "--rounds", "0"], "error[L028]: `--rounds` is `0`"),
        ([LEGACY, "--arms", "native"], "error[R116]: "),
        ([SPLIT, "--arms", "stock"], "error[R009]: "),
    ],
)
def test_a_bench_that_cannot_run_starts_nothing(words: list[str], said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, *words)


@pytest.mark.parametrize(
    ("name", "lowering", "decode_requests"),
    [("stock", Lowering.NONE, 64), ("spec", Lowering.EXTENSION, 256), ("legacy", Lowering.LEGACY, 256)],
)
def test_an_arm_is_the_spec_another_way(name: str, lowering: Lowering, decode_requests: int) -> None:
    arm = arm_of(name, "a", SPLIT, Options())
    rows = [row for row in arm.to_json()["runners"] if row["routine"] == "uniform_decode"]

    assert arm.plan.lowered.lowering is lowering
    assert [row["sizes"][-1] for row in rows] == [decode_requests]


def test_the_stock_arm_keeps_a_list_that_is_the_engines_own_field() -> None:
    arm = arm_of("stock", "stock", LEGACY, Options())
    written = arm.plan.resolution.request.spec.compilation.cudagraph_capture_sizes

    assert written
    assert json.dumps(written).replace(" ", "")[1:-1] in " ".join(arm.plan.lowered.argv)


def test_another_spec_is_an_arm() -> None:
    assert arm_of(LEGACY, "other", SPLIT, Options()).plan.resolution.request.source.name == LEGACY


def test_each_arm_says_the_text_of_its_spec() -> None:
    """Arms of other specs could not be told apart by their graphs alone."""
    told = {name: arm_of(name, "a", SPLIT, Options()).to_json()["texts"] for name in ("spec", "legacy", LEGACY)}

    assert told["spec"] == told["legacy"] == {"spec.yaml": Path(SPLIT).read_text(encoding="utf-8")}
    assert told[LEGACY] == {"spec.yaml": Path(LEGACY).read_text(encoding="utf-8")}


def test_an_arm_says_which_remedies_it_runs_with() -> None:
    """Under `auto` another lowering may have other ones, which a ratio of the two is also of."""
    spec = str(CASES / "tiers-h200" / "spec.yaml")
    found = {name: arm_of(name, "a", spec, Options()).to_json()["remedies"] for name in ("legacy", "extension")}

    assert found == {"legacy": [], "extension": ["one_capture_stream"]}


def test_the_head_has_the_text_of_a_preset() -> None:
    preset = "preset:qwen3-8b__h200__balanced"
    wanted = command.Wanted(
        spec=preset, design=command.BenchDesign(**DESIGN), options=Options(), output=Path("b.json"), folder=Path("b")
    )

    head = command._head(wanted, wanted.design, [arm_of("spec", "spec", preset, Options())])

    assert "id: Qwen/Qwen3-8B" in head["spec_text"]
    assert head["spec_text"] in head["arms"]["spec"]["texts"].values()


def test_side_by_side_pins_the_kv_cache_of_every_arm() -> None:
    design = SimpleNamespace(side_by_side_kv_bytes=6 << 30)
    arm = arm_of("spec", "spec", SPLIT, Options(), command.further_settings(design))  # type: ignore[arg-type]
    argv = arm.plan.lowered.argv

    assert argv[argv.index("--kv-cache-memory-bytes") + 1] == str(6 << 30)
    assert float(argv[argv.index("--gpu-memory-utilization") + 1]) < 0.1


def test_acceptance_says_where_it_comes_from() -> None:
    synthetic = (
        "speculative.rejection_sample_method=synthetic",
        "speculative.synthetic_acceptance_length=2.5",
    )

    assert command.acceptance_of([arm_of("spec", "a", CPU, Options())]) == "none"
    assert command.acceptance_of([arm_of("spec", "a", SPLIT, Options())]) == "measured"
    assert command.acceptance_of([arm_of("spec", "a", SPLIT, Options(), synthetic)]) == "modelled"
    assert command.acceptance_of([arm_of("spec", "a", SPLIT, Options(), ("model.load_format=dummy",))]) == "modelled"


def cells() -> list[dict[str, Any]]:
    numbers = {
        "mean_tpot_ms": 10.0,
        "median_ttft_ms": 100.0,
        "p90_ttft_ms": 120.0,
        "acceptance_length": None,
        "api_server_cores": 0.98,
    }
    steps = {"FULL": {"unpadded_tokens": 3}, "NONE": {"unpadded_tokens": 1}}
    return [
        {
            "round": number,
            "arm": arm,
            "concurrency": 16,
            "prompts": 64,
            "completed": done,
            "steps": steps,
            **numbers,
            **rate,
        }
        for number in (1, 2)
        for arm, done, rate in (
            ("stock", 64, {"output_tokens_per_second": 1000.0}),
            ("extension", 64 if number == 1 else 63, {"output_tokens_per_second": 2100.0}),
        )
    ]


def test_the_text_names_what_failed_and_leaves_it_out_of_the_ratios() -> None:
    design = {"concurrencies": [16], "input_tokens": 8, "output_tokens": 4, "rounds": 2}
    ratios = [one.to_json() for one in paired_ratios(("stock", "extension"), cells())]
    arms = {"stock": {}, "extension": {}}
    text = bench_text({**HEAD, "arms": arms, "design": design, "cells": cells(), "ratios": ratios})
    words = [line.split() for line in text.splitlines()]

    assert ["extension", "16", "2100", "10.00", "100", "120", "-", "75%", "0.98", "cores", "1"] in words
    assert ["extension", "/", "stock", "16", "2.100", "-", "1"] in words


@pytest.mark.parametrize(
    ("first_error", "said"), [("Unauthorized", "Unauthorized"), (None, "the client gives no reason")]
)
def test_the_text_says_why_requests_failed(first_error: str | None, said: str) -> None:
    failing = [{**cell, "first_error": first_error} for cell in cells()]
    design = {"concurrencies": [16], "input_tokens": 8, "output_tokens": 4, "rounds": 2}
    text = bench_text({**HEAD, "arms": {"stock": {}}, "design": design, "cells": failing, "ratios": []})

    assert f"1 of 256 requests failed, the first at 16 requests: {said}\n" in text


@pytest.mark.parametrize("kv_bytes", [None, 1 << 30])
def test_intervals_of_arms_side_by_side_are_said_to_be_of_one_launch(kv_bytes: int | None) -> None:
    """In turns every round is a launch of its own."""
    design = {"concurrencies": [16], "input_tokens": 8, "output_tokens": 4, "rounds": 2}
    ratios = [one.to_json() for one in paired_ratios(("stock", "extension"), cells())]
    document = {**HEAD, "arms": {"stock": {}, "extension": {}}, "cells": cells(), "ratios": ratios}
    text = bench_text({**document, "design": {**design, "side_by_side_kv_bytes": kv_bytes}})

    assert ("rounds of one launch of each arm" in text) == (kv_bytes is not None)


def test_the_client_keeps_numbers_and_the_first_error() -> None:
    result = {"completed": 1, "errors": ["", "gone\n" * 400, "later"], "p90_ttft_ms": 1.0, "ttfts": [1.0], "date": "x"}

    assert kept(result) == {"completed": 1, "p90_ttft_ms": 1.0, "first_error": ("gone " * 100)}


def test_of_a_traceback_the_client_keeps_what_happened() -> None:
    """The engine's client gives all of it, for whatever a request raises."""

    def deep(frames: int) -> None:
        deep(frames - 1) if frames else json.loads("[\n")

    try:
        try:
            deep(20)
        except ValueError as error:
            raise ConnectionError("cannot connect\nto host") from error
    except ConnectionError:
        trace = traceback.format_exc()

    assert kept({"errors": [trace]})["first_error"] == "ConnectionError: cannot connect to host"
    assert reason_of(f"no test run. Error: {trace}") == "no test run. Error: ConnectionError: cannot connect to host"


def test_the_client_tells_what_the_engine_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def main(arguments: Any) -> dict[str, Any]:
        raise ValueError(f"no {arguments.model}")

    class Parser:
        def parse_args(self, words: list[str]) -> SimpleNamespace:
            if "--wrong" in words:
                raise SystemExit(2)
            return SimpleNamespace(model="model")

    modules = {
        "aiohttp": SimpleNamespace(ClientError=ConnectionError),
        "vllm.benchmarks.serve": SimpleNamespace(add_cli_args=lambda _: None, main=main),
        "vllm.utils.argparse_utils": SimpleNamespace(FlexibleArgumentParser=Parser),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)

    assert bench([]) == {"error": "ValueError: no model"}
    assert bench(["--wrong"]) == {"error": "the client refused its arguments: --wrong"}
    assert json.dumps(bench([])) == '{"error": "ValueError: no model"}'


def test_results_name_no_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/data/bin/servespec", "bench", "/data/specs/a.yaml", "--record", "/data/logs"])
    result = {"completed": 0, "first_error": f"no {Path.cwd()}/model"}

    assert made_on(this_command())["command"] == "servespec bench a.yaml --record logs"
    assert cell_json(Cell(1, "stock", 16), 4, result, {})["first_error"] == "no model"
