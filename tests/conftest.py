"""Options and surroundings that all tests share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes says what else the machine is doing.
settings.register_profile("servespec", deadline=None)
settings.load_profile("servespec")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Rewrite the golden files; read the diff afterwards.")


@pytest.fixture(scope="module")
def quiet_shell() -> Iterator[None]:
    """No engine variable of the shell, no hub and no colour: plans come out the same everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("VLLM_")]:
            patch.delenv(name)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("NO_COLOR", "1")
        yield
