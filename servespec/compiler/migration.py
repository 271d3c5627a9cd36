"""From the legacy capture fields of a spec to the new ones, in its own text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from servespec.compiler.facts.graph_sizes import DECODE_BUDGET as DEFAULT_BUDGET
from servespec.compiler.resolve.resolution import Resolution
from servespec.diagnostics import SpecError
from servespec.schema import spec_rules as rules
from servespec.schema.capture_fields import (
    DECODE_CAP,
    DECODE_SIZES,
    LEGACY_FIELDS,
    LEGACY_MAX,
    LEGACY_SIZES,
    PREFILL_CAP,
    PREFILL_SIZES,
    Reach,
    replacement_of,
)
from servespec.schema.source_edits import PairEdits, edited, written
from servespec.schema.spec import CompilationSection

_SECTION = "compilation"


@dataclass(frozen=True, slots=True)
class Migration:
    """``text`` is the spec with its new fields; ``changes`` says in words what became of each legacy one."""

    text: str
    changes: tuple[str, ...]


def migration_of(resolution: Resolution) -> Migration:
    """The migrated text of a spec in which legacy fields are in force.

    Request counts are those of the resolved limits, so that a batch of `max_num_seqs` keeps its graph.  Raises
    SpecError where the fields do not stand in the text as pairs of `compilation`, and where the spec has them passed
    to the engine as they are.
    """
    request, frame = resolution.request, resolution.frame
    if request.spec.engine.lowering == "none":
        place = request.source.place_of(("engine", "lowering"))
        message = "`lowering: none` passes the legacy fields to the engine, and none of the new ones"
        raise SpecError([rules.S225.at(place, message, "write `lowering: auto`, or keep the legacy fields")])
    reach = Reach(
        query_lens=tuple(frame.widest_batch),
        max_num_seqs=frame.max_num_seqs,
        max_num_batched_tokens=frame.max_num_batched_tokens,
        budget_tokens=DEFAULT_BUDGET.value if resolution.defaults.wide else None,
    )
    edits = _edits(request.spec.compilation, replacement_of(request.spec.compilation, reach))
    text = edited(request.source.own, edits)
    if text is None:
        first = next(name for name in LEGACY_FIELDS if getattr(request.spec.compilation, name) is not None)
        place = request.source.place_of_key((_SECTION, first))
        message = f"`{first}` is not written as a pair of `{_SECTION}` itself"
        raise SpecError([rules.S225.at(place, message, f"write {_new_pairs(edits)} there")])
    return Migration(text, tuple(_changes(edits)))


def _edits(section: CompilationSection, fields: dict[str, Any]) -> PairEdits:
    """Prefill keeps the legacy value, which is in tokens like it; decode gets a line of its own."""
    set_fields = [name for name in LEGACY_FIELDS if getattr(section, name) is not None]
    main = LEGACY_SIZES if LEGACY_SIZES in set_fields else LEGACY_MAX
    prefill = next((name for name in (PREFILL_SIZES, PREFILL_CAP) if name in fields), None)
    decode = next((name for name in (DECODE_SIZES, DECODE_CAP) if name in fields), None)
    if prefill is None and decode is None:
        return PairEdits(section=_SECTION, deleted=tuple(set_fields))
    renamed = {} if prefill is None else {main: prefill}
    replaced = {main: (decode, fields[decode])} if prefill is None and decode is not None else {}
    return PairEdits(
        section=_SECTION,
        renamed=renamed,
        replaced=replaced,
        deleted=tuple(name for name in set_fields if name != main),
        added={name: value for name, value in fields.items() if name != (prefill or decode)},
    )


def _changes(edits: PairEdits) -> Iterator[str]:
    for old, new in edits.renamed.items():
        yield f"`{old}` is `{new}` now, in tokens as before"
    for old, (new, value) in edits.replaced.items():
        yield f"`{old}` is `{new}: {written(value)}` now, in requests"
    for name, value in edits.added.items():
        yield f"`{name}: {written(value)}` is new{_why(name)}"
    for name in edits.deleted:
        why = "it says nothing beside the list" if edits.renamed or edits.replaced else "this mode captures nothing"
        yield f"`{name}` is gone: {why}"


def _why(name: str) -> str:
    return ", in requests" if name in (DECODE_SIZES, DECODE_CAP) else ": the legacy fields know no budget"


def _new_pairs(edits: PairEdits) -> str:
    renamed = [f"`{new}` with its value" for new in edits.renamed.values()]
    others = dict(edits.replaced.values()) | dict(edits.added)
    return " and ".join([*renamed, *(f"`{name}: {written(value)}`" for name, value in others.items())])
