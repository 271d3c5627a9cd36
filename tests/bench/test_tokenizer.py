"""A tokenizer that has text for few of the ids that dummy weights answer with is told before anything is launched."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.runtime.bench import command
from servespec.runtime.bench.arms import Arm, arm_of
from servespec.runtime.bench.tokenizer import known_ids, tokenizer_findings
from servespec.runtime.gather import Options
from tests.plans import REPOSITORY

pytestmark = pytest.mark.usefixtures("quiet_shell")

CONFIG = json.loads((REPOSITORY / "tests" / "models" / "qwen3-8b" / "config.json").read_bytes())
IDS = CONFIG["vocab_size"]


def bpe(ids: int) -> dict[str, Any]:
    added = [{"id": ids - 1, "content": "end"}]
    return {"model": {"type": "BPE", "vocab": {str(one): one for one in range(ids - 1)}}, "added_tokens": added}


def unigram(ids: int) -> dict[str, Any]:
    return {"model": {"type": "Unigram", "vocab": [[str(one), 0.0] for one in range(ids)]}}


def spec(folder: Path, tokenizer: object, model: dict[str, Any] | None = None) -> str:
    """A spec of a model in ``folder`` with dummy weights."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
    if tokenizer is not None:
        (folder / "model" / "tokenizer.json").write_text(json.dumps(tokenizer))
    given = {"model": {"id": "./model", "load_format": "dummy", **(model or {})}, "hardware": {"gpu": "cpu"}}
    (folder / "spec.yaml").write_text(json.dumps({"servespec": 1, **given}))
    return str(folder / "spec.yaml")


def arms(path: str) -> list[Arm]:
    return [arm_of("spec", label, path, Options()) for label in ("spec", "spec-2")]


@pytest.mark.parametrize("tokenizer", [bpe(257), unigram(257), bpe(IDS // 2 - 1)])
def test_a_tokenizer_that_knows_few_ids_is_told_once(tokenizer: dict[str, Any], tmp_path: Path) -> None:
    (finding,) = tokenizer_findings(arms(spec(tmp_path, tokenizer)))

    known = known_ids(tmp_path / "model" / "tokenizer.json")
    assert known is not None
    assert finding.code == "L037"
    assert f"any of {IDS} ids, and its tokenizer has text for {len(known)}:" in finding.message
    assert f"dummy_tokenizer.py {tmp_path / 'model'}`" in finding.help


@pytest.mark.parametrize(
    ("tokenizer", "model"),
    [
        (bpe(IDS), {}),
        # As published: the vocabulary is padded.
        (unigram(IDS - 300), {}),
        (bpe(257), {"load_format": "auto"}),
        (bpe(257), {"tokenizer": "org/real"}),
        (None, {}),
        ([], {}),
        ({"model": {"vocab": {"a": "b"}}}, {}),
    ],
)
def test_any_other_is_not(tokenizer: object, model: dict[str, Any], tmp_path: Path) -> None:
    assert list(tokenizer_findings(arms(spec(tmp_path, tokenizer, model)))) == []


def test_bench_says_so_before_it_launches_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(process=SimpleNamespace(pid=0))
    monkeypatch.setattr(command, "bench_client", lambda *_: nullcontext(client))
    monkeypatch.setattr(command, "run_bench", lambda *_: print("launches"))
    path = spec(tmp_path, bpe(257))

    words = ["bench", path, "--arms", "spec", "--concurrency", "1", "-o", str(tmp_path / "bench.json")]
    done = CliRunner().invoke(app, words)

    assert done.exit_code == 0, done.output
    assert done.output.index("warning[L037]") < done.output.index("launches")
