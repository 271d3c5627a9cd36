"""What is read off an engine's log."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.runtime.engine_log import (
    COMPILING_MARKER,
    PHASE_MARKERS,
    SAID_MARKERS,
    Cause,
    LogTail,
    Phase,
    Progress,
    Telling,
    read_failure,
    said_numbers,
    telling_of,
    whole_log,
)

ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", Path(__file__).parents[2] / ".engines"))

ROOT_CAUSE_IN_A_CHILD = """\
(APIServer pid=7) INFO 11-30 02:33:40 [api_utils.py:286] non-default args: {'port': 8123}
(EngineCore pid=9) ERROR 11-30 02:37:27 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=9) ERROR 11-30 02:37:27 [core.py:1510]     raise ValueError(
(EngineCore pid=9) ERROR 11-30 02:37:27 [core.py:1510] ValueError: max_model_len is too large
Traceback (most recent call last):
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
/usr/lib/python3.11/resource_tracker.py:254: UserWarning: resource_tracker: 1 leaked shared_memory objects
"""


def test_root_cause_of_a_child_wins_over_its_wrapper() -> None:
    assert telling_of(ROOT_CAUSE_IN_A_CHILD) == Telling(None, ("ValueError: max_model_len is too large",))


def coloured(log: str) -> str:
    """As the engine's ColoredFormatter writes its lines, and Python 3.13 an exception."""
    log = re.sub(r"^(\(.*?\))", "\x1b[0;36m\\1\x1b[0;0m", log, flags=re.MULTILINE)
    log = re.sub(r"(\d\d-\d\d \d\d:\d\d:\d\d) (\[.*?\])", "\x1b[90m\\1\x1b[0m \x1b[90m\\2\x1b[0m", log)
    log = re.sub(r"\b(INFO|ERROR)\b", "\x1b[31m\\1\x1b[0m", log)
    return re.sub(r"^(\w+Error): (.*)", "\x1b[1;35m\\1\x1b[0m: \x1b[35m\\2\x1b[0m", log, flags=re.MULTILINE)


def test_colours_hide_nothing(tmp_path: Path) -> None:
    """FORCE_COLOR of a shell, as many a CI sets it, or VLLM_LOGGING_COLOR."""
    log = tmp_path / "engine.log"
    log.write_text(coloured(ROOT_CAUSE_IN_A_CHILD))
    assert log.read_text().count("\x1b[") > 20

    assert read_failure(log) == Telling(None, ("ValueError: max_model_len is too large",))
    assert whole_log(log) == ROOT_CAUSE_IN_A_CHILD
    tail = LogTail(log)
    tail.advance()
    assert tail.last_line == ROOT_CAUSE_IN_A_CHILD.splitlines()[-1]


def test_wrapper_is_said_when_nothing_else_is() -> None:
    line = "RuntimeError: Engine core initialization failed. See root cause above."
    assert telling_of(line) == Telling(None, (line,))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "(Worker pid=1) ERROR 01-01 00:00:00 [w.py:1] torch.OutOfMemoryError: CUDA out of memory.",
            Cause.MEMORY,
        ),
        (
            "ValueError: Free memory on device cuda:0 (1.0/79.1 GiB) on startup is less than desired",
            Cause.MEMORY,
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing", Cause.MEMORY),
        ("MemoryError", Cause.HOST_MEMORY),
        ("OSError: [Errno 12] Cannot allocate memory", Cause.HOST_MEMORY),
        (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'x': '/tmp/none'.",
            Cause.MODEL,
        ),
        (
            "OSError: /models/x is not a local folder and is not a valid model identifier listed on",
            Cause.MODEL,
        ),
        ("api_server.py: error: unrecognized arguments: --max-num-sequences", Cause.ARGUMENTS),
        ("vllm: error: argument --dtype: invalid choice: 'int3'", Cause.ARGUMENTS),
        ("OSError: [Errno 98] Address already in use", Cause.PORT),
        ("/usr/bin/python: No module named vllm", Cause.ENGINE),
        ("importlib.metadata.PackageNotFoundError: No package metadata was found for vllm", Cause.ENGINE),
        ("AssertionError", None),
    ],
)
def test_causes(line: str, cause: Cause | None) -> None:
    telling = telling_of(f"INFO before\n{line}\nafter\n")
    assert telling.cause == cause
    assert line.endswith(telling.lines[0])


DIED = (
    "(EngineCore pid=9) ERROR 11-30 02:37:28 [m.py:380] Worker proc VllmWorker-{rank} died unexpectedly "
    "(exit code: {code}), shutting down executor."
)
ONE_RANK_OF_TWO = """\
(Worker_TP1 pid=11) ERROR 11-30 02:37:27 [multiproc_executor.py:1057] WorkerProc failed to start.
(Worker_TP1 pid=11) ERROR 11-30 02:37:27 [multiproc_executor.py:1057] ValueError: a weight is missing
(Worker_TP0 pid=10) ERROR 11-30 02:37:28 [multiproc_executor.py:1057] torch.distributed.DistBackendError: NCCL error
(EngineCore pid=9) ERROR 11-30 02:37:28 [core.py:1584] Exception: WorkerProc initialization failed due to an exception
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""


def test_a_line_that_two_processes_print_is_told_once() -> None:
    text = "(EngineCore pid=9) ERROR 11-30 02:37:27 [core.py:1] KeyError: 'a'\nKeyError: 'a'\n"
    assert telling_of(text) == Telling(None, ("KeyError: 'a'",))


def test_the_rank_that_failed_first_is_named() -> None:
    assert telling_of(ONE_RANK_OF_TWO) == Telling(None, ("Worker_TP1: ValueError: a weight is missing",))


def test_the_cause_of_a_rank_is_found_with_its_name() -> None:
    text = ONE_RANK_OF_TWO.replace("ValueError: a weight is missing", "torch.OutOfMemoryError: CUDA out of memory.")
    assert telling_of(text) == Telling(Cause.MEMORY, ("Worker_TP1: torch.OutOfMemoryError: CUDA out of memory.",))


@pytest.mark.parametrize(
    ("line", "cause", "said"),
    [
        (
            DIED.format(rank=1, code=-9),
            Cause.HOST_MEMORY,
            "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.",
        ),
        (
            DIED.format(rank=0, code=None),
            Cause.SILENT_DEATH,
            "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor.",
        ),
        (
            "(APIServer pid=7) WARNING 11-30 02:37:28 [c.py:1] [shutdown] MPClient: engine core exited unexpectedly; x",
            Cause.SILENT_DEATH,
            "engine core exited unexpectedly; x",
        ),
    ],
)
def test_a_silent_death_is_the_root_where_nothing_else_is_said(line: str, cause: Cause | None, said: str) -> None:
    after = "(EngineCore pid=9) ERROR 11-30 02:37:28 [core.py:1586] RuntimeError: Executor failed."
    assert telling_of(f"{line}\n{after}\n") == Telling(cause, (said,))
    error = "(EngineCore pid=9) ERROR 11-30 02:37:27 [core.py:1586] KeyError: 'root'"
    assert telling_of(f"{error}\n{line}\n").lines[0] == (said if cause is Cause.HOST_MEMORY else "KeyError: 'root'")


def test_the_tail_knows_the_last_line_and_since_when_nothing_came(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\nbar:  1%\rbar:  2%\r\n\n")
    tail = LogTail(log)
    tail.grew_at -= 100
    tail.advance()
    assert (tail.last_line, tail.quiet_seconds() < 5) == ("bar:  2%", True)
    tail.grew_at -= 100
    tail.advance()
    assert tail.quiet_seconds() > 99


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Capturing CUDA graphs (FULL):  45%|####5     | 23/51 [00:02<00:03,  8.72it/s]", Progress(23, 51)),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  1.85it/s]", Progress(1, 2)),
        ("bar: 10%|#  | 1/10 [a\rbar: 20%|## | 2/10 [a\r", Progress(2, 10)),
        ("bar: 10%|#  | 1/10 [a\nINFO something else\n", None),
        ("GPU memory at 45% | of 23/51", None),
        ("", None),
    ],
)
def test_the_tail_knows_the_bar_that_the_log_ends_with(tmp_path: Path, text: str, expected: Progress | None) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    tail = LogTail(log)
    tail.advance()
    assert tail.progress == expected


def test_known_cause_wins_over_what_failed_because_of_it() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory.\nKeyError: 'cleanup'\n"
    assert telling_of(text) == Telling(
        Cause.MEMORY, ("torch.OutOfMemoryError: CUDA out of memory.", "KeyError: 'cleanup'")
    )


def test_a_healthy_log_tells_nothing() -> None:
    assert telling_of("INFO all is well\n    raise ValueError(\nThe Error of our ways\n") == Telling(None, ())


def test_secrets_are_masked() -> None:
    assert telling_of("ValueError: key abc123xyz is bad", ["abc123xyz"]).lines == ("ValueError: key *** is bad",)


@given(st.text() | st.from_regex(r"([A-Z][a-z]+Error: .*\n){0,9}"))
def test_any_text_gives_few_short_lines(text: str) -> None:
    lines = telling_of(text).lines
    assert len(lines) <= 3
    assert all(len(line) <= 300 and "\n" not in line for line in lines)


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as large:
        large.write(b"MemoryError: long ago\n")
        large.truncate(4 << 30)
        large.seek(0, os.SEEK_END)
        large.write(b"\nKeyError: 'now'\nCapturing CUDA graphs (FULL)\n")
    assert read_failure(log) == Telling(None, ("KeyError: 'now'",))
    assert LogTail(log).advance() is Phase.CAPTURING


def test_a_log_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    assert LogTail(tmp_path / "gone").advance() is Phase.STARTING
    assert read_failure(tmp_path / "gone") == Telling(None, ())


@given(
    st.lists(st.sampled_from([m for m, _ in PHASE_MARKERS]), min_size=1, max_size=6),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_the_phase_does_not_depend_on_when_the_log_is_read(
    tmp_path_factory: pytest.TempPathFactory, markers: list[bytes], cuts: list[int]
) -> None:
    text = b"".join(b"INFO [x.py:1] " + marker + b" ...\n" for marker in markers)
    tail = LogTail(tmp_path_factory.mktemp("log") / "log")
    for end in sorted({min(cut, len(text)) for cut in cuts} | {len(text)}):
        tail.path.write_bytes(text[:end])
        tail.advance()
    assert tail.phase is dict(PHASE_MARKERS)[markers[-1]]


SAID = """\
(Worker pid=1) INFO 01-01 00:00:00 [m.py:1] Model loading took 15.27 GiB memory and 3.123456 seconds
(EngineCore pid=1) INFO [w.py:1] Available KV cache memory: 101.5 GiB
(EngineCore pid=1) INFO [k.py:1] GPU KV cache size: 1,234,560 tokens, Maximum concurrency
(Worker pid=1) INFO [w.py:1] CUDA graph pool memory: 2.5 GiB (actual), 0.25 GiB (estimated), difference
"""


def test_what_the_engine_says_of_its_memory() -> None:
    assert said_numbers(SAID) == {
        "model_bytes": round(15.27 * 2**30),
        "kv_cache_bytes": 108_984_795_136,
        "kv_cache_tokens": 1_234_560,
        "graph_pool_bytes": 2_684_354_560,
        "graph_pool_estimate_bytes": 268_435_456,
    }
    assert said_numbers("nothing of the kind") == {}


def test_a_graph_that_is_compiled_is_told_from_one_of_the_cache() -> None:
    cached = "INFO [backends.py:311] Directly load the compiled graph(s) for compile range (1, 8192) from the cache\n"
    compiled = "INFO [backends.py:418] Compiling a graph for compile range (1, 8192) takes 14.06 s\n"

    assert said_numbers(cached) == {}
    assert said_numbers(cached + 2 * compiled) == {"compiled_graphs": 2}


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.33.0", "0.32.0"])
def test_markers_stand_in_the_engines_sources(version: str) -> None:
    folder = ENGINES / f"vllm-{version}" / "vllm"
    if not folder.is_dir():
        pytest.skip(f"no {folder}; run tools/fetch_engines.py")
    wanted = {marker for marker, _ in PHASE_MARKERS} | {words.replace("{}", "%s").encode() for _, words in SAID_MARKERS}
    wanted.add(COMPILING_MARKER.encode())
    for part in ("v1", "model_executor/model_loader", "compilation", "entrypoints"):
        for file in (folder / part).rglob("*.py"):
            text = file.read_bytes()
            wanted = {marker for marker in wanted if marker not in text}
    assert wanted == set()
