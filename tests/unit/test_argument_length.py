"""Graphs travel in one argument of the command line, and Linux takes only so long a one."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from servespec.compiler import pipeline
from servespec.compiler.facts.command_lines import LONGEST_ARGUMENT
from servespec.diagnostics import SpecError
from servespec.units import Bytes
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")


def spec() -> Json:
    """Drafts in three tiers, the grids to 1,024 requests and 8,192 tokens."""
    tiers = [
        {"up_to": 16, "num_speculative_tokens": 7},
        {"up_to": 256, "num_speculative_tokens": 3},
        {"num_speculative_tokens": 1},
    ]
    return spec_of(
        "qwen3-30b-a3b",
        "gb200",
        engine={"version": "0.33.0", "lowering": "extension"},
        speculative={
            "method": "eagle3",
            "model": model_folder("eagle3-draft"),
            "num_speculative_tokens": 7,
            "dynamic": tiers,
        },
        scheduler={"max_num_seqs": 1024, "max_num_batched_tokens": 8192},
        compilation={"max_decode_cudagraph_capture_tokens": "unlimited"},
    )


def test_what_linux_takes_is_the_fact() -> None:
    fits = "x" * (LONGEST_ARGUMENT.value - 1)

    assert subprocess.run([sys.executable, "-c", "", fits], check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run([sys.executable, "-c", "", f"{fits}x"], check=False)


def test_a_hand_off_of_the_widest_grids_is_far_from_it() -> None:
    longest_bytes = max(len(word.encode()) for word in compiled(spec()).lowered.argv)

    assert 4_000 < longest_bytes < LONGEST_ARGUMENT.value // 20


def test_a_hand_off_that_is_too_long_is_refused_before_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "LONGEST_ARGUMENT", replace(LONGEST_ARGUMENT, value=Bytes(4_000)))
    with pytest.raises(SpecError) as error:
        compiled(spec())

    (finding,) = (one for one in error.value.diagnostics if one.code == "R116")
    assert re.fullmatch(
        r"`--additional-config` needs an argument of \d{4} bytes, and Linux takes 4000", finding.message
    ), finding.message
