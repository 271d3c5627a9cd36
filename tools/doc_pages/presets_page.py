"""docs/reference/presets.md, and the block in each preset that says what its plan costs and gives."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from doc_pages.compiling import plan_of_preset
from doc_pages.markdown import code, page, sentences, table
from servespec.compiler.facts.devices import GIB_BYTES
from servespec.presets.catalog import Preset, every_model, preset_names, preset_of, presets, with_cost
from servespec.render.plan_text import plan_text
from servespec.render.preset_text import standing


def presets_page() -> str:
    return page(
        "Presets",
        sentences(
            "Each is a spec: `preset:NAME` stands wherever a command takes one, and `servespec presets show NAME` "
            "prints it. Measured: servers of this model on this hardware were measured; by others with builds of "
            "theirs, and not always with the values here, as each one says below. "
            "Modelled: nobody measured it here, and every line of its memory is known. "
            "Example: it shows how something is written, and parts of its memory are not known. "
            "Decode is what runs from FULL graphs, prompts what runs from PIECEWISE graphs, both of the target; "
            "graphs and memory are of one device, planned with the facts below, and estimates."
        ),
        table(
            ("preset", "basis", "decode", "prompts", "graphs", "graphs, GiB", "KV cache, tokens", "fits"),
            [_row(one) for one in presets()],
        ),
        "## What they are for",
        "\n\n".join(f"### {one.name}\n\n{sentences(one.summary)}\n{_evidence(one)}" for one in presets()),
        "## Facts of models",
        sentences(
            "The public part of each model's `config.json` that a plan reads. "
            "It is used until the model is in the model cache; where the two differ then, a finding says so (R016)."
        ),
        table(
            ("model", "from", "not known"),
            [(code(one.model), one.source, "; ".join(one.unknown)) for one in every_model()],
        ),
    )


def _evidence(preset: Preset) -> str:
    return sentences(f"{preset.basis.capitalize()}: {preset.evidence}")


def _row(preset: Preset) -> tuple[str, ...]:
    plan = _plan(preset.name)
    totals = plan["memory"]["totals"] if plan["memory"] else {}
    # Where the weights have no formula, most of what graphs take has none either.
    graphs = totals.get("cudagraph_bytes") if totals.get("weights_bytes") is not None else None
    tokens = totals.get("kv_cache_tokens")
    return (
        code(preset.name),
        standing(preset.to_json()),
        _reach(plan["coverage"]["decode"], "FULL", "requests"),
        _reach(plan["coverage"]["prefill"], "PIECEWISE", "tokens"),
        f"{sum(row['graphs'] for row in plan['runners']):,}",
        "" if graphs is None else f"{graphs / GIB_BYTES:.2f}",
        "" if tokens is None else f"{tokens:,}",
        _fits(plan),
    )


def _fits(plan: Mapping[str, Any]) -> str:
    if not plan["memory"]:
        return "no device memory"
    verdict: str = plan["memory"]["fits"]
    return verdict if verdict != "unknown" else "not known"


def _reach(rows: list[dict[str, Any]], mode: str, unit: str) -> str:
    """The largest batch of the target that runs in a mode."""
    widest = [row[f"to_{unit}"] for row in rows if row["mode"] == mode and row.get("runner", "target") == "target"]
    return f"1 to {max(widest):,} {unit}" if widest else "none"


@cache
def _plan(name: str) -> dict[str, Any]:
    return plan_of_preset(preset_of(name)).to_json()


def _preset_file(name: str) -> Callable[[], str]:
    def made() -> str:
        plan = _plan(name)
        _, *lines = plan_text(plan).splitlines()
        return with_cost(preset_of(name).text, f"vLLM {plan['engine']['version']}", lines)

    return made


PRESET_FILES: Mapping[str, Callable[[], str]] = {
    f"servespec/presets/{name}.yaml": _preset_file(name) for name in preset_names()
}
"""Every preset with its block made anew."""
