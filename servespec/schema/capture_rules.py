"""The rules of the five capture fields and the two legacy ones.

Each check sees the spec, its source and the limits as far as they are known: those written in the spec when a file
is validated, the resolved ones when it is planned.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from servespec.diagnostics import Diagnostic, Place, Related
from servespec.schema import spec_rules as rules
from servespec.schema.capture_fields import (
    DECODE_CAP,
    DECODE_SIZES,
    LEGACY_FIELDS,
    LEGACY_MAX,
    LEGACY_SIZES,
    NEW_FIELDS,
    PREFILL_CAP,
    PREFILL_SIZES,
    SIZED_BY_MODE,
    Reach,
    replacement_of,
)
from servespec.schema.source import SpecPath, SpecSource
from servespec.schema.spec import CompilationSection, ServingSpec

_SIZE_LISTS = (PREFILL_SIZES, DECODE_SIZES, LEGACY_SIZES)


@dataclass(frozen=True, slots=True)
class Written:
    """A spec's capture fields with their places. ``max_num_seqs`` is None where it is not known yet."""

    spec: ServingSpec
    source: SpecSource
    max_num_seqs: int | None
    max_num_batched_tokens: int | None

    @property
    def fields(self) -> CompilationSection:
        return self.spec.compilation

    def place(self, field: str) -> Place:
        return self.source.place_of(_path(field))

    def key_place(self, field: str) -> Place:
        return self.source.place_of_key(_path(field))

    def sizes(self, field: str) -> tuple[int, ...] | None:
        value: tuple[int, ...] | None = getattr(self.fields, field)
        return value

    def set_fields(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if getattr(self.fields, name) is not None)

    @property
    def query_lens(self) -> tuple[int, ...]:
        """q of every tier, or 1 + K; 1 without speculation. Empty where the spec writes no K."""
        speculative = self.spec.speculative
        if speculative is None:
            return (1,)
        if speculative.dynamic:
            return tuple(sorted({1 + tier.num_speculative_tokens for tier in speculative.written_tiers}))
        k = speculative.num_speculative_tokens
        return () if k is None else (1 + k,)


def _path(field: str) -> SpecPath:
    return ("compilation", field)


Check = Callable[[Written], Iterator[Diagnostic]]


def capture_findings(
    spec: ServingSpec,
    source: SpecSource,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
) -> tuple[Diagnostic, ...]:
    """All findings about the capture fields."""
    written = Written(spec, source, max_num_seqs, max_num_batched_tokens)
    return tuple(finding for check in CHECKS for finding in check(written))


def _mixed(written: Written) -> Iterator[Diagnostic]:
    new = written.set_fields(NEW_FIELDS)
    if not new or _is_engine_record(written):
        return
    for legacy in written.set_fields(LEGACY_FIELDS):
        related = [Related(f"`{name}` sizes one kind in its own unit", written.key_place(name)) for name in new]
        message = f"`{legacy}` stands beside `{new[0]}`"
        yield rules.S201.at(written.key_place(legacy), message, f"delete `{legacy}`, or all of the new fields", related)


def _is_engine_record(written: Written) -> bool:
    """An engine with the five fields writes the captured token sizes back into the legacy ones.

    Such a dump is valid where both lists are written and the record follows from them.
    """
    prefill, decode = written.sizes(PREFILL_SIZES), written.sizes(DECODE_SIZES)
    if prefill is None or decode is None or not written.query_lens:
        return False
    tokens = sorted({*prefill, *(t for n in decode for t in _budgeted_tokens(written, n))})
    recorded, maximum = written.sizes(LEGACY_SIZES), written.fields.max_cudagraph_capture_size
    same_list = recorded is None or sorted(set(recorded)) == tokens
    same_max = maximum is None or maximum == max(tokens, default=0)
    return same_list and same_max


def _budgeted_tokens(written: Written, requests: int) -> Iterator[int]:
    budget = written.fields.max_decode_cudagraph_capture_tokens
    for query_len in written.query_lens:
        tokens = requests * query_len
        if not isinstance(budget, int) or tokens <= budget:
            yield tokens


def _deprecated(written: Written) -> Iterator[Diagnostic]:
    if written.set_fields(NEW_FIELDS) or written.sizes(LEGACY_SIZES) == ():
        return
    for legacy in written.set_fields(LEGACY_FIELDS):
        message = f"`{legacy}` sizes prefill and decode together, in tokens"
        yield rules.S202.at(written.key_place(legacy), message, _replacement_help(written))


def _replacement_help(written: Written) -> str:
    """What `migrate` writes, as far as the spec itself tells: the same words before resolution and after it."""
    scheduler = written.spec.scheduler
    limits = Reach(written.query_lens, scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
    fields = replacement_of(written.fields, limits)
    if not fields:
        return f"write `{PREFILL_CAP}` in tokens and `{DECODE_CAP}` in requests"
    listed = " and ".join(
        f"`{name}: {sorted(set(value)) if isinstance(value, tuple) else value}`" for name, value in fields.items()
    )
    return f"write {listed}; `servespec migrate` does"


def _empty_legacy(written: Written) -> Iterator[Diagnostic]:
    if written.sizes(LEGACY_SIZES) == ():
        message = f"`{LEGACY_SIZES}` is empty"
        yield rules.S208.at(
            written.place(LEGACY_SIZES), message, f"write `{DECODE_SIZES}: []`, or `cudagraph_mode: NONE`"
        )


def _legacy_disagree(written: Written) -> Iterator[Diagnostic]:
    sizes, maximum = written.sizes(LEGACY_SIZES), written.fields.max_cudagraph_capture_size
    if not sizes or maximum is None or written.set_fields(NEW_FIELDS) or max(sizes) == maximum:
        return
    message = f"`{LEGACY_MAX}` is `{maximum}` and the largest of `{LEGACY_SIZES}` is `{max(sizes)}`"
    related = [Related("the list", written.key_place(LEGACY_SIZES))]
    yield rules.S209.at(written.place(LEGACY_MAX), message, f"delete `{LEGACY_MAX}`", related)


def _beyond_cap(written: Written) -> Iterator[Diagnostic]:
    for list_field, cap_field in ((PREFILL_SIZES, PREFILL_CAP), (DECODE_SIZES, DECODE_CAP)):
        sizes, cap = written.sizes(list_field), getattr(written.fields, cap_field)
        beyond = [size for size in sizes or () if cap is not None and size > cap]
        if beyond:
            message = f"`{list_field}` holds {_listed(beyond)}, above `{cap_field}: {cap}`"
            related = [Related("the cap", written.place(cap_field))]
            help_text = f"raise the cap to `{max(beyond)}`, or delete the entries"
            yield rules.S203.at(_item_place(written, list_field, beyond[0]), message, help_text, related)


def _item_place(written: Written, field: str, size: int) -> Place:
    sizes = written.sizes(field) or ()
    return written.source.place_of((*_path(field), sizes.index(size)))


def _listed(sizes: Sequence[int]) -> str:
    shown = ", ".join(f"`{size}`" for size in sizes[:8])
    return shown if len(sizes) <= 8 else f"{shown} and {len(sizes) - 8} more"


def _order(written: Written) -> Iterator[Diagnostic]:
    for field in _SIZE_LISTS:
        sizes = written.sizes(field) or ()
        repeated = [size for at, size in enumerate(sizes) if size in sizes[:at]]
        if repeated:
            message = f"`{field}` names {_listed(sorted(set(repeated)))} more than once"
            yield rules.S205.at(written.place(field), message, "delete the repetition")
        if list(sizes) != sorted(sizes):
            yield rules.S204.at(written.place(field), f"`{field}` is not ascending", "write the sizes in order")


def _oversized(written: Written) -> Iterator[Diagnostic]:
    limits = (
        (PREFILL_SIZES, written.max_num_batched_tokens, "max_num_batched_tokens"),
        (DECODE_SIZES, written.max_num_seqs, "max_num_seqs"),
        (LEGACY_SIZES, written.max_num_batched_tokens, "max_num_batched_tokens"),
    )
    for field, limit, name in limits:
        sizes = written.sizes(field)
        if sizes and limit is not None:
            yield from _oversized_in(written, field, sizes, limit, name)


def _oversized_in(written: Written, field: str, sizes: tuple[int, ...], limit: int, name: str) -> Iterator[Diagnostic]:
    dropped = sorted(size for size in sizes if size > limit)
    if not dropped:
        return
    related = [Related(f"`{name}` is `{limit}`", written.source.place_of(("scheduler", name)))]
    if len(dropped) == len(sizes):
        message = f"every entry of `{field}` is above `{name}: {limit}`, so nothing would be captured"
        help_text = f"write sizes up to `{limit}`, or `[]` to disable the kind"
        yield rules.S222.at(written.place(field), message, help_text, related)
        return
    message = f"`{field}` loses {_listed(dropped)}, above `{name}: {limit}`"
    yield rules.S223.at(_item_place(written, field, dropped[0]), message, "delete them", related)


def _cap_beyond_limit(written: Written) -> Iterator[Diagnostic]:
    limits = (
        (PREFILL_CAP, written.max_num_batched_tokens, "max_num_batched_tokens"),
        (DECODE_CAP, written.max_num_seqs, "max_num_seqs"),
    )
    for field, limit, name in limits:
        cap = getattr(written.fields, field)
        if cap is not None and limit is not None and cap > limit:
            related = [Related(f"`{name}` is `{limit}`", written.source.place_of(("scheduler", name)))]
            message = f"`{field}: {cap}` is above `{name}: {limit}`; the grid ends at `{limit}`"
            yield rules.S223.at(written.place(field), message, f"write `{limit}`", related)


def _mode_against_sizes(written: Written) -> Iterator[Diagnostic]:
    mode = written.fields.cudagraph_mode
    if mode is None:
        return
    useful = SIZED_BY_MODE[mode]
    asked = [name for name in written.set_fields(NEW_FIELDS) if getattr(written.fields, name) != ()]
    lost = [name for name in asked if name not in useful]
    related = [Related(f"`cudagraph_mode: {mode}`", written.place("cudagraph_mode"))]
    for name in lost:
        message = f"`cudagraph_mode: {mode}` captures nothing of the kind that `{name}` sizes"
        help_text = f"delete `{name}`, or write `cudagraph_mode: FULL_AND_PIECEWISE`"
        yield rules.S207.at(written.key_place(name), message, help_text, related)
    if mode in ("PIECEWISE", "FULL") and written.sizes(PREFILL_SIZES) == ():
        message = f"`{PREFILL_SIZES}: []` disables the only kind of `cudagraph_mode: {mode}`"
        yield rules.S207.at(written.key_place(PREFILL_SIZES), message, "write `cudagraph_mode: NONE`", related)
    if mode == "FULL_DECODE_ONLY" and written.sizes(DECODE_SIZES) == ():
        message = f"`{DECODE_SIZES}: []` disables the only kind of `cudagraph_mode: {mode}`"
        yield rules.S207.at(written.key_place(DECODE_SIZES), message, "write `cudagraph_mode: NONE`", related)


def _eager_against_sizes(written: Written) -> Iterator[Diagnostic]:
    if not written.spec.model.enforce_eager:
        return
    related = [Related("`enforce_eager: true`", written.source.place_of(("model", "enforce_eager")))]
    for name in written.set_fields((*NEW_FIELDS, *LEGACY_FIELDS)):
        if getattr(written.fields, name) != ():
            message = f"`enforce_eager` captures no graphs, so `{name}` would be lost"
            yield rules.S207.at(written.key_place(name), message, f"delete `{name}` or `enforce_eager`", related)


def _cpu_against_sizes(written: Written) -> Iterator[Diagnostic]:
    """Source: vllm/platforms/cpu.py: CpuPlatform.check_and_update_config, which takes every graph away."""
    if written.spec.hardware.gpu != "cpu" or written.spec.model.enforce_eager:
        return
    related = [Related("`gpu: cpu`", written.source.place_of(("hardware", "gpu")))]
    sizes = [name for name in written.set_fields((*NEW_FIELDS, *LEGACY_FIELDS)) if getattr(written.fields, name) != ()]
    lost = [_path(name) for name in sizes]
    if written.spec.memory.max_cudagraph_memory is not None:
        lost.append(("memory", "max_cudagraph_memory"))
    for path in lost:
        message = f"a CPU captures no graphs, so `{path[-1]}` would be lost"
        yield rules.S207.at(written.source.place_of_key(path), message, f"delete `{path[-1]}`", related)


def _v1_runner(written: Written) -> Iterator[Diagnostic]:
    new = written.set_fields(NEW_FIELDS)
    if written.spec.engine.model_runner == "v1" and new:
        related = [Related(f"`{name}`", written.key_place(name)) for name in new]
        message = f"`model_runner: v1` rejects `{new[0]}`"
        place = written.source.place_of(("engine", "model_runner"))
        yield rules.S210.at(place, message, "delete `model_runner`, or use the legacy fields", related)


def _units(written: Written) -> Iterator[Diagnostic]:
    """A request count that is max_num_seqs * q, and a token count that is max_num_seqs."""
    seqs, query_len = written.max_num_seqs, max(written.query_lens, default=1)
    if seqs is None or query_len == 1:
        return
    decode = written.sizes(DECODE_SIZES) or ()
    for field, largest in ((DECODE_CAP, written.fields.max_decode_cudagraph_capture_requests or 0),
                           (DECODE_SIZES, max(decode, default=0))):  # fmt: skip
        if largest == seqs * query_len:
            message = f"`{field}` reaches `{largest}` = max_num_seqs * q ({seqs} * {query_len}), a token count"
            yield rules.S218.at(written.place(field), message, f"decode sizes are requests: write `{seqs}`")
    legacy = written.sizes(LEGACY_SIZES) or ()
    largest = written.fields.max_cudagraph_capture_size or max(legacy, default=0)
    field = LEGACY_MAX if written.fields.max_cudagraph_capture_size else LEGACY_SIZES
    if largest == seqs:
        message = (
            f"`{field}` ends at `{largest}` = max_num_seqs, a request count; it covers {largest // query_len} requests"
        )
        help_text = f"legacy sizes are tokens: {seqs} requests are `{seqs * query_len}` tokens"
        yield rules.S218.at(written.place(field), message, help_text)


CHECKS: tuple[Check, ...] = (
    _mixed,
    _deprecated,
    _empty_legacy,
    _legacy_disagree,
    _beyond_cap,
    _order,
    _oversized,
    _cap_beyond_limit,
    _mode_against_sizes,
    _eager_against_sizes,
    _cpu_against_sizes,
    _v1_runner,
    _units,
)
