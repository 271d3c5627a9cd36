"""What an engine's log tells: how far the start has come, and why it failed.

The markers are pieces of messages that vLLM or what it stands on logs; a contract test looks vLLM's up in
its sources.  The log is only ever read in bounded pieces, however fast it grows.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_READ_BYTES = 256 * 1024
# Longer than any marker, so that one split over two reads is still seen.
_OVERLAP_BYTES = 64
_LINE_CHARACTERS = 300
_RELATED_LINES = 3


class Phase(StrEnum):
    """In the order an engine goes through them."""

    STARTING = "starting"
    LOADING = "loading weights"
    PROFILING = "profiling memory"
    COMPILING = "compiling"
    SIZING = "sizing the KV cache"
    CAPTURING = "capturing graphs"
    WARMING_UP = "warming up"
    OPENING = "opening the server"


PHASE_MARKERS = (
    (b"Starting to load model", Phase.LOADING),
    (b"Loading safetensors checkpoint shards", Phase.LOADING),
    (b"Loading weights took", Phase.LOADING),
    (b"Model loading took", Phase.PROFILING),
    (b"Start compiling", Phase.COMPILING),
    (b"Dynamo bytecode transform time", Phase.COMPILING),
    (b"Compiling a graph for", Phase.COMPILING),
    (b"Available KV cache memory", Phase.SIZING),
    (b"KV cache size:", Phase.SIZING),
    (b"Capturing CUDA graphs", Phase.CAPTURING),
    (b"Capturing prefill CUDA graphs", Phase.CAPTURING),
    (b"Capturing decode CUDA graphs", Phase.CAPTURING),
    (b"Graph capturing finished", Phase.WARMING_UP),
    (b"init engine (profile, create kv cache", Phase.WARMING_UP),
    (b"Starting vLLM server on", Phase.OPENING),
)

_COLOUR = re.compile(rb"\x1b\[[\d;]*m")
"""FORCE_COLOR of a shell reaches the engine's logger, and the tracebacks of newer Pythons, into a file as well."""

# An exception line, bare or after the process, level, time and place that vLLM's logger puts before it.
# Source: vllm/logger.py: _FORMAT.
_PREFIX = re.compile(r"^(?:\((?P<process>[^)\s]*)[^)]*\)\s+)?(?:(?:ERROR|CRITICAL)\s+\S+\s+\S+\s+\[[^]]*\]\s+)?")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure|NotFound|Exit)\b(?::|$)")
_PLAIN_ERROR = re.compile(r"^(?:\S+: )?error: ")
# A process that ended without a word of its own; its parent tells, the second as a warning.
# Source: vllm/v1/executor/multiproc_executor.py: start_worker_monitor; vllm/v1/engine/core_client.py: MPClient.
_DIED = re.compile(r"Worker proc \S+ died unexpectedly.*|engine core exited unexpectedly.*")
# Says that another process failed, which has said why before.
_CONSEQUENCES = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "EngineDeadError",
    "EngineCore encountered an issue",
    "Executor failed",
    "Worker failed with error",
    "One or more workers failed",
    "Frontend process failed",
    "Input socket thread died",
    "DistBackendError",
    "Connection closed by peer",
    "Connection reset by peer",
    "BrokenPipeError",
    "EOFError",
    "CancelledError",
)
# The processes that every launch has; any other name tells which of several it was.
_ORDINARY_PROCESSES = ("", "APIServer", "EngineCore", "Worker", "MainProcess")


class Cause(StrEnum):
    """A kind of failure that can be read off a log line."""

    PORT = "port"
    ENGINE = "engine"
    MEMORY = "memory"
    HOST_MEMORY = "host memory"
    SILENT_DEATH = "silent death"
    ARGUMENTS = "arguments"
    MODEL = "model"


_CAUSES = (
    (Cause.PORT, ("Address already in use", "address already in use")),
    (
        Cause.ENGINE,
        ("No module named 'vllm'", "No module named vllm", "No package metadata was found for vllm"),
    ),
    (
        Cause.MEMORY,
        (
            "out of memory",
            "OutOfMemoryError",
            "No available memory for the cache blocks",
            "Free memory on device",
            "KV cache is needed, which is larger than",
        ),
    ),
    (Cause.HOST_MEMORY, ("MemoryError", "Cannot allocate memory", "died unexpectedly (exit code: -9)")),
    (Cause.SILENT_DEATH, ("died unexpectedly", "engine core exited unexpectedly")),
    (
        Cause.ARGUMENTS,
        ("unrecognized arguments", "error: argument ", "expected one argument", "invalid choice"),
    ),
    (
        Cause.MODEL,
        (
            "FileNotFoundError",
            "No such file or directory",
            "HFValidationError",
            "RepositoryNotFoundError",
            "Repository Not Found",
            "GatedRepoError",
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "is not a local folder and is not a valid model identifier",
            "Invalid repository ID or local directory",
        ),
    ),
)


GIB_BYTES = 1 << 30
SAID_MARKERS = (
    ("model_bytes", "Model loading took {} GiB"),
    ("kv_cache_bytes", "Available KV cache memory: {} GiB"),
    ("kv_cache_tokens", "KV cache size: {} tokens"),
    ("graph_pool_bytes", "CUDA graph pool memory: {} GiB (actual)"),
    ("graph_pool_estimate_bytes", " GiB (actual), {} GiB (estimated)"),
)
"""Numbers that an engine logs while it starts, each with the words around it."""
COMPILED = "compiled_graphs"
COMPILING_MARKER = "Compiling a graph for compile range"
"""Stands in a line for each graph that is compiled, and in none for one that the engine's cache has."""


def said_numbers(log: str) -> dict[str, int]:
    """The last of each number that ``log`` holds, and how often it compiled a graph.

    Bytes are as round as the GiB that the engine prints.
    """
    said = {name: number for name, words in SAID_MARKERS if (number := _last_number(log, words)) is not None}
    compiled = log.count(COMPILING_MARKER)
    return {**said, COMPILED: compiled} if compiled else said


def _last_number(log: str, words: str) -> int | None:
    before, after = map(re.escape, words.split("{}"))
    found = re.findall(rf"{before}(-?[\d,]*\.?\d+){after}", log)
    if not found:
        return None
    number = float(found[-1].replace(",", ""))
    return round(number * GIB_BYTES) if " GiB" in words.split("{}")[1] else int(number)


_BAR = re.compile(rb"\d+%[^\r\n]*?\| *(\d+)/(\d+) \[")
"""As tqdm draws one, with a bar between two strokes, or as the engine words it for the shards of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a progress bar of the engine counts."""

    done: int
    total: int


@dataclass(slots=True)
class LogTail:
    """Reads what was added to a log, a bounded piece at a time.

    Remembers the last phase seen, the last line without ``secrets``, and when (``time.monotonic``) the log last grew.
    ``progress`` is of the bar that the log ends with, None where it ends with another line.
    """

    path: Path
    secrets: frozenset[str] = frozenset()
    phase: Phase = Phase.STARTING
    last_line: str = ""
    progress: Progress | None = None
    grew_at: float = field(default_factory=time.monotonic)
    _offset: int = 0
    _carried: bytes = b""

    def advance(self) -> Phase:
        """The phase that the log has reached now."""
        new = self._new_bytes()
        if new:
            self.grew_at = time.monotonic()
            self.last_line = _masked(_last_line(new), self.secrets) or self.last_line
            self.progress = _progress_of(_last_line(self._carried + new))
        data = self._carried + new
        for _, phase in sorted(_found(data)):
            self.phase = phase
        self._carried = data[-_OVERLAP_BYTES:]
        return self.phase

    def quiet_seconds(self) -> float:
        """How long the log has not grown, as far as it was read."""
        return time.monotonic() - self.grew_at

    def _new_bytes(self) -> bytes:
        data, self._offset = _read_end(self.path, self._offset)
        return data


@dataclass(frozen=True, slots=True)
class Telling:
    """What the end of a log says about a failure: the cause if one shows, and its lines, best first."""

    cause: Cause | None
    lines: tuple[str, ...]


def read_failure(path: Path, secrets: Iterable[str] = ()) -> Telling:
    """The lines that name a cause in the last part of the log, each cut to one readable length."""
    return telling_of(log_end(path), secrets)


def whole_log(path: Path) -> str:
    """All of a log; nothing of one that is gone."""
    with contextlib.suppress(OSError):
        return _plain(path.read_bytes()).decode("utf-8", "replace")
    return ""


def log_end(path: Path) -> str:
    """The last part of a log; nothing of one that is gone."""
    data, _ = _read_end(path, 0)
    return data.decode("utf-8", "replace")


def telling_of(text: str, secrets: Iterable[str] = ()) -> Telling:
    """The same for text in hand."""
    errors = list({str(line): line for line in _error_lines(text)}.values())[::-1]
    causal = [line for line in errors if not any(words in line.text for words in _CONSEQUENCES)] or errors
    # The last line that shows a known cause says more than whatever failed because of it.
    ranked = sorted(causal, key=_rank)
    lines = tuple(_masked(str(line), secrets) for line in ranked[:_RELATED_LINES])
    return Telling(_cause_of(ranked[0].text) if ranked else None, lines)


def _read_end(path: Path, from_byte: int) -> tuple[bytes, int]:
    """The last piece of what follows ``from_byte``, and where it ends; nothing of a log that is gone."""
    with contextlib.suppress(OSError), path.open("rb") as log:
        # A flood is skipped rather than followed; only its end says where the engine is now.
        start = max(from_byte, os.fstat(log.fileno()).st_size - _READ_BYTES)
        log.seek(start)
        data = log.read(_READ_BYTES)
        return _plain(data), start + len(data)
    return b"", from_byte


def _plain(data: bytes) -> bytes:
    return _COLOUR.sub(b"", data)


@dataclass(frozen=True, slots=True)
class _ErrorLine:
    """A line that says what went wrong, and the process that said it where there are several of its kind."""

    process: str
    text: str

    def __str__(self) -> str:
        return self.text if self.process in _ORDINARY_PROCESSES else f"{self.process}: {self.text}"


def _error_lines(text: str) -> Iterator[_ErrorLine]:
    for raw in text.splitlines():
        prefix = _PREFIX.match(raw)
        assert prefix is not None, raw
        line = raw[prefix.end() :].rstrip()
        if died := _DIED.search(line):
            yield _ErrorLine("", died[0])
        elif _EXCEPTION.match(line) or _PLAIN_ERROR.match(line) or _is_bare_cause(line):
            yield _ErrorLine(prefix["process"] or "", line)


def _is_bare_cause(line: str) -> bool:
    return _cause_of(line) is not None and not line.startswith(" ")


def _rank(line: _ErrorLine) -> int:
    """The lower, the nearer to the root: a known cause, an error, a silent death."""
    cause = _cause_of(line.text)
    if cause is Cause.SILENT_DEATH:
        return 2
    return 1 if cause is None else 0


def _cause_of(line: str) -> Cause | None:
    return next((cause for cause, marks in _CAUSES if any(mark in line for mark in marks)), None)


def _last_line(data: bytes) -> str:
    """The last line with something in it; a progress bar rewrites its own."""
    lines = data.decode("utf-8", "replace").replace("\r", "\n").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _progress_of(line: str) -> Progress | None:
    found = _BAR.search(line.encode())
    return None if found is None else Progress(int(found[1]), int(found[2]))


def _masked(line: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        line = line.replace(secret, "***")
    return line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"


def _found(data: bytes) -> Iterator[tuple[int, Phase]]:
    for marker, phase in PHASE_MARKERS:
        if (at := data.rfind(marker)) >= 0:
            yield at, phase
