"""Options and surroundings that all tests share."""

import os

import pytest

ENGINE_VARIABLES = ("VLLM_", "HF_", "SERVESPEC_")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Rewrite the golden files; read the diff afterwards.")
