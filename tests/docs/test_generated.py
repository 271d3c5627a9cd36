"""The generated pages are what the code says, all of it and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import gen_docs
import pytest
from doc_pages.commands_page import EXIT_CODES, commands, parameters
from doc_pages.diagnostics_page import exit_code
from doc_pages.facts_page import all_facts
from doc_pages.markdown import code
from doc_pages.runners_page import DRAFTS, captured, machines, runners_page
from doc_pages.spec_page import all_fields, schema_of, unit_of

from servespec import cli
from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.facts.engine_fields import versions
from servespec.compiler.facts.list_readers import ListReader
from servespec.provenance import Sourced
from servespec.render.rules import every_rule
from servespec.runtime import run_rules
from tests.command_tree import commands_of

ROOT = Path(__file__).resolve().parents[2]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_pages_are_up_to_date_whatever_the_hash_seed() -> None:
    done = subprocess.run(
        [sys.executable, "tools/gen_docs.py", "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7", "VLLM_USE_V2_MODEL_RUNNER": "0"},
        capture_output=True,
        text=True,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_check_names_the_stale_page_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fresh.md").write_text("fresh\n")
    (tmp_path / "stale.md").write_text("old\n")
    monkeypatch.setattr(gen_docs, "ROOT", tmp_path)
    made = {"fresh.md": lambda: "fresh\n", "stale.md": lambda: "new\n", "absent.md": lambda: "new\n"}
    monkeypatch.setattr(gen_docs, "PAGES", made)

    assert gen_docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: stale.md\nstale: absent.md\nrun: python tools/gen_docs.py\n"
    assert (tmp_path / "stale.md").read_text() == "old\n"
    assert gen_docs.main([]) == 0
    assert gen_docs.main(["--check"]) == 0


def test_codes_in_the_docs_are_the_codes_in_the_code() -> None:
    described = re.findall(r"^### ([A-Z]\d{3})$", text_of("docs/reference/diagnostics.md"), re.MULTILINE)

    assert sorted(described) == [rule.code for rule in every_rule()]
    assert len(described) == len(set(described))


def test_every_rule_says_what_it_is() -> None:
    page = text_of("docs/reference/diagnostics.md")

    assert [rule.code for rule in every_rule() if rule.summary not in page] == []


def test_errors_end_with_a_documented_exit_code() -> None:
    assert {exit_code(rule) for rule in every_rule()} <= set(EXIT_CODES)


def test_every_exit_code_of_the_code_is_documented() -> None:
    constants = {
        value
        for module in (cli, run_rules)
        for name, value in vars(module).items()
        if name.startswith("EXIT_") and isinstance(value, int)
    }

    assert constants <= set(EXIT_CODES)


def test_commands_and_options_are_those_of_the_program() -> None:
    real = {
        name: {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in commands_of()
    }
    documented = {name: parameters(function) for name, function in commands()}

    assert set(documented) == set(real)
    for name, found in documented.items():
        options = {one for parameter in found if not parameter.is_argument for one in parameter.names}
        assert options == {one for one in real[name] if one.startswith("-")}, name
        assert all(parameter.help for parameter in found), name


def test_every_number_of_the_spec_has_a_unit() -> None:
    numbers = [
        field for field in all_fields() if "integer" in str(schema_of(field)) or "number" in str(schema_of(field))
    ]

    assert [field.path for field in numbers if unit_of(field.name) is None] == []


def test_every_field_of_the_spec_is_described() -> None:
    page = text_of("docs/reference/spec.md")
    rows = {
        line.split("|")[1].strip(): line.rstrip("|").split("|")[-1].strip()
        for line in page.splitlines()
        if line[:1] == "|"
    }

    assert [field.path for field in all_fields() if not rows.get(f"`{field.path}`")] == []


def shown(name: str, fact: Sourced[object]) -> str:
    """The cell that a fact is found by: its name, or its quote in the table of the token list's readers."""
    return f"| {code(fact.quote if isinstance(fact.value, ListReader) else name)} |"


def test_every_device_and_every_fact_is_listed() -> None:
    devices, facts = text_of("docs/reference/devices.md"), text_of("docs/reference/engine-facts.md")
    found = all_facts()

    assert [name for name in DEVICES if f"| `{name}` |" not in devices] == []
    assert len(found) > 100
    assert all(isinstance(fact, Sourced) for _, fact in found)
    assert [name for name, fact in found if fact.package == "vllm" and shown(name, fact) not in facts] == []


@pytest.mark.parametrize(
    ("routine", "graphs", "drafts", "cell"),
    [
        ("piecewise", "fields", 7, "39 @ 8192"),
        ("uniform_decode", "fields", 3, "64 @ 1024"),
        ("uniform_decode", "fields", 7, "48 @ 512"),
        ("uniform_decode", "stock", 7, "80 @ 128"),
        ("adaptive_verification", "fields", 5, "64 @ 6144"),
        ("later_steps", "stock", 2, "97 @ 1024"),
    ],
)
def test_the_runner_table_says_what_is_known(routine: str, graphs: str, drafts: int, cell: str) -> None:
    """Counts of the pull request 'separate prefill/decode graph sizes' at the GB200 defaults."""
    table = text_of("docs/reference/runners.md").partition("## vLLM 0.33.0 on gb200")[2]
    line = next(line for line in table.splitlines() if f"| `{routine}` | {graphs} |" in line)

    assert line.strip("| ").split(" | ")[3 + DRAFTS.index(drafts)].strip() == cell


@pytest.mark.parametrize("version", versions())
def test_the_runner_page_has_every_gpu_once(version: str) -> None:
    """With those that capture the same, which differ from all others."""
    groups = machines(version)
    listed = [gpu for one in groups for gpu in one.gpus]
    page = text_of("docs/reference/runners.md")

    assert sorted(listed) == sorted(name for name in DEVICES if name != "cpu")
    assert len({captured(version, one.gpu) for one in groups}) == len(groups)
    assert all(f"## vLLM {version} on {', '.join(one.gpus)}: " in page for one in groups)


def test_the_runner_page_names_no_figure_as_measured() -> None:
    assert "Every number is modelled" in runners_page()
