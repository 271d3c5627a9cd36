"""The documentation as a site: every page has its place in it, and every link leads somewhere."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plans import REPOSITORY


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs mkdocs (the dev extra has it)")
def test_it_builds_strictly(tmp_path: Path) -> None:
    """A warning of the build, such as a page without a place or a link that leads nowhere, fails it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)

    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "reference" / "spec.html").is_file()
