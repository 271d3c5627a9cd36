"""Graphs travel in one argument of the command line, and Linux takes only so long a one."""

import subprocess
import sys

import pytest

from servespec.compiler.facts.command_lines import LONGEST_ARGUMENT
from servespec.diagnostics import SpecError
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")


def spec_with(prefill_sizes: int, decode_sizes: int) -> Json:
    """Drafts in three tiers, every size listed."""
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
        scheduler={"max_num_seqs": 1024, "max_num_batched_tokens": 16384},
        compilation={
            "decode_cudagraph_capture_request_sizes": list(range(1, decode_sizes + 1)),
            "prefill_cudagraph_capture_token_sizes": list(range(1, prefill_sizes + 1)),
            "max_decode_cudagraph_capture_tokens": "unlimited",
        },
    )


def test_what_linux_takes_is_the_fact() -> None:
    fits = "x" * (LONGEST_ARGUMENT.value - 1)

    assert subprocess.run([sys.executable, "-c", "", fits], check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run([sys.executable, "-c", "", f"{fits}x"], check=False)


def test_a_hand_off_that_is_too_long_is_refused_before_the_launch() -> None:
    with pytest.raises(SpecError) as error:
        compiled(spec_with(prefill_sizes=10_000, decode_sizes=1024))

    (finding,) = (one for one in error.value.diagnostics if one.code == "R116")
    assert finding.message.startswith("`--additional-config` needs an argument of ")
    assert finding.message.endswith(" bytes, and Linux takes 131072")


def test_every_size_of_a_usual_range_still_fits() -> None:
    argv = compiled(spec_with(prefill_sizes=8192, decode_sizes=1024)).lowered.argv

    assert 120_000 < max(len(word.encode()) for word in argv) < LONGEST_ARGUMENT.value
