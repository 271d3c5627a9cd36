"""The spec that `servespec init` writes: a preset where one fits, else a commented spec with the values of a goal."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from servespec.presets.catalog import Preset, PresetGoal, presets, without_cost
from servespec.provenance import PRESET_PREFIX
from servespec.schema.modeline import MODELINE

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class GoalValues:
    """What a goal means where nothing is known of the model.  ``why`` ends the comment of the request limit."""

    max_num_seqs: int
    why: str
    performance_mode: str | None = None


# Chosen; no measurement stands behind them, and the written comments say so.
GOAL_VALUES: Mapping[PresetGoal, GoalValues] = {
    PresetGoal.LATENCY: GoalValues(64, "few, so that each is quick", "interactivity"),
    PresetGoal.BALANCED: GoalValues(256, "lower it where the KV cache holds fewer"),
    PresetGoal.THROUGHPUT: GoalValues(1024, "many, so that weights are read once for all of them"),
    PresetGoal.LONG_CONTEXT: GoalValues(16, "few, so that the KV cache holds their contexts"),
}
"""The goals that need no preset."""


@dataclass(frozen=True, slots=True)
class StartingSpec:
    """``preset`` is the name of the preset that ``text`` is, None where none fits."""

    text: str
    preset: str | None


def starting_spec(model: str, gpu: str, count: int, goal: PresetGoal) -> StartingSpec | None:
    """The spec for a model on ``count`` devices; None where the goal needs a preset and there is none.

    ``model`` is a name on the hub, a folder, or a model as presets name it.
    """
    fitting = next((one for one in presets() if _fits(one, model, gpu, count) and one.goal is goal), None)
    if fitting is not None:
        return StartingSpec(_of_preset(fitting), fitting.name)
    values = GOAL_VALUES.get(goal)
    if values is None:
        return None
    known = next((one.model_id for one in presets() if one.model == model.lower()), model)
    written = _cpu_spec(known, goal) if gpu == "cpu" else _gpu_spec(known, gpu, count, goal, values)
    return StartingSpec(written, None)


def _fits(preset: Preset, model: str, gpu: str, count: int) -> bool:
    named = model.lower() in (preset.model, preset.model_id.lower())
    return named and (preset.gpu, preset.count) == (gpu, count)


def _of_preset(preset: Preset) -> str:
    modeline, _, rest = without_cost(preset.text).partition("\n")
    return f"{modeline}\n# From {PRESET_PREFIX}{preset.name}\n#\n{rest}"


def _gpu_spec(model: str, gpu: str, count: int, goal: PresetGoal, values: GoalValues) -> str:
    parallel = f"parallel: {{tensor_parallel_size: {count}}} # each device holds a part of every layer\n"
    spread = parallel if count > 1 else ""
    mode = f"performance_mode: {values.performance_mode}\n" if values.performance_mode else ""
    return (
        f"{_head(model, f'{count} x {gpu}', goal)}"
        f"hardware: {{gpu: {gpu}, count: {count}}}\n"
        f"{spread}{mode}"
        "scheduler:\n"
        f"  max_num_seqs: {values.max_num_seqs} # requests in one step; {values.why}\n"
        "  max_num_batched_tokens: 8192 # tokens in one step, prompts and decode together\n"
        "# speculative: # drafts; `servespec explain speculative.method` says more\n"
        "#   method: eagle3\n"
        "#   model: org/draft-of-this-model\n"
        "#   num_speculative_tokens: 3 # K: a decode request then takes 1 + K tokens of a step\n"
        "compilation:\n"
        "  # Steps with prompts, in tokens: up to here they run from PIECEWISE graphs.\n"
        "  max_prefill_cudagraph_capture_tokens: 8192\n"
        "  # Steps of decode alone, in requests: up to here they run from FULL graphs.\n"
        f"  max_decode_cudagraph_capture_requests: {values.max_num_seqs}\n"
    )


def _cpu_spec(model: str, goal: PresetGoal) -> str:
    return (
        f"{_head(model, 'the CPU', goal)}"
        "hardware: {gpu: cpu}\n"
        "scheduler: {max_num_seqs: 8, max_num_batched_tokens: 2048}\n"
        "memory: {kv_cache_memory_bytes: 1GiB} # of the machine's own memory\n"
    )


def _head(model: str, machine: str, goal: PresetGoal) -> str:
    return (
        f"{MODELINE}\n"
        f"# For {goal.value} on {machine}. Nothing here was measured: `servespec plan` shows what it costs and gives,\n"
        "# `servespec bench` what it is worth on your load.\n"
        "servespec: 1\n"
        "model:\n"
        f"  id: {_scalar(model)}\n"
        "  # max_model_len: 32768 # longest context of one request, in tokens; default: the model's own\n"
    )


def _scalar(model: str) -> str:
    """A name as YAML reads it back: quoted where it is more than a hub name."""
    return model if _PLAIN_NAME.fullmatch(model) else json.dumps(model, ensure_ascii=False)
