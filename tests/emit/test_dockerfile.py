"""The recipe of the image: on the official one, with what servespec alone needs, and nothing replaced."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from servespec.compiler.container import official_image
from servespec.diagnostics import SpecError
from servespec.render.launch_dockerfile import OWN_REQUIREMENTS, dockerfile
from tests.differential.engine_oracle import engine_root
from tests.emit.launches import launched
from tests.plans import REPOSITORY, Json, spec_of

TEXT = dockerfile("vllm/vllm-openai:v0.33.0", "0.1.0")


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction with its words, lines joined as Docker joins them."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines()]


def test_it_adds_one_layer_to_the_official_image() -> None:
    (start, image), (install, words) = instructions(TEXT)

    assert (start, image) == ("FROM", "vllm/vllm-openai:v0.33.0")
    assert install == "RUN"
    assert "source=servespec-0.1.0-py3-none-any.whl,target=/mnt/servespec-0.1.0-py3-none-any.whl" in words


def test_nothing_but_servespec_and_what_the_engine_lacks_is_installed() -> None:
    words = instructions(TEXT)[1][1]
    (installed,) = re.findall(r"uv pip install (.*?) && ", words)

    assert installed.split() == [
        "--system",
        "--no-deps",
        "/mnt/servespec-0.1.0-py3-none-any.whl",
        *(f"'{one}'" for one in OWN_REQUIREMENTS),
    ]


def own_requirements() -> dict[str, Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {one.name: one for one in map(Requirement, project["dependencies"])}


def engine_requirements(root: Path) -> dict[str, Requirement]:
    (metadata,) = root.glob("*.dist-info/METADATA")
    lines = metadata.read_text(encoding="utf-8").splitlines()
    every = (Requirement(line.partition(": ")[2]) for line in lines if line.startswith("Requires-Dist: "))
    return {one.name: one for one in every if one.marker is None or "extra" not in str(one.marker)}


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
def test_the_engine_brings_the_rest(version: str) -> None:
    """typer is what `fastapi[standard]` starts its own command line with."""
    root = engine_root(version)
    if root is None:
        pytest.skip(f"no unpacked vLLM {version}: run tools/fetch_engines.py")
    own, engines = own_requirements(), engine_requirements(root)
    brought = {name for name in own if name in engines}
    if "standard" in engines["fastapi"].extras:
        brought.add("typer")

    missing = {name: requirement for name, requirement in own.items() if name not in brought}

    assert {str(one) for one in missing.values()} == {str(Requirement(one)) for one in OWN_REQUIREMENTS}


@pytest.mark.parametrize(
    ("version", "tag"),
    [("0.33.0", "v0.33.0"), ("0.33.0.post1", "v0.33.0.post1"), ("0.33.0+cu130", "v0.33.0"), ("0.34.0.dev3+g1", None)],
)
def test_the_image_of_a_release_alone(version: str, tag: str | None) -> None:
    spec = spec_of("qwen3-8b", "h200", engine={"version": version})

    assert image_or_code(spec) == (f"vllm/vllm-openai:{tag}" if tag else "R118")


def test_there_is_none_for_a_cpu() -> None:
    spec = spec_of("qwen3-8b", "cpu", engine={})

    assert image_or_code(spec) == "R118"


def image_or_code(spec: Json) -> str:
    made = launched(spec, allow_unverified_engine=True)
    try:
        return official_image(made)
    except SpecError as refused:
        (finding,) = refused.diagnostics
        return finding.code
