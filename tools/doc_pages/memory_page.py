"""docs/reference/memory.md: what launches held beside what the memory ledger says of them."""

from collections.abc import Iterator

import measured_launches as measured
import memory_table as predicted
import pool_table as pools

from doc_pages.markdown import page, sentences, table
from servespec.compiler.graphs.shape import Routine


def memory_page() -> str:
    rows = predicted.rows()
    return page(
        "Memory, measured and predicted",
        sentences(
            "Made by `tools/memory_table.py` from the files that are named below. "
            "Predictions are of the spec, the config.json of the models and the device table alone. "
            "A bound is what a test holds the row to. "
            "Rows that are not within it stay here, with the reason as far as it is known. "
            "A fitted row is one that a constant of the ledger was chosen by, so that it says nothing of others. "
            "Many figures of graphs shaped the formulas of graphs, so they are no independent score of them."
        ),
        sentences(
            f"The median error is {predicted.median_error(rows):.1%}, over all rows that nothing was fitted on and "
            "that are no estimate of the engine's."
        ),
        *(part for file in measured.FILES for part in _file(file, rows)),
        *_own(rows),
        *_shared(),
        "## Savings of remedies",
        sentences(
            "Published ones are of an earlier grid without a limit of decode tokens, one remedy after the other; ours "
            f"are of the launches above. {_earlier_grid()}"
        ),
        table(
            ("launch", "remedies", "measured GiB", "predicted GiB", "error"),
            [_saving(saving) for saving in measured.savings()],
        ),
    )


def _earlier_grid() -> str:
    """What the published savings were taken on, beside the launch that stands in for it."""
    (saving,) = (one for one in measured.document(_GB200)["savings"] if "earlier_grid" in one)
    earlier, launch = saving["earlier_grid"], saving["launch"]
    (played,) = (one for one in measured.launches() if one.name == launch)
    sizes = sum(shape.routine is Routine.PIECEWISE for shape in predicted.subject_of(played)[1])
    pools = sum(one.value for one in played.figures if one.name.endswith((" FULL", " PIECEWISE")))
    return (
        f"That grid had {earlier['piecewise_sizes']} PIECEWISE sizes, which are not published; the {sizes} that are "
        f"played keep fewer hidden states: {launch.split()[0]}'s pools were {earlier['pools_gib']:.2f} GiB with those "
        f"and {pools:.2f} with these."
    )


_GB200 = "published-gb200-memory.json"


def _file(file: str, rows: tuple[predicted.Row, ...]) -> Iterator[str]:
    document = measured.document(file)
    yield f"## {file.removesuffix('.json')}"
    yield sentences(f"{document['what']}. {document['note']} File: [{file}](../measurements/{file}).")
    yield table(
        ("launch", "figure", "measured", "predicted", "error", "bound", "verdict"),
        [_row(row) for row in rows if row.file == file],
    )


def _own(rows: tuple[predicted.Row, ...]) -> Iterator[str]:
    """Launches of servespec's own, whose workers reported what each stage took."""
    files = sorted(path.name for path in measured.MEASUREMENTS.glob(measured.OWN_FILES))
    links = ", ".join(f"[{file}](../measurements/{file})" for file in files)
    first = measured.document(files[0])
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items() if version)
    yield "## Our own launches"
    yield sentences(
        f"{' and '.join(first['device'])}, driver {first['driver']}; {versions}; FlashInfer absent; {first['date']}; "
        "one launch at a time on each GPU. Dummy weights, synthetic acceptance. "
        "Nothing was fitted on these rows but the NCCL buffers of two ranks and, on two launches without drafts, what "
        "the kernels of a layer take in a graph. "
        "`held` is all but the KV cache, `added` what went while graphs were captured, and a stage is what its own "
        f"captures took in the allocator. Files: {links}."
    )
    yield table(
        ("launch", "figure", "measured", "predicted", "error", "bound", "verdict"),
        [_row(row) for row in rows if row.file in files],
    )
    yield "### Graph memory beside the engine's own estimate of it"
    yield table(
        ("launch", "measured GiB", "predicted GiB", "error", "engine's estimate GiB", "error"),
        list(_beside_estimates(rows)),
    )
    yield "### The same launch again"
    yield sentences(
        "The first of them compiled the model and the others took it from the engine's cache: its profile run had a "
        "higher peak, so that its KV cache is smaller."
    )
    yield table(
        ("launch", "figure", "launches", "smallest", "largest", "spread"),
        [_repeated(one) for one in measured.repeated()],
    )


def _shared() -> Iterator[str]:
    """Launches whose device figures are everybody's, and whose pools are their own."""
    yield "## Pools of launches that shared a GPU"
    yield sentences(
        "Several servers ran at once on one GPU, so only what the captures of each runner reserved in the allocator of "
        "their own process is here. Dummy weights, FlashInfer absent. "
        "Rows of graphs of which the widest is no longer planned are on neither side. A row is within its "
        f"bound where it is within {pools.POOL_BOUND:.0%} or {pools.POOL_BOUND_MIB:.0f} MiB. "
        "Nothing was fitted on these rows."
    )
    yield from (part for file in measured.SHARED_FILES for part in _shared_file(file))


def _shared_file(file: str) -> Iterator[str]:
    held = measured.document(file)
    yield f"### {file.removesuffix('.json')}"
    yield sentences(
        f"{' and '.join(held['device'])}, driver {held['driver']}; vllm {held['versions']['vllm']}, torch "
        f"{held['versions']['torch']}; {held['date']}. {_SHARED_NOTES[file]()} File: [{file}](../measurements/{file})."
    )
    yield table(
        ("launch", "runner", "measured MiB", "predicted MiB", "error", "verdict"),
        [_pool(row) for row in pools.pool_rows() if row.file == file],
    )


def _extension_note() -> str:
    load = _shared_launch("load")
    full_tokens = max(row.widest_tokens for row in load.rows if "piecewise" not in row.routine)
    planned_tokens = pools.split_bound_of(load.whole)
    between_mib = (_piecewise_bytes("k3") - _piecewise_bytes("k1")) / measured.MIB
    return (
        "`v-` launches are of a 0.6B model in bf16, the others of an 8B one with FP8 blocks. "
        "`k7` and `p-8b` capture the target's widest FULL graph before the PIECEWISE ones, while the ledger plays "
        "PIECEWISE first; the FULL graph after it made the pool grow too, which is not explained. "
        f"`load` was captured while KV splits were allowed up to {full_tokens:,} tokens, where its plan now ends at "
        f"{planned_tokens:,}; `k3` beside `k1` says that this is about {between_mib:.0f} MiB."
    )


def _8b_note() -> str:
    return (
        "Arms of a bench of an 8B model with FP8 blocks, with prefill graphs up to 8,192 tokens. "
        "All but `8b-k0`, which drafts nothing, were under `one_capture_stream`: what the target reserved was enough "
        "for the drafter too."
    )


def _30b_note() -> str:
    more_mib = (_piecewise_bytes("30b-k1") - _piecewise_bytes("30b-spec")) / measured.MIB
    return (
        "Arms of a bench of a 30B mixture of experts with FP8 blocks, with prefill graphs up to 8,192 tokens and no "
        "remedy. `30b-spec` and `30b-k1` have the same PIECEWISE graphs of the target, which took "
        f"{more_mib:.0f} MiB more in the latter."
    )


def _shared_launch(name: str) -> measured.SharedLaunch:
    (found,) = (one for one in measured.shared_launches() if one.whole.name == name)
    return found


def _piecewise_bytes(name: str) -> int:
    """What the target's PIECEWISE captures reserved."""
    return sum(row.pool_bytes for row in _shared_launch(name).rows if row.routine == Routine.PIECEWISE)


_SHARED_NOTES = {
    "2026-12-01-h200-launches-extension.json": _extension_note,
    "2026-12-01-h200-launches-bench-8b-fp8.json": _8b_note,
    "2026-12-01-h200-launches-bench-30b-a3b-fp8.json": _30b_note,
}
"""What a reader has to know of a file's launches."""


def _pool(row: pools.PoolRow) -> tuple[str, ...]:
    return (
        f"`{row.launch}`",
        row.stage,
        f"{row.measured_mib:,.0f}",
        f"{row.predicted_mib:,.0f}",
        "" if row.error is None else f"{row.error:+.1%}",
        _pool_verdict(row),
    )


def _pool_verdict(row: pools.PoolRow) -> str:
    if row.is_within:
        return "within"
    because = pools.MISSED_POOLS.get((row.launch, row.stage), lambda: "not explained")
    return f"missed: {because()}"


def _beside_estimates(rows: tuple[predicted.Row, ...]) -> Iterator[tuple[str, ...]]:
    for one in predicted.graph_memory(rows):
        yield (
            one.captured.launch,
            f"{one.captured.figure.value:.2f}",
            f"{one.captured.predicted:.2f}",
            f"{one.captured.error:+.0%}",
            f"{one.estimate.figure.value:.2f}",
            f"{one.estimate_error:+.0%}",
        )


def _repeated(one: measured.Repeated) -> tuple[str, ...]:
    return (
        one.launch,
        one.name,
        str(len(one.values)),
        _value(min(one.values), one.unit),
        _value(max(one.values), one.unit),
        f"{one.spread:.2%}",
    )


def _row(row: predicted.Row) -> tuple[str, ...]:
    return (
        row.launch,
        row.figure.name,
        _value(row.figure.value, row.figure.unit),
        "not known" if row.predicted is None else _value(row.predicted, row.figure.unit),
        "" if row.error is None else f"{row.error:+.1%}",
        f"{row.bound:.0%}" + (f" or {row.figure.bound_gib:g} GiB" if row.figure.bound_gib else ""),
        _verdict(row),
    )


def _value(value: float, unit: str) -> str:
    return f"{value:,.3f} GiB" if unit == "GiB" else f"{value:,.0f} {unit}"


def _verdict(row: predicted.Row) -> str:
    if row.is_within:
        return "fitted" if row.figure.is_fitted else "within"
    because = predicted.MISSED.get((row.launch, row.figure.name), lambda: "not explained")
    return f"missed: {because()}{_by_counted_lines(row)}"


def _by_counted_lines(row: predicted.Row) -> str:
    if row.counted is None:
        return ""
    share = row.counted / row.figure.value - 1
    return f"; the counted lines alone leave {_value(row.counted, row.figure.unit)} ({share:+.0%})"


def _saving(saving: measured.Saving) -> tuple[str, ...]:
    value = predicted.saved(saving)
    return (
        saving.launch.name,
        ", ".join(sorted(saving.added)),
        f"{saving.measured_gib:.2f}",
        f"{value:.2f}",
        f"{value / saving.measured_gib - 1:+.0%}",
    )
