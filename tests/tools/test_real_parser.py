"""The tables, read from text, against the argument parser and variables of the imported engine.

Needs an interpreter with torch and the engine's other Python dependencies: the one that runs the tests,
or ``$SERVESPEC_ENGINE_PYTHON``.  No GPU and none of the engine's compiled modules.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.facts import engine_fields as facts
from servespec.compiler.facts.engine_fields import Computed, EngineFlag, Form, Kind

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines")).resolve()
PYTHON = os.environ.get("SERVESPEC_ENGINE_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else None)

FORMS = {
    "_StoreTrueAction": {Form.SWITCH},
    "BooleanOptionalAction": {Form.BOOLEAN},
    "EnableDisableAction": {Form.BOOLEAN},
    "_AppendAction": {Form.APPEND},
}
VALUE_FORMS = {Form.VALUE, Form.OPTIONAL_VALUE, Form.LIST, Form.JSON}
# The parser takes a value of its class out again, and asks the platform for another's choices.
OTHER_CHOICES = {"all2all_backend", "mm_processor_device"}


@functools.cache
def parsed(version: str) -> Any:
    root = ENGINES / f"vllm-{version}"
    if PYTHON is None or not root.is_dir():
        pytest.skip("no interpreter with torch" if PYTHON is None else f"no .engines/vllm-{version}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTHON"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": str(root)}
    program = Path(__file__).with_name("real_parser.py")
    done = subprocess.run([PYTHON, str(program)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)
    assert Path(answer["file"]).is_relative_to(root)
    return answer


@pytest.fixture(params=facts.versions())
def version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


def both(version: str) -> list[tuple[EngineFlag, dict[str, Any]]]:
    table = facts.table(version)
    return [(flag, real) for name, real in parsed(version)["flags"].items() if (flag := table.flag(name))]


def test_the_same_flags(version: str) -> None:
    assert sorted(parsed(version)["flags"]) == list(facts.table(version).flags())


def test_the_same_spellings(version: str) -> None:
    """The parser hides ``--no-`` where it shows a pair; ``-O`` is rewritten before it parses."""
    for flag, real in both(version):
        ours, shown = {*flag.spellings, *flag.negations} - {"-O"}, set(real["spellings"])
        hidden = {f"--no-{one[2:]}" for one in shown if one.startswith(("--enable-", "--disable-"))}
        assert shown <= ours <= shown | hidden, flag.name


def test_each_spelling_means_what_the_table_says(version: str) -> None:
    """Asked of the parser itself: every boolean spelling is parsed alone."""
    meanings = parsed(version)["meanings"]
    ours = {
        one: one in flag.negations
        for flag, _ in both(version)
        for one in (*flag.spellings, *flag.negations)
        if flag.form is Form.BOOLEAN and one.startswith("--")
    }

    assert len(ours) > 170
    assert {one: not meanings[one] for one in ours} == ours


def test_the_same_forms(version: str) -> None:
    for flag, real in both(version):
        assert flag.form in FORMS.get(real["action"], VALUE_FORMS), flag.name
        assert flag.nargs == real["nargs"], flag.name


def test_the_same_choices(version: str) -> None:
    with_choices = [(f, real) for f, real in both(version) if real["choices"] and f.name not in OTHER_CHOICES]

    for flag, real in with_choices:
        kinds = [inner for one in flag.type.members for inner in (one, *one.of)]
        listed = [str(choice) for one in kinds if one.kind is Kind.LITERAL for choice in one.choices]
        assert sorted(listed) == real["choices"], flag.name
    assert len(with_choices) > 35


def test_the_same_defaults(version: str) -> None:
    """Of flags whose default is plain; a config's is made by its class."""
    plain = [(flag, real) for flag, real in both(version) if is_plain(flag, real["default"])]

    for flag, real in plain:
        assert flag.default == real["default"], flag.name
    assert len(plain) > 280


def is_plain(flag: EngineFlag, default: Any) -> bool:
    is_printed = isinstance(default, str) and (default.startswith("repr:") or default == "==SUPPRESS==")
    return not (is_printed or flag.type.config or flag.name == "optimization_level") and not isinstance(
        flag.default, Computed
    )


def test_the_same_variables_and_defaults(version: str) -> None:
    table = facts.table(version)
    real = parsed(version)["variables"]
    ours = {name: one for name in table.variables() if (one := table.variable(name)) and one.file}

    assert sorted(ours) == sorted(real)
    differing = {name for name, one in ours.items() if not same_default(one.default, real[name])}
    assert differing == KNOWN_DIFFERENCES


def same_default(ours: object, real: Any) -> bool:
    return isinstance(ours, Computed) or ours == ([] if real == "repr:set()" else real)


# The engine works these out in functions that the tables do not follow; the annotated value stands there.
KNOWN_DIFFERENCES = {
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_DP_RANK_LOCAL",
    "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME",
    "VLLM_RUST_FRONTEND_PATH",
    "VLLM_USE_AOT_COMPILE",
    "VLLM_USE_MEGA_AOT_ARTIFACT",
}
