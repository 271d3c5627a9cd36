"""docs/reference/measured.md: what was measured on GPUs, made from the files in docs/measurements/."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measured_launches import bench_files, document

from doc_pages.bench_prompts import prompts_words
from doc_pages.markdown import code, page, sentences, table
from servespec.render.bench_figures import ArmAtLoad, arms_at_loads, ratio_row

Json = dict[str, Any]

_RATIOS = {"output_tokens_per_second": "output tokens per second", "mean_tpot_ms": "time per output token"}


def measured_page(root: Path) -> str:
    folder = root / "docs" / "measurements"
    return page(
        "Measured",
        sentences(
            "Made from the files in `docs/measurements/`, each written by the command that it names. "
            "Ratios are of pairs: cells of two arms that ran one after the other, in rounds of alternating order. "
            "What is shown is their geometric mean, with its interval at 95 %; files hold the median of the pairs too. "
            "Arms of these benches ran side by side, one launch each, and such an interval does not hold how far "
            "[two equal servers differ](curves.md#twins). "
            "Weights are dummies where acceptance is modelled: a rule accepts drafts at the rate of the spec."
        ),
        *(part for path in bench_files() for part in _bench(path)),
        "## Launches checked graph by graph",
        table(
            ("file", "lowering", "spec", "planned graphs", "as planned", "at exit"),
            [row for path in sorted(folder.glob("*-launches*.json")) for row in _launches(path)],
        ),
        "## Graphs replayed against eager",
        table(
            ("spec", "graphs", "equal bit for bit", "differ", "not deterministic", "not replayed", "steps", "accepted"),
            [row for path in sorted(folder.glob("*-replay.json")) for row in _replays(path)],
        ),
        *(part for path in sorted(folder.glob("*-steps-*.json")) if _is_of_modes(path) for part in _steps(path)),
        *(part for path in sorted(folder.glob("*-error-corpus.json")) for part in _error_corpus(path)),
        *(part for path in sorted(folder.glob("*-first-server.json")) for part in _first_server(path)),
    )


def _link(path: Path) -> str:
    return f"[{path.name}](../measurements/{path.name})"


def _bench(path: Path) -> Iterator[str]:
    found = document(path.name)
    design = found["design"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    yield f"## {path.stem}"
    yield sentences(
        f"{found['device'][0]}, driver {found['driver']}; {versions}; {found['date']}. "
        f"{design['input_tokens']} tokens in, {design['output_tokens']} out, {design['rounds']} rounds, acceptance "
        f"{found['acceptance']}. {prompts_words(found)}File: {_link(path)}."
    )
    yield f"```console\n$ {found['command']}\n```"
    yield table(
        ("arm", "requests", "tokens/s", "TPOT ms", "TTFT ms", "tokens on FULL graphs", "cores of the API server"),
        [_figures(at) for at in arms_at_loads(found)],
    )
    yield table(
        ("what", "arms", "requests", "mean ratio", "95 % interval", "pairs"),
        [(_RATIOS[one["metric"]], *ratio_row(one)) for one in found["ratios"] if one["metric"] in _RATIOS],
    )


def _figures(at: ArmAtLoad) -> tuple[str, ...]:
    return (
        at.arm,
        str(at.concurrency),
        _word(at.median_of("output_tokens_per_second"), ",.0f"),
        _word(at.median_of("mean_tpot_ms"), ",.2f"),
        _word(at.median_of("median_ttft_ms"), ",.0f"),
        _word(at.full_share(), ".0%"),
        _word(at.median_of("api_server_cores"), ".2f"),
    )


def _word(figure: float | None, form: str) -> str:
    return "not measured" if figure is None else f"{figure:{form}}"


def _launches(path: Path) -> Iterator[tuple[str, ...]]:
    for one in document(path.name)["launches"]:
        yield (
            _link(path),
            one["lowering"],
            code(one["spec"]),
            str(sum(one["planned"].values())),
            "yes" if one["equal"] else "no",
            one.get("measured", {}).get("graphs_at_exit") or "not read",
        )


def _error_corpus(path: Path) -> Iterator[str]:
    """Broken specs beside the same slips in a file of the engine."""
    found = document(path.name)
    yield "## Broken specs"
    yield sentences(
        f"{found['servespec']['files']} specs with one or two slips each, told to servespec; and those that a file of "
        f"the engine can have too, told to `vllm serve --config` of {found['engine']} as well, as far as it reads its "
        "arguments. "
        f"A fault is placed where its line is said. {found['date']}. File: {_link(path)}."
    )
    yield table(
        ("told to", "files", "refused", "faults", "named", "placed", "misspelled names", "right name said"),
        [
            _corpus_row("servespec", found["servespec"]),
            _corpus_row("servespec, what both can have", found["both"]["servespec"]),
            _corpus_row("the engine, what both can have", found["both"]["engine"]),
        ],
    )


def _corpus_row(name: str, sums: Json) -> tuple[str, ...]:
    keys = ("files", "refused_files", "faults", "named_faults", "placed_faults", "misspelled_faults", "right_name_said")
    return (name, *(str(sums[key]) for key in keys))


def _first_server(path: Path) -> Iterator[str]:
    """A clone and `bin/demo`, from nothing to an answer."""
    found = document(path.name)
    commands = " and ".join(map(code, found["commands"]))
    yield "## A first answer"
    yield sentences(
        f"{commands} of a new user: {found['seconds'] / 60:.1f} minutes on {found['cores']} cores, {found['date']}; "
        f"packages came from near by. The server said: {found['answer']} File: {_link(path)}."
    )
    yield table(
        ("step", "seconds"), [(step["step"].split(" --set")[0], f"{step['seconds']:.0f}") for step in found["steps"]]
    )


def _is_of_modes(path: Path) -> bool:
    """Whether sizes were timed in more than the mode that serves them; a curve is told on a page of its own."""
    return any(len(size["modes"]) > 1 for size in document(path.name)["sizes"])


def _steps(path: Path) -> Iterator[str]:
    """Where a graph pays: each size in every mode that it was timed in."""
    found = document(path.name)
    yield f"## {path.stem}"
    yield sentences(
        f"{found['device'][0]}, driver {found['driver']}; {found['date']}. "
        "Each size ran in every mode in turns; the ratio is eager over the mode, in this file the median of the pairs, "
        "and the interval is that of their geometric mean. "
        f"Eager is the compiled model without a graph. File: {_link(path)}."
    )
    yield f"```console\n$ {found['command']}\n```"
    yield table(
        ("step", "requests", "tokens", "mode", "padded tokens", "ms", "eager / mode", "95 % interval", "verdict"),
        [_step(size, mode) for size in found["sizes"] for mode in size["modes"]],
    )


def _step(size: Json, mode: Json) -> tuple[str, ...]:
    gain = mode["eager_over_graph"]
    return (
        size["kind"],
        str(size["requests"]),
        f"{size['tokens']:,}",
        "eager" if gain is None else mode["mode"],
        f"{mode['padded_tokens']:,}",
        f"{1000 * mode['median_seconds']:.2f}",
        "" if gain is None else f"{gain['ratio']:.3f}",
        "" if gain is None else f"{gain['low_95']:.3f} to {gain['high_95']:.3f}",
        mode["verdict"] or "",
    )


def _replays(path: Path) -> Iterator[tuple[str, ...]]:
    for one in _replays_of(path):
        total = {name: sum(row[name] for row in one["rows"]) for name in ("graphs", *_VERDICTS, "steps")}
        accepted = f"{one['acceptance']['graphs']:,} with graphs, {one['acceptance']['eager']:,} eagerly"
        yield (
            code(one["spec"]),
            str(total["graphs"]),
            *(str(total[name]) for name in _VERDICTS),
            str(total["steps"]),
            accepted,
        )


def _replays_of(path: Path) -> Iterator[Json]:
    """Several in one file, or the document of one `servespec verify`."""
    found = document(path.name)
    if "replays" in found:
        yield from found["replays"]
        return
    rows = [{**row, "steps": sum(shape["steps"] for shape in row["shapes"])} for row in found["rows"]]
    yield {**found, "rows": rows, "spec": found["command"].split()[2]}


_VERDICTS = ("equal", "differs", "not_deterministic", "not_replayed")
