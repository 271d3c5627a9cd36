"""What a check looks at, and what it is."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from servespec.compiler.extension import can_take_extension
from servespec.compiler.graphs.coverage import Coverage
from servespec.compiler.graphs.managers import GraphFrame
from servespec.compiler.graphs.shape import Row, Shape, rows_of
from servespec.compiler.graphs.split import CaptureFields
from servespec.compiler.graphs.stock import TokenList
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.fitting_changes import FittingChanges
from servespec.compiler.memory.ledger import Ledger, deciding
from servespec.compiler.memory.within_bound import GraphChoice
from servespec.compiler.resolve.resolution import Resolution
from servespec.diagnostics import Diagnostic, Place
from servespec.schema.capture_fields import DECODE_CAP, PREFILL_CAP
from servespec.units import Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Findable:
    """What checks look at. ``asked`` are the shapes of the fields, ``shapes`` those of the lowering.

    ``stock_list`` is the engine's list for the spec as written, ``token_list`` the one it resolves under the lowering
    and ``engines_list`` its own, where nothing about sizes is written; all are empty where nothing is captured.
    ``stages`` are the ledgers of the pipeline stages, none on a CPU.  ``choice`` is what a bound on graph memory made
    of fields that the spec leaves open, and ``alternative`` what it would make of all of them where those that are
    written exceed it; ``fitting_changes`` are those that make a plan fit which does not, or not for certain.
    """

    resolution: Resolution
    lowering: Lowering
    shapes: tuple[Shape, ...]
    asked: tuple[Shape, ...]
    coverage: Coverage
    stock_list: TokenList
    token_list: tuple[Tokens, ...]
    engines_list: tuple[Tokens, ...]
    stages: tuple[Ledger, ...]
    choice: GraphChoice | None
    alternative: GraphChoice | None
    fitting_changes: FittingChanges

    @property
    def ledger(self) -> Ledger | None:
        """Of the stage that decides."""
        return deciding(self.stages) if self.stages else None

    @property
    def frame(self) -> GraphFrame:
        return self.resolution.frame

    @property
    def fields(self) -> CaptureFields:
        return self.resolution.fields

    def place(self, *path: str | int) -> Place:
        return self.resolution.request.source.place_of(path)

    def key_place(self, *path: str | int) -> Place:
        return self.resolution.request.source.place_of_key(path)

    def line(self, section: str, name: str, value: int | str) -> str:
        """A field as it is typed: with its section where the spec has none."""
        has_section = isinstance(self.resolution.request.source.data.get(section), Mapping)
        return f"`{name}: {value}`" if has_section else f"`{section}: {{{name}: {value}}}`"

    def rows(self) -> tuple[Row, ...]:
        return rows_of(self.shapes)


def with_extension(subject: Findable, does: str) -> str:
    """A help that points to the extension, empty where this engine and runner cannot take one."""
    return f"`engine.lowering: extension` {does}" if can_take_extension(subject.resolution) else ""


def decode_cap(subject: Findable, requests: int) -> str:
    """The cap of decode graphs as it is typed."""
    return subject.line("compilation", DECODE_CAP, requests)


def prefill_cap(subject: Findable, tokens: int) -> str:
    """The cap of PIECEWISE graphs as it is typed."""
    return subject.line("compilation", PREFILL_CAP, tokens)


def bound_place(subject: Findable) -> Place:
    return subject.place("memory", "max_cudagraph_memory")


RAISE_BOUND = "raise `memory.max_cudagraph_memory`, which leaves no room for more"
"""The help to what a bound on graph memory gave up."""


Check = Callable[[Findable], Iterator[Diagnostic]]


def sizing_place(subject: Findable) -> Place:
    """The field that decides how far decode graphs reach, the first that is written."""
    section = subject.resolution.request.spec.compilation
    for name in (
        "decode_cudagraph_capture_request_sizes",
        "max_decode_cudagraph_capture_requests",
        "max_decode_cudagraph_capture_tokens",
        "cudagraph_capture_sizes",
        "max_cudagraph_capture_size",
    ):
        if getattr(section, name) is not None:
            return subject.place("compilation", name)
    if subject.choice is not None and subject.choice.chooses_decode:
        return bound_place(subject)
    return subject.place("scheduler", "max_num_seqs")
