"""Every rule has a code of its own stage, says why it exists, and is fired by a test."""

import json
import re
from pathlib import Path

import pytest

from servespec.diagnostics import Rule
from servespec.render.rules import every_rule
from tests.golden.cases import every_case
from tests.plans import REPOSITORY

SERVESPEC = REPOSITORY / "servespec"

# Rules that no golden case can fire, with the test that does: bytes that a text file in the repository should not
# hold, a missing file, the machine at hand, and the command line.
FIRED_ELSEWHERE = {
    **dict.fromkeys(
        (
            "S001", "S002", "S003", "S004", "S006", "S007", "S008", "S009", "S010", "S011", "S012", "S013", "S014",
            "S015", "S016", "S017", "S018", "S019",
        ),
        "tests/unit/test_source.py",
    ),
    "S225": "tests/unit/test_migration.py",
    "R126": "tests/runtime/test_predict.py",
    "S226": "tests/runtime/test_overlays.py",
    "S227": "tests/runtime/test_overlays.py",
    "R008": "tests/contracts/test_cli.py",
    "R009": "tests/contracts/test_cli.py",
    "R010": "tests/contracts/test_cli.py",
    "R011": "tests/contracts/test_cli.py",
    "R012": "tests/runtime/test_checkpoint_files.py",
    "R013": "tests/unit/test_measurement.py",
    "R014": "tests/presets/test_commands.py",
    "R015": "tests/presets/test_model_facts.py",
    "R016": "tests/presets/test_model_facts.py",
    "R017": "tests/runtime/test_documents.py",
    "R023": "tests/runtime/test_documents.py",
    "R018": "tests/runtime/test_comparing.py",
    "R024": "tests/runtime/test_comparing.py",
    "R118": "tests/emit/test_launch_compose.py",
    "R019": "tests/unit/test_curve_tiers.py",
    "R020": "tests/runtime/test_acceptance_source.py",
    "R021": "tests/runtime/test_acceptance_source.py",
    "R022": "tests/runtime/test_curve_grid.py",
    "R119": "tests/unit/test_curve_tiers.py",
    "R122": "tests/unit/test_load_aware.py",
    "S228": "tests/unit/test_curve_tiers.py",
    "S229": "tests/unit/test_verification_grid.py",
    "P136": "tests/unit/test_measurement.py",
    "P137": "tests/unit/test_measurement.py",
    "P150": "tests/unit/test_measurement.py",
    **dict.fromkeys(("R120", "P148"), "tests/unit/test_specialized_decode.py"),
    **dict.fromkeys(("P143", "P144", "P145", "P153"), "tests/unit/test_curve_tiers.py"),
}  # fmt: skip


ON_COMMAND_LINES = ("test_command_line.py", "test_import.py")


def fired_by_golden_cases() -> set[str]:
    fired: set[str] = set()
    for case in every_case():
        if case.refused:
            text = (case.folder / "errors.txt").read_text(encoding="utf-8")
            fired |= set(re.findall(r"^(?:error|warning|note)\[(\w+)\]", text, re.MULTILINE))
        else:
            plan = json.loads((case.folder / "plan.json").read_text(encoding="utf-8"))
            fired |= {finding["code"] for finding in plan["diagnostics"]}
    return fired


def test_codes_are_unique_and_sorted() -> None:
    codes = [rule.code for rule in every_rule()]

    assert codes == sorted(set(codes))


def test_names_are_unique() -> None:
    names = [rule.name for rule in every_rule()]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", every_rule(), ids=lambda rule: rule.code)
def test_a_rule_explains_itself(rule: Rule) -> None:
    assert re.fullmatch(r"[SRPL]\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.summary == rule.summary.strip()
    assert not rule.summary.endswith(".")
    assert rule.summary[0] == rule.summary[0].lower() or not rule.summary.split()[0][1:].islower()
    assert "\n" not in rule.summary
    assert len(rule.explanation) > len("too short")
    assert rule.explanation.rstrip().endswith((".", "`"))
    assert rule.explanation != rule.summary


@pytest.mark.parametrize(("folder", "letters"), [("schema", "S"), ("compiler", "RPS"), ("runtime", "RL")], ids=str)
def test_a_code_names_its_stage(folder: str, letters: str) -> None:
    """The compiler also refuses command lines, which stand where a spec file does."""
    codes = {code for path in tables() if path.parts[-2] == folder for code in codes_in(path)}

    assert {code[0] for code in codes} <= set(letters)


def tables() -> list[Path]:
    return sorted(SERVESPEC.rglob("*_rules.py"))


def codes_in(path: Path) -> set[str]:
    return set(re.findall(r"Rule\(\s*\"([A-Z]\d{3})\"", path.read_text(encoding="utf-8")))


def test_every_table_is_listed() -> None:
    written = {code for path in tables() for code in codes_in(path)}

    assert written == {rule.code for rule in every_rule()}


def test_every_rule_of_a_spec_or_plan_is_fired_by_a_test() -> None:
    due = {rule.code for rule in every_rule() if rule.code[0] in "SRP"}
    on_command_lines = {code for code in due if code.startswith("S3")}

    assert due - on_command_lines - fired_by_golden_cases() == set(FIRED_ELSEWHERE)


@pytest.mark.parametrize("rule", [r for r in every_rule() if r.code.startswith("S3")], ids=lambda rule: rule.code)
def test_every_rule_of_a_command_line_is_fired_by_a_test(rule: Rule) -> None:
    tests = [(REPOSITORY / "tests/unit" / name).read_text(encoding="utf-8") for name in ON_COMMAND_LINES]

    assert any(rule.code in text for text in tests)


@pytest.mark.parametrize(("code", "test"), FIRED_ELSEWHERE.items())
def test_the_test_that_fires_a_rule_names_it(code: str, test: str) -> None:
    assert code in (REPOSITORY / test).read_text(encoding="utf-8")
