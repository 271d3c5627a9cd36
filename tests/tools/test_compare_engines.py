"""What a new wheel moves, on made-up tables and on the real wheels."""

import copy
import os
from pathlib import Path

import pytest
from compare_engines import main, moved_digests, moved_quotes, moved_settings
from engine_reading.quotes import missing_quotes, sourced_values

ROOT = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines"))

FIELDS = {"a": {"type": "int", "default": 1, "line": 3}, "b": {"type": {"literal": ["x", "y"]}}}
TABLE = {
    "configs": {"C": {"fields": FIELDS}},
    "flags": {"max_a": {"spellings": ["--max-a"], "form": "value", "line": 9}},
    "variables": {"V": {"type": "bool", "default": False}},
}


def test_equal_tables_move_nothing_and_lines_do_not_count() -> None:
    other = copy.deepcopy(TABLE)
    other["configs"]["C"]["fields"]["a"]["line"] = 400
    other["flags"]["max_a"]["line"] = 400

    assert list(moved_settings(TABLE, other)) == []


def test_settings_that_came_went_and_changed() -> None:
    other = copy.deepcopy(TABLE)
    fields = other["configs"]["C"]["fields"]
    fields["a"]["default"] = 2
    fields["b"]["type"] = {"literal": ["x", "z"]}
    fields["c"] = {"type": "int"}
    other["flags"]["max_a"]["form"] = "list"
    del other["variables"]["V"]

    assert list(moved_settings(TABLE, other)) == [
        "changed --max-a: form \"value\" -> \"list\"",
        "changed C.a: default 1 -> 2",
        "changed C.b: type +z, -y",
        "new C.c",
        "gone V",
    ]  # fmt: skip


def test_digests() -> None:
    assert list(moved_digests({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"})) == [
        "changed b",
        "gone c",
        "new d",
    ]


def test_quotes_are_collected_and_missed_in_an_empty_folder(tmp_path: Path) -> None:
    collected = sourced_values("0.33.0")

    assert len(collected) > 0
    assert {(one.package, one.version) for one in collected} == {("vllm", "0.33.0")}
    assert len(missing_quotes("0.33.0", tmp_path)) == len(collected)
    assert len(list(moved_quotes("0.33.0", tmp_path))) == len(collected)


@pytest.mark.engine
def test_the_real_wheels(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (ENGINES / f"vllm-{version}" for version in ("0.32.0", "0.33.0"))
    if not (old.is_dir() and new.is_dir()):
        pytest.skip("no .engines/vllm-0.32.0 and .engines/vllm-0.33.0: run python tools/fetch_engines.py")

    status = main([str(old), str(new)])

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert "  new --watchdog-config" in lines
    assert "  changed SpeculativeConfig.method: type +step5_mtp, -medusa, -mlp_speculator" in lines
    assert "  changed vllm/config/vllm.py:VllmConfig.use_v2_model_runner" in lines
    assert "  new vllm/models/kimi_k3/nvidia/specialized_decode/runtime/__init__.py:specialized_decode_config" in lines


@pytest.mark.engine
def test_a_wheel_against_itself(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether each quote stands in its own wheel is the provenance test's question."""
    monkeypatch.setattr("compare_engines.missing_quotes", lambda *_: [])
    root = ENGINES / "vllm-0.33.0"
    if not root.is_dir():
        pytest.skip("no .engines/vllm-0.33.0: run python tools/fetch_engines.py")

    status = main([str(root), str(root)])

    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        "digests: nothing moved",
        "fields, flags and variables: nothing moved",
        "readers of the token list: nothing moved",
        "quotes of 0.33.0: nothing moved",
    ]
    assert status == 0
