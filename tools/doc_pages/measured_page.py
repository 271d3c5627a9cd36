"""docs/reference/measured.md: what was measured on GPUs, made from the files in docs/measurements/."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from doc_pages.markdown import code, page, sentences, table

Json = dict[str, Any]

_RATIOS = {"output_tokens_per_second": "output tokens per second", "mean_tpot_ms": "time per output token"}


def measured_page(root: Path) -> str:
    folder = root / "docs" / "measurements"
    return page(
        "Measured",
        sentences(
            "Made from the files in `docs/measurements/`, each written by the command that it names. "
            "Ratios are of pairs: cells of two arms that ran one after the other, in rounds of alternating order. "
            "The interval is for the mean of such ratios, at 95 %. "
            "Weights are dummies where acceptance is modelled: a rule accepts drafts at the rate of the spec."
        ),
        *(part for path in sorted(folder.glob("*-bench-*.json")) for part in _bench(path)),
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
    )


def _read(path: Path) -> Json:
    document: Json = json.loads(path.read_text(encoding="utf-8"))
    return document


def _link(path: Path) -> str:
    return f"[{path.name}](../measurements/{path.name})"


def _bench(path: Path) -> Iterator[str]:
    found = _read(path)
    design = found["design"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    yield f"## {path.stem}"
    yield sentences(
        f"{found['device'][0]}, driver {found['driver']}; {versions}; {found['date']}. "
        f"{design['input_tokens']} tokens in, {design['output_tokens']} out, {design['rounds']} rounds, acceptance "
        f"{found['acceptance']}. File: {_link(path)}."
    )
    yield f"```console\n$ {found['command']}\n```"
    yield table(
        ("arm", "requests", "tokens/s", "TPOT ms", "TTFT ms", "tokens on FULL graphs", "cores of the API server"),
        [_cells(found, arm, load) for arm in found["arms"] for load in design["concurrencies"]],
    )
    yield table(
        ("what", "arms", "requests", "median ratio", "95 % interval", "pairs"),
        [_ratio(one) for one in found["ratios"] if one["metric"] in _RATIOS],
    )


def _cells(found: Json, arm: str, load: int) -> tuple[str, ...]:
    cells = [one for one in found["cells"] if (one["arm"], one["concurrency"]) == (arm, load)]
    return (
        arm,
        str(load),
        _median(cells, "output_tokens_per_second", 0),
        _median(cells, "mean_tpot_ms", 2),
        _median(cells, "median_ttft_ms", 0),
        _full_share(cells),
        _median(cells, "api_server_cores", 2),
    )


def _median(cells: list[Json], name: str, digits: int) -> str:
    values = [cell[name] for cell in cells if cell[name] is not None]
    return f"{median(values):,.{digits}f}" if values else "not measured"


def _full_share(cells: list[Json]) -> str:
    ran = [(mode, counts["unpadded_tokens"]) for cell in cells for mode, counts in (cell["steps"] or {}).items()]
    every = sum(tokens for _, tokens in ran)
    return f"{sum(tokens for mode, tokens in ran if mode == 'FULL') / every:.0%}" if every else "not measured"


def _ratio(one: Json) -> tuple[str, ...]:
    interval = "" if one["low_95"] is None else f"{one['low_95']:.3f} to {one['high_95']:.3f}"
    return (
        _RATIOS[one["metric"]],
        f"{one['arm']} / {one['over']}",
        str(one["concurrency"]),
        f"{one['median']:.3f}",
        interval,
        str(len(one["ratios"])),
    )


def _launches(path: Path) -> Iterator[tuple[str, ...]]:
    for one in _read(path)["launches"]:
        yield (
            _link(path),
            one["lowering"],
            code(one["spec"]),
            str(sum(one["planned"].values())),
            "yes" if one["equal"] else "no",
            one.get("measured", {}).get("graphs_at_exit") or "not read",
        )


def _replays(path: Path) -> Iterator[tuple[str, ...]]:
    for one in _read(path)["replays"]:
        total = {name: sum(row[name] for row in one["rows"]) for name in ("graphs", *_VERDICTS, "steps")}
        accepted = f"{one['acceptance']['graphs']:,} with graphs, {one['acceptance']['eager']:,} eagerly"
        yield (
            code(one["spec"]),
            str(total["graphs"]),
            *(str(total[name]) for name in _VERDICTS),
            str(total["steps"]),
            accepted,
        )


_VERDICTS = ("equal", "differs", "not_deterministic", "not_replayed")
