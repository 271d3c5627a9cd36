"""What the documentation shows is what happens: YAML blocks compile, and commands print what stands below them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from doc_blocks import HAND_WRITTEN, REMARKS, ROOT, Block, all_blocks, blocks
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Severity, SpecError
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import read_spec
from servespec.schema.source import read_source
from tests.step_curves import roofline, step_document

pytestmark = pytest.mark.usefixtures("quiet_shell")

YAML = all_blocks("yaml")
CONSOLE = all_blocks("console")
EXAMPLES = tuple(sorted(ROOT.glob("examples/*.yaml")))
_FRAGMENT_BASE = "servespec: 1\nmodel: {id: models/Qwen3-30B-A3B}\nhardware: {gpu: h200}\n"
_ANY_CONFIG = ROOT / "examples/models/Llama-3.1-8B-Instruct/config.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the examples and the curves that some of them name, as a clone does."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/measurements").symlink_to(ROOT / "docs/measurements")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compiles(path: Path, *settings: str) -> Plan:
    """A spec of the documentation is planned; a model that is not here stands in for its config."""
    source = read_spec(str(path), settings)
    model = source.data["model"]["id"]
    config = None if (path.parent / model / "config.json").is_file() else _ANY_CONFIG
    return compile_spec(compile_request(source, Options(model_config=config)))


def write_curve(path: Path, name: str) -> None:
    """A synthetic curve of the spec at ``path``, where that looks for it."""
    plan = compiles(path, "speculative.dynamic=null", "speculative.load_aware=null")
    drafts = range(plan.resolution.drafting.num_speculative_tokens.value + 1)
    document = step_document(identity_of(plan.to_json()), roofline(), drafts)
    (path.parent / name).write_text(json.dumps(document), encoding="utf-8")


def test_remarks_are_known() -> None:
    found = {name for page in HAND_WRITTEN for block in blocks(page) for name, _ in block.remarks}

    assert found <= set(REMARKS)


@pytest.mark.parametrize("block", YAML, ids=str)
def test_yaml_compiles(block: Block, folder: Path) -> None:
    is_whole = not read_source(block.text, "block").data.keys().isdisjoint({"servespec", "extends"})
    path = folder / "examples" / "block.yaml" if "examples/models" not in block.text else folder / "block.yaml"
    for other in blocks(block.page):
        if name := other.remark("file"):
            (path.parent / name).write_text(other.text)
    path.write_text(block.text if is_whole else _FRAGMENT_BASE + block.text)
    if curve := block.remark("curve"):
        write_curve(path, curve)
    refused = block.remark("refused")
    if refused is None:
        compiles(path)
        return
    with pytest.raises(SpecError) as error:
        compiles(path)

    assert [finding.code for finding in error.value.diagnostics if finding.severity is Severity.ERROR] == [refused]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_compile(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=../docs/schema/spec-1.json\n")
    compiles(path)


@pytest.mark.parametrize("block", [one for one in (*YAML, *CONSOLE) if one.remark("same as")], ids=str)
def test_what_is_shown_twice_is_the_same(block: Block) -> None:
    other = (ROOT / (block.remark("same as") or "")).read_text()

    assert block.text in other


@pytest.mark.parametrize(
    "block", [one for one in CONSOLE if not (one.remark("not run") or one.remark("engine"))], ids=str
)
def test_commands_print_what_is_shown(block: Block, folder: Path) -> None:
    for other in blocks(block.page):
        if name := other.remark("file"):
            (folder / name).write_text(other.text)
    for command, shown in commands(block):
        program, *arguments = shlex.split(command)
        assert program == "servespec", f"mark `{command}` as not run"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == int(block.remark("exit code") or 0), result.output
        if block.remark("output not shown") is None:
            assert re.fullmatch(pattern_of(shown), result.stdout), result.stdout


def commands(block: Block) -> list[tuple[str, str]]:
    """(command, what is shown below it) of a block."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
    assert found
    return found


def pattern_of(shown: str) -> str:
    """`...` stands for any lines, at the end of a line for the rest of it."""
    return "".join(_line_pattern(line) for line in shown.splitlines())


def _line_pattern(line: str) -> str:
    if line == "...":
        return r"(?:.*\n)*?"
    if line.endswith(" ..."):
        return re.escape(line.removesuffix("...")) + r".*\n"
    return re.escape(line) + r"\n"


def test_elision_is_no_wild_card_for_everything() -> None:
    assert re.fullmatch(pattern_of("a\n...\nb ...\n"), "a\nx\ny\nb c\n")
    assert not re.fullmatch(pattern_of("a\n...\nb ...\n"), "a\nx\ny\nc\n")
