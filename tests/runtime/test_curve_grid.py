"""`servespec grid`: capture sizes by a curve, and what is refused of it."""

import json
import re
from math import exp
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.graphs.grid import DecodeGrid
from servespec.units import Requests
from tests.plans import REPOSITORY, compiled, model_folder, spec_of
from tests.step_curves import step_document, written
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

MEASURED = REPOSITORY / "docs/measurements/2026-11-30-h200-steps-8b-k3.json"


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["grid", *words])


def envelope(folder: Path, *, with_prompts: bool = False) -> str:
    """A curve whose decodes follow the envelope of the default grid, at every size."""
    document = step_document({}, lambda n, k: exp(0.6 * n ** (1 / 3)) * (1 + k) / 1000, (0, 3), range(1, 257))
    if with_prompts:
        mixed = [{**one, "kind": "mixed", "tokens": one["requests"]} for one in document["sizes"][:256]]
        document["sizes"] += mixed
    return written(folder, document)


def test_the_envelope_of_the_default_grid_gives_the_default_grid(tmp_path: Path) -> None:
    made = run(envelope(tmp_path), "--cap", "200", "--format", "json")

    document = json.loads(made.stdout)
    assert (made.exit_code, document["num_speculative_tokens"], document["epsilon"]) == (0, 3, 0.065)
    assert document["by_curve"] == document["default"]
    assert document["default"]["sizes"] == list(DecodeGrid().sizes(Requests(200)))


def test_the_line_that_is_printed_is_captured_as_it_stands() -> None:
    made = run(str(MEASURED), "--epsilon", "0.035")

    sizes = [int(size) for size in re.findall(r"\d+", made.stdout.splitlines()[-1])]
    assert made.stdout.splitlines()[-1].startswith("decode_cudagraph_capture_request_sizes: [1, 2, ")
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    given = {
        "speculative": draft,
        "scheduler": {"max_num_seqs": 512},
        "compilation": {"decode_cudagraph_capture_request_sizes": sizes},
        "engine": EXTENSION,
    }
    plan = compiled(spec_of("qwen3-8b", "h200", **given))
    (row,) = [row for row in plan.graphs.rows if row.routine == "uniform_decode"]
    assert list(row.sizes) == sizes


def test_a_measured_curve_pads_less_with_fewer_graphs_than_the_default() -> None:
    """Of a dense 8B model on an H200 with K = 3: the default spends sizes where this curve is flat."""
    document = json.loads(run(str(MEASURED), "--epsilon", "0.035", "--format", "json").stdout)

    assert len(document["by_curve"]["sizes"]) < len(document["default"]["sizes"])
    assert document["by_curve"]["mean_padding"] < document["default"]["mean_padding"]
    assert document["by_curve"]["worst_padding"] < document["default"]["worst_padding"]


def test_prefill_sizes_come_from_steps_with_prompts(tmp_path: Path) -> None:
    made = run(envelope(tmp_path, with_prompts=True), "--of", "prefill", "--format", "json")

    document = json.loads(made.stdout)
    assert (document["field"], document["num_speculative_tokens"]) == ("prefill_cudagraph_capture_token_sizes", None)
    assert document["epsilon"] == 0.035
    assert document["by_curve"]["sizes"][-1] == 256


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cap", "300"], "has no step of more than 256 requests, not of 300"),
        (["--num-speculative-tokens", "7"], "has no steps"),
        (["--of", "prefill"], "has no steps with prompts"),
        (["--epsilon", "0"], "`0` is not above 0"),
        (["--epsilon", "1.5"], "`1.5` is not above 0 and up to 1"),
        (["--padded-row-cost", "0"], "`0` is not above 0 and up to 10"),
    ],
)
def test_what_the_curve_does_not_have_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    made = run(envelope(tmp_path), *words)

    assert made.exit_code == 1
    assert "error[R022]" in made.stderr
    assert message in made.stderr


def test_a_curve_whose_steps_begin_above_one_token_says_what_to_time() -> None:
    """No cap would mend it."""
    curve = REPOSITORY / "docs/measurements/2026-12-01-h200-steps-8b-fp8-2.json"
    made = run(str(curve), "--of", "prefill", "--cap", "64")

    words = " ".join(made.stderr.split())
    assert "has no step of fewer than 128 tokens, and sizes start at 1 --> --of" in words
    assert "run `servespec profile` with `--tokens auto`" in words


def test_a_file_that_is_no_curve_is_refused(tmp_path: Path) -> None:
    plan = CliRunner().invoke(app, ["plan", str(REPOSITORY / "examples/smollm2-cpu.yaml"), "--format", "json"])
    (tmp_path / "plan.json").write_text(plan.stdout, encoding="utf-8")
    for path in (REPOSITORY / "README.md", tmp_path / "plan.json", tmp_path / "none.json"):
        made = run(str(path))
        assert (made.exit_code, "error[R019]" in made.stderr) == (1, True), made.stderr
