"""The plug-in that counts how the target's steps ran, inside the API servers of an engine that `serve` launched.

The numbers are the engine's own, one `CUDAGraphStat` a step.  They stand at the server's `/metrics`, by model, engine
and mode, as `servespec:target_steps_total`, `servespec:target_unpadded_tokens_total` and
`servespec:target_padding_tokens_total`, and in a file of the record folder.  A mode appears with its first step, so
that an engine without statistics shows nothing.  An engine that is scaled while it serves drops its plug-ins, and the
count ends there.

Source: vllm/v1/metrics/loggers.py: StatLoggerManager; vllm/v1/worker/gpu/cudagraph_utils.py: make_cudagraph_stats.
"""

import atexit
import logging
import os
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from servespec.runtime.dispatch_counts import ModeCount, write_counts
from servespec.runtime.extension.report import FOLDER_VARIABLE

CLASS_NAME: Final = "DispatchLogger"
KEEP_VARIABLE: Final = "SERVESPEC_KEEP_STATISTICS"
"""Set where the spec asks for the statistics itself: the engine then logs them too, as it does by itself."""

_WRITE_SECONDS: Final = 2.0
_LABELS: Final = ("model_name", "engine", "mode")

Key = tuple[int, str]


def __getattr__(name: str) -> type:
    """The class that the entry point names; made when asked for, because its base is the engine's."""
    if name != CLASS_NAME:
        raise AttributeError(name)
    return _logger_class()


@dataclass(slots=True)
class Tally:
    """What one process has counted; ``folder`` is None once it could not be written, or where none was named."""

    model: str
    folder: Path | None
    counts: dict[Key, list[int]] = field(default_factory=dict)
    _series: dict[Key, tuple[Any, ...]] = field(default_factory=dict)
    _written_at: float = 0.0
    _is_written: bool = True

    def add(self, engine: int, mode: str, unpadded_tokens: int, padding_tokens: int) -> None:
        """Counts one step; writes where the last time is some seconds ago."""
        key = (engine, mode)
        if key not in self.counts:
            self.counts[key] = [0, 0, 0]
            self._series[key] = tuple(one.labels(self.model, str(engine), mode) for one in _counters())
        for at, amount in enumerate((1, unpadded_tokens, padding_tokens)):
            self.counts[key][at] += amount
            self._series[key][at].inc(amount)
        self._is_written = False
        if time.monotonic() - self._written_at >= _WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Leaves the counts in the folder; the first failure is logged and is the last try."""
        if self._is_written or self.folder is None:
            return
        try:
            write_counts(self.folder, os.getpid(), (_mode_count(key, count) for key, count in self.counts.items()))
        except OSError as error:
            logging.getLogger(f"vllm.{__name__}").warning("servespec: the step counts cannot be written: %s", error)
            self.folder = None
        self._written_at, self._is_written = time.monotonic(), True


def _mode_count(key: Key, count: list[int]) -> ModeCount:
    (engine, mode), (steps, unpadded, padding) = key, count
    return ModeCount(engine=engine, mode=mode, steps=steps, unpadded_tokens=unpadded, padding_tokens=padding)


@cache
def _counters() -> tuple[Any, Any, Any]:
    """One set a process: the registry takes each name once.  Several API servers' are summed by vLLM's collector."""
    from prometheus_client import Counter

    return (
        Counter("servespec:target_steps", "Steps of the target model, by how they ran (NONE: eager).", _LABELS),
        Counter("servespec:target_unpadded_tokens", "Tokens of those steps, without padding.", _LABELS),
        Counter("servespec:target_padding_tokens", "Padding tokens of those steps.", _LABELS),
    )


def _logger_class() -> type:
    from vllm.v1.metrics.loggers import AggregateStatLoggerBase

    # One for all engines of a process.  The engine adds its own Prometheus logger unless a plug-in is one itself.
    class DispatchLogger(AggregateStatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:  # noqa: ARG002
            folder = os.environ.get(FOLDER_VARIABLE)
            self._tally = Tally(vllm_config.model_config.served_model_name, Path(folder)) if folder else None
            self._keeps = KEEP_VARIABLE in os.environ
            if self._tally is not None:
                atexit.register(self._tally.write)

        def record(
            self,
            scheduler_stats: Any,
            iteration_stats: Any,  # noqa: ARG002
            mm_cache_stats: Any = None,  # noqa: ARG002
            engine_idx: int = 0,
        ) -> None:
            step = scheduler_stats.cudagraph_stats if scheduler_stats is not None else None
            if self._tally is None or step is None:
                return
            self._tally.add(engine_idx, step.runtime_mode, step.num_unpadded_tokens, step.num_paddings)
            if not self._keeps:
                # The engine's own logger comes next, and would log a table of every batch size each ten seconds.
                scheduler_stats.cudagraph_stats = None

        def log(self) -> None:
            """Called every ten seconds, so that the last steps before a pause are written too."""
            if self._tally is not None:
                self._tally.write()

        def log_engine_initialized(self) -> None:
            pass

    return DispatchLogger
