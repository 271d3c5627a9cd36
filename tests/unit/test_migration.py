"""What `migrate` refuses, and what it writes where the file cannot show it."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.schema.capture_fields import Reach, replacement_of
from servespec.schema.spec import CompilationSection
from tests.plans import model_folder

pytestmark = pytest.mark.usefixtures("quiet_shell")

SPEC = f"""\
servespec: 1
scheduler: {{max_num_seqs: &n 64}}
model: {{id: {model_folder("qwen3-8b")}}}
hardware: {{gpu: h200}}
"""


def migrate(text: str, *options: str) -> Any:
    return CliRunner().invoke(app, ["migrate", "-", *options], input=text)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (
            "model_: 0\n",
            "error[S102]",
        ),
        (
            "compilation: {max_cudagraph_capture_size: *n, cudagraph_mode: FULL_DECODE_ONLY}\n",
            "error[S225]: `max_cudagraph_capture_size` is not written as a pair of `compilation` itself",
        ),
        (
            "compilation: {max_cudagraph_capture_size: 64}\nengine: {lowering: none}\n",
            "error[S225]: `lowering: none` passes the legacy fields to the engine, and none of the new ones",
        ),
        (
            "compilation: {max_cudagraph_capture_size: 64}\nengine: {model_runner: v1}\n",
            "error[S210]: `model_runner: v1` rejects `max_prefill_cudagraph_capture_tokens`",
        ),
    ],
)
def test_1_where_it_cannot_be(rest: str, said: str) -> None:
    done = migrate(SPEC + rest)

    assert (done.exit_code, done.stdout) == (1, "")
    assert said in " ".join(done.stderr.split())


def test_findings_about_the_migrated_text_say_so() -> None:
    done = migrate(SPEC + "compilation: {max_cudagraph_capture_size: 64}\nengine: {model_runner: v1}\n")

    assert "<stdin>: the spec can stay as it is; migrated, it would be refused" in done.stderr
    assert "5 | compilation: {max_decode_cudagraph_capture_requests: 64" in done.stderr


def test_nothing_to_migrate_prints_the_spec_itself() -> None:
    text = SPEC + "compilation: {cudagraph_capture_sizes: null} # nothing\n"

    assert (migrate(text).exit_code, migrate(text).stdout) == (0, text)
    assert migrate(text, "--check").exit_code == 0


def test_a_mode_without_graphs_has_no_use_for_either() -> None:
    done = migrate(SPEC + "compilation: {cudagraph_mode: NONE, max_cudagraph_capture_size: 64}\n")

    assert (done.exit_code, done.stdout) == (0, SPEC + "compilation: {cudagraph_mode: NONE}\n")
    assert "`max_cudagraph_capture_size` is gone: this mode captures nothing" in done.stderr


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (SPEC + "compilation: {max_cudagraph_capture_size: 64}\n").encode())

    assert CliRunner().invoke(app, ["migrate", "--write", str(path)]).exit_code == 0
    assert path.read_bytes().startswith(b"\xef\xbb\xbfservespec: 1\n")
    assert b"max_prefill_cudagraph_capture_tokens: 64}" in path.read_bytes()


# By hand: sizes in tokens to counts in requests.


@pytest.mark.parametrize(
    ("sizes", "reach", "counts"),
    [
        # 4 and 8 tokens are one and two requests; 6 is rounded up to two; 9 would be 12 tokens, beyond the largest.
        ((4, 6, 8, 9), Reach((4,)), (1, 2)),
        # 12 and 64 requests, and the widest batch that they reach.
        ((48, 256), Reach((4,), max_num_seqs=48), (12, 48)),
        # 256 is beyond the step, so 48 is the largest.
        ((48, 256), Reach((4,), max_num_seqs=48, max_num_batched_tokens=128), (12,)),
        # Two tiers: 8 and 16 tokens are 1 and 2 at q = 8, and 4 and 8 at q = 2.
        ((8, 16), Reach((8, 2)), (1, 2, 4, 8)),
        # No whole request of four tokens within two.
        ((1, 2), Reach((4,)), ()),
    ],
)
def test_counts_by_hand(sizes: tuple[int, ...], reach: Reach, counts: tuple[int, ...]) -> None:
    section = CompilationSection(cudagraph_capture_sizes=sizes)

    assert replacement_of(section, reach) == {
        "prefill_cudagraph_capture_token_sizes": sizes,
        "decode_cudagraph_capture_request_sizes": counts,
    }


@pytest.mark.parametrize(
    ("maximum", "reach", "expected"),
    [
        (512, Reach((8,)), {"max_decode_cudagraph_capture_requests": 64}),
        (512, Reach((8,), max_num_seqs=32), {"max_decode_cudagraph_capture_requests": 32}),
        (512, Reach((8, 2), max_num_seqs=300), {"max_decode_cudagraph_capture_requests": 256}),
        (4, Reach((8,)), {"decode_cudagraph_capture_request_sizes": ()}),
        # 1,024 requests of eight tokens are above the budget that the new fields bring on some devices.
        (
            8192,
            Reach((8,), max_num_seqs=1024, budget_tokens=4096),
            {"max_decode_cudagraph_capture_requests": 1024, "max_decode_cudagraph_capture_tokens": "unlimited"},
        ),
        (4096, Reach((8,), max_num_seqs=512, budget_tokens=4096), {"max_decode_cudagraph_capture_requests": 512}),
    ],
)
def test_caps_by_hand(maximum: int, reach: Reach, expected: dict[str, Any]) -> None:
    section = CompilationSection(max_cudagraph_capture_size=maximum)

    assert replacement_of(section, reach) == {"max_prefill_cudagraph_capture_tokens": maximum, **expected}


def test_without_k_nothing_is_said() -> None:
    assert replacement_of(CompilationSection(max_cudagraph_capture_size=64), Reach(())) == {}
