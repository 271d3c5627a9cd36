"""Golden cases: what each folder asks, and the quiet surroundings that make its answer the same everywhere."""

import os

import pytest


@pytest.fixture(autouse=True)
def _quiet_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine variable of the shell, no hub, and one width of text."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
