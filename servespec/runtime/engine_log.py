"""What an engine's log tells: how far the start has come, and why it failed.

The markers are pieces of messages that vLLM or what it stands on logs; a contract test looks vLLM's up in
its sources.  The log is only ever read in bounded pieces, however fast it grows.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
    COMPILING = "compiling"
    SIZING = "sizing the KV cache"
    CAPTURING = "capturing graphs"
    WARMING_UP = "warming up"
    OPENING = "opening the server"


PHASE_MARKERS = (
    (b"Starting to load model", Phase.LOADING),
    (b"Loading safetensors checkpoint shards", Phase.LOADING),
    (b"Loading weights took", Phase.LOADING),
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

# An exception line, bare or after the process, level, time and place that vLLM's logger puts before it.
_PREFIX = re.compile(r"^(?:\([^)]*\)\s+)?(?:(?:ERROR|CRITICAL)\s+\S+\s+\S+\s+\[[^]]*\]\s+)?")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure|NotFound|Exit)\b(?::|$)")
_PLAIN_ERROR = re.compile(r"^(?:\S+: )?error: ")
# Says that another process failed, which has said why before.
_WRAPPERS = ("Engine core initialization failed", "WorkerProc initialization failed", "EngineDeadError")


class Cause(StrEnum):
    """A kind of failure that can be read off a log line."""

    PORT = "port"
    ENGINE = "engine"
    MEMORY = "memory"
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
            "MemoryError",
            "Cannot allocate memory",
            "No available memory for the cache blocks",
            "Free memory on device",
            "KV cache is needed, which is larger than",
        ),
    ),
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


def said_numbers(log: str) -> dict[str, int]:
    """The last of each number that ``log`` holds; bytes are as round as the GiB that the engine prints."""
    return {name: number for name, words in SAID_MARKERS if (number := _last_number(log, words)) is not None}


def _last_number(log: str, words: str) -> int | None:
    before, after = map(re.escape, words.split("{}"))
    found = re.findall(rf"{before}(-?[\d,]*\.?\d+){after}", log)
    if not found:
        return None
    number = float(found[-1].replace(",", ""))
    return round(number * GIB_BYTES) if " GiB" in words.split("{}")[1] else int(number)


@dataclass(slots=True)
class LogTail:
    """Reads what was added to a log, a bounded piece at a time, and remembers the last phase seen."""

    path: Path
    phase: Phase = Phase.STARTING
    _offset: int = 0
    _carried: bytes = b""

    def advance(self) -> Phase:
        """The phase that the log has reached now."""
        data = self._carried + self._new_bytes()
        for _, phase in sorted(_found(data)):
            self.phase = phase
        self._carried = data[-_OVERLAP_BYTES:]
        return self.phase

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
    data, _ = _read_end(path, 0)
    return telling_of(data.decode("utf-8", "replace"), secrets)


def telling_of(text: str, secrets: Iterable[str] = ()) -> Telling:
    """The same for text in hand."""
    errors = list(dict.fromkeys(_error_lines(text)))[::-1]
    causal = [line for line in errors if not any(w in line for w in _WRAPPERS)] or errors
    # The last line that shows a known cause says more than whatever failed because of it.
    first = next((line for line in causal if _cause_of(line)), causal[0] if causal else "")
    ranked = dict.fromkeys([first, *causal]) if first else {}
    lines = tuple(_masked(line, secrets) for line in list(ranked)[:_RELATED_LINES])
    return Telling(_cause_of(first), lines)


def _read_end(path: Path, from_byte: int) -> tuple[bytes, int]:
    """The last piece of what follows ``from_byte``, and where it ends; nothing of a log that is gone."""
    with contextlib.suppress(OSError), path.open("rb") as log:
        # A flood is skipped rather than followed; only its end says where the engine is now.
        start = max(from_byte, os.fstat(log.fileno()).st_size - _READ_BYTES)
        log.seek(start)
        data = log.read(_READ_BYTES)
        return data, start + len(data)
    return b"", from_byte


def _error_lines(text: str) -> Iterator[str]:
    for raw in text.splitlines():
        line = _PREFIX.sub("", raw.rstrip())
        if _EXCEPTION.match(line) or _PLAIN_ERROR.match(line) or (_cause_of(line) and not line.startswith(" ")):
            yield line


def _cause_of(line: str) -> Cause | None:
    return next((cause for cause, marks in _CAUSES if any(mark in line for mark in marks)), None)


def _masked(line: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        line = line.replace(secret, "***")
    return line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"


def _found(data: bytes) -> Iterator[tuple[int, Phase]]:
    for marker, phase in PHASE_MARKERS:
        if (at := data.rfind(marker)) >= 0:
            yield at, phase
