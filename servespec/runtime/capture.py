"""What an engine captured, seen beside the rows of the plan; two kinds of evidence make one."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from servespec.diagnostics import Diagnostic
from servespec.runtime.run_rules import CAPTURE_DIFFERS, CAPTURE_UNSEEN


class Evidence(StrEnum):
    """The workers' own reports, graph by graph; or the counts of the progress bars in the engine's log."""

    WORKERS = "workers"
    LOG = "log"


class Verdict(StrEnum):
    AS_PLANNED = "as_planned"
    DIFFERS = "differs"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class VerificationSteps:
    """Steps that verified all their drafts, and steps whose drafts the engine chose among, of one worker."""

    fixed: int
    adaptive: int


class AtExit(StrEnum):
    """Whether the workers held the same graphs at their end as after capture; one that did not say so is not seen."""

    SAME = "same"
    CHANGED = "changed"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCost:
    """What the captures of one row took on one rank, their eager runs included.

    ``pool_bytes`` grew in the allocator, ``device_bytes`` went from the device, the driver's objects with them.
    """

    pool_bytes: int
    device_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RowCapture:
    """One row of the plan: how many of its graphs each rank holds, None where the evidence has no number of its own.

    A progress bar counts one manager and mode, which can be several rows; their verdict is that of the sum.
    ``costs`` are in the order of ``graphs``, and empty where the evidence has none.
    """

    graphs: tuple[int | None, ...]
    verdict: Verdict
    costs: tuple[RowCost | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes of one rank's device after capture; None for what the engine did not profile.

    ``held_bytes`` is all but the KV cache, ``peak_bytes`` what a step took above that in the profile run.
    """

    device_bytes: int
    free_at_start_bytes: int
    weights_bytes: int
    held_bytes: int
    peak_bytes: int | None
    engine_estimate_bytes: int | None
    kv_cache_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCapture:
    """What capture took on one rank; the ranks are None where a log does not say whose line it is."""

    data_parallel_rank: int | None
    rank: int | None
    capture_seconds: float
    graph_bytes: int
    memory: RankMemory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """``rows`` are in the order of the plan's; ``findings`` say how it differs from the plan."""

    evidence: Evidence
    rows: tuple[RowCapture, ...]
    ranks: tuple[RankCapture, ...]
    findings: tuple[Diagnostic, ...]

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.findings)


def verdict_of(findings: Iterable[Diagnostic]) -> Verdict:
    """Differing weighs more than not seen."""
    codes = {finding.code for finding in findings}
    if CAPTURE_DIFFERS.code in codes:
        return Verdict.DIFFERS
    return Verdict.UNSEEN if CAPTURE_UNSEEN.code in codes else Verdict.AS_PLANNED
