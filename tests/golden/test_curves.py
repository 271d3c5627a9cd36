"""The synthetic step times that golden cases name: made of formulas, for the engine that those cases start."""

import json
from pathlib import Path

import pytest

from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.pipeline import compile_spec
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import read_spec
from tests.golden.cases import FOLDER
from tests.plans import Json
from tests.step_curves import roofline, step_document

pytestmark = pytest.mark.usefixtures("quiet_shell")

CURVES = Path(__file__).resolve().parent / "curves"
HOST_SECONDS = 12e-3
"""What the host needs to start the kernels of an eager step."""


def identity_of_case(name: str, *settings: str) -> dict[str, str]:
    source = read_spec(str(FOLDER / name / "spec.yaml"), settings)
    return identity_of(compile_spec(compile_request(source, Options())).to_json())


def curve() -> Json:
    identity = identity_of_case("tiers-by-curve", "speculative.dynamic=null")
    return step_document(identity, roofline(), (0, 1, 3, 7), spread=0.02)


def steps() -> Json:
    seconds = roofline()
    return step_document(
        identity_of_case("where-graphs-pay"), seconds, (7,), eager=lambda n, k: max(HOST_SECONDS, seconds(n, k))
    )


@pytest.mark.parametrize("made", [curve, steps], ids=lambda made: made.__name__)
def test_a_curve_is_what_its_formula_makes(made: object, request: pytest.FixtureRequest) -> None:
    assert callable(made)
    path = CURVES / f"{made.__name__}.json"  # type: ignore[attr-defined]
    document = made()
    if request.config.getoption("--update-golden"):
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    assert json.loads(path.read_text(encoding="utf-8")) == document
