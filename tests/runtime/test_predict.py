"""`servespec predict`: what tiers by a curve serve under traffic, and what is refused of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from tests.plans import REPOSITORY

pytestmark = pytest.mark.usefixtures("quiet_shell")

SPEC = str(REPOSITORY / "examples/qwen3-8b-fp8-tiers-by-curve-h200.yaml")
WITHOUT = str(REPOSITORY / "examples/qwen3-30b-a3b-h200.yaml")
LOAD_AWARE = str(REPOSITORY / "examples/qwen3-30b-a3b-fp8-load-aware-h200.yaml")
SHORT = ("--input-tokens", "32", "--output-tokens", "72", "--prompts", "3")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["predict", *words])


def test_every_fixed_k_stands_beside_the_tiers() -> None:
    done = run(SPEC, "--concurrency", "1,64", *SHORT, "--format", "json")

    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert [load["requests"] for load in document["loads"]] == [1, 64]
    for load in document["loads"]:
        assert [one["num_speculative_tokens"] for one in load["fixed"]] == [0, 1, 3, 7]
    one_at_a_time = document["loads"][0]
    assert one_at_a_time["tiers"] == {
        key: value for key, value in one_at_a_time["fixed"][-1].items() if key != "num_speculative_tokens"
    }
    assert one_at_a_time["without_speculation"]["tokens_per_second"] > one_at_a_time["fixed"][0]["tokens_per_second"]


def test_a_server_that_never_drafts_is_left_out_where_it_was_not_timed(tmp_path: Path) -> None:
    curve = json.loads((REPOSITORY / "docs/measurements/2026-12-01-h200-steps-8b-fp8-2.json").read_text("utf-8"))
    curve["sizes"] = [size for size in curve["sizes"] if size["next_drafts"] or size["requests"] <= 256]
    (tmp_path / "curve.json").write_text(json.dumps(curve), encoding="utf-8")
    drafting = ("from_curve", tmp_path / "curve.json"), ("candidates", "[1,3,7]")
    settings = [word for name, value in drafting for word in ("--set", f"speculative.dynamic.{name}={value}")]

    done = run(SPEC, *settings, "--concurrency", "256,512", *SHORT, "--format", "json")

    assert done.exit_code == 0, done.exception
    assert [load["without_speculation"] is None for load in json.loads(done.stdout)["loads"]] == [False, True]


def test_longer_answers_have_fewer_steps_with_prompts() -> None:
    shares = []
    for answer in ("32", "512"):
        done = run(SPEC, "--concurrency", "16", "--output-tokens", answer, "--format", "json")
        tiers = json.loads(done.stdout)["loads"][0]["tiers"]
        shares.append(tiers["mixed_steps"] / (tiers["mixed_steps"] + tiers["decode_steps"]))

    assert shares[0] > shares[1]


def test_the_table_has_a_line_for_each_load() -> None:
    done = run(SPEC, "--concurrency", "1,16", *SHORT)

    lines = done.stdout.splitlines()
    assert lines[1].startswith("prompts of 32 tokens, answers of 72; for each request at a time 3 in all")
    assert lines[2] == "each takes 1.4 ms of client and API server, and those sent together pass together:"
    assert lines[3].startswith(
        "fitted on docs/measurements/2026-12-01-h200-bench-tiers-8b-fp8-2.json, of short prompts"
    )
    assert [line.split()[0] for line in lines[5:]] == ["requests", "1", "16"]
    assert lines[5].split()[2:10] == ["x", "K=0", "x", "K=1", "x", "K=3", "x", "K=7"]


def test_a_front_end_of_another_machine_is_played_as_given() -> None:
    texts, loads = {}, {}
    for taken in ("0", "1.4", "5"):
        texts[taken] = run(SPEC, "--concurrency", "64", *SHORT, "--front-end-ms", taken).stdout
        done = run(SPEC, "--concurrency", "64", *SHORT, "--front-end-ms", taken, "--format", "json")
        loads[taken] = json.loads(done.stdout)["loads"][0]["tiers"]["tokens_per_second"]

    assert texts["1.4"] == run(SPEC, "--concurrency", "64", *SHORT).stdout
    assert "each takes 5 ms of client and API server" in texts["5"]
    assert "as `--front-end-ms` says" in texts["5"]
    assert "fitted on" not in texts["5"]
    assert loads["0"] > loads["1.4"] > loads["5"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((WITHOUT,), "error[R126]: its tiers are not chosen by a curve"),
        ((LOAD_AWARE,), "write `speculative.dynamic: {from_curve: FILE}` in the place of `load_aware`"),
        ((SPEC, "--concurrency", "513"), "concurrency 513 is above `scheduler.max_num_seqs` 512"),
        ((SPEC, "--concurrency", "0"), "`--concurrency 0` is `0`"),
        ((SPEC, "--output-tokens", "0"), "`--output-tokens` is `0`"),
        ((SPEC, "--concurrency", "4,4"), "a concurrency is named twice"),
        ((SPEC, "--input-tokens", "4096"), "requests of 4224 tokens are longer than `model.max_model_len` 4096"),
        (
            (SPEC, "--concurrency", "512", "--set", "memory.kv_cache_memory_bytes=2GiB"),
            "512 requests of 384 tokens need 196,608 tokens of KV cache",
        ),
        ((SPEC, "--concurrency", "many"), "`many` is not a whole number"),
        (
            (SPEC, "--set", "scheduler.max_num_batched_tokens=16384"),
            "has steps with prompts of up to 8192 tokens, and a step has 16384",
        ),
    ],
)
def test_what_cannot_be_predicted_is_told(words: tuple[str, ...], said: str) -> None:
    done = run(*words)

    assert done.exit_code == 1
    assert said in " ".join(done.stderr.split())


def test_a_curve_without_prompts_is_refused(tmp_path: Path) -> None:
    text = Path(SPEC).read_text(encoding="utf-8")
    curve = json.loads((Path(SPEC).parent / "../docs/measurements/2026-12-01-h200-steps-8b-fp8-2.json").read_text())
    curve["sizes"] = [size for size in curve["sizes"] if size["kind"] == "decode"]
    (tmp_path / "curve.json").write_text(json.dumps(curve), encoding="utf-8")
    (tmp_path / "models").symlink_to(Path(SPEC).parent / "models")
    spec = tmp_path / "spec.yaml"
    spec.write_text(text.replace("../docs/measurements/2026-12-01-h200-steps-8b-fp8-2.json", "curve.json"))

    done = run(str(spec))

    assert done.exit_code == 1
    assert "`curve.json` has no steps with prompts" in done.stderr
