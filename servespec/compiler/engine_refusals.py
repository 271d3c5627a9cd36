"""What the engine refuses at start and the spec alone tells: no model, network or machine is needed for it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from servespec.compiler import plan_rules
from servespec.compiler.facts.engine_fields import EngineTable
from servespec.compiler.parallel_ranks import RANK_FIELDS, world_ranks
from servespec.compiler.resolve.batch_limits import fewer_tokens_than_requests
from servespec.compiler.resolve.config_mode import adaptive_verification_beside
from servespec.diagnostics import COMMAND_LINE, Diagnostic, Related
from servespec.schema.data_paths import value_at
from servespec.schema.parse import PLACEHOLDER, stands_elsewhere
from servespec.schema.source import SpecPath, SpecSource
from servespec.schema.spec import ServingSpec, SpeculativeSection

_WITHOUT_MODEL: Final = frozenset({"mtp", "dspark", "ngram", "ngram_gpu", "suffix", "extract_hidden_states"})
"""Methods that the engine gives a model itself, the target's or a name of its own, where none is written."""
_LOOKUP_METHODS: Final = frozenset({"ngram", "ngram_gpu"})
_MTP_SUFFIX: Final = "_mtp"


def engine_refusals(spec: ServingSpec, source: SpecSource, table: EngineTable) -> Iterator[Diagnostic]:
    """Everything of this kind, as far as the values are written."""
    yield from _hardware_count(spec, source)
    yield from _step_budget(spec, source)
    yield from _adaptive_verification(spec, source)
    yield from _cpu_loras(spec, source)
    if spec.speculative is not None:
        yield from _draft_model(spec, spec.speculative, source, table)
        yield from _lookups(spec.speculative, source)


def _hardware_count(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    count = spec.hardware.count
    written = (("hardware", "count"), *(("parallel", name) for name in RANK_FIELDS))
    if spec.hardware.gpu == PLACEHOLDER or any(_is_told(spec, *path, source) for path in written):
        return
    needed = world_ranks(spec)
    if needed == count:
        return
    what = "rank" if spec.hardware.gpu == "cpu" else "GPU"
    message = f"the layout needs {needed} {what}{'' if needed == 1 else 's'} and `hardware.count` is `{count}`"
    place = source.place_of(("hardware", "count"))
    way = f"pass `--count {needed}`" if place.file == COMMAND_LINE else f"write `count: {needed}`"
    yield plan_rules.R114.at(place, message, f"{way}, or change `parallel`")


def _step_budget(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    """Source: vllm/config/scheduler.py: SchedulerConfig.verify_max_model_len."""
    tokens, seqs = spec.scheduler.max_num_batched_tokens, spec.scheduler.max_num_seqs
    if tokens is None or seqs is None or tokens >= seqs:
        return
    path = ("scheduler", "max_num_batched_tokens")
    related = [Related(f"`max_num_seqs` is `{seqs}`", source.place_of(("scheduler", "max_num_seqs")))]
    message = fewer_tokens_than_requests(tokens, seqs).message
    help_text = f"write `{seqs}` or more, or lower `max_num_seqs` to `{tokens}`"
    yield plan_rules.R101.at(source.place_of(path), message, help_text, related)


def _adaptive_verification(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    section = spec.speculative
    if section is None or not section.verifies_adaptively:
        return
    name = "enable_adaptive_verification" if section.enable_adaptive_verification else "load_aware"
    place = source.place_of_key(("speculative", name))
    for words, path in beside_verification(spec, section):
        written = str(path[-1])
        refusal = replace(adaptive_verification_beside(words, written), field=f"speculative.{name}")
        other = Related(words, source.place_of_key(path))
        yield plan_rules.R101.at(place, refusal.message, f"delete `{name}`, or `{written}`", [other])


def beside_verification(spec: ServingSpec, section: SpeculativeSection) -> Iterator[tuple[str, SpecPath]]:
    """What adaptive verification does not run with, in words, and where it is written.

    Source: vllm/config/vllm.py: VllmConfig._validate_adaptive_verification, _verify_sampling_replay_config and
    _verify_aux_output_compatibility; vllm/config/speculative.py: SpeculativeConfig.__post_init__.
    """
    if spec.lora is not None:
        yield "LoRA", ("lora",)
    if spec.parallel.pipeline_parallel_size > 1:
        yield "pipeline parallelism", ("parallel", "pipeline_parallel_size")
    has_logits = section.method in (None, "dspark")
    if section.engine_fields.get(_LOCAL_ARGMAX) is True and not has_logits:
        yield "local argmax reduction, which keeps no draft logits", ("speculative", _LOCAL_ARGMAX)
    if spec.model.engine_fields.get(_SAMPLING_MASK) is True:
        yield "sampling replay", ("model", _SAMPLING_MASK)
    for key, value in spec.engine.args.items():
        field = key.replace("-", "_").lstrip("_")
        routed = value.get(_ROUTED_EXPERTS) if field == _AUX_OUTPUT and isinstance(value, Mapping) else value
        if field in (_ROUTED_EXPERTS, _AUX_OUTPUT) and routed is True:
            yield "routed experts in answers", ("engine", "args", key)
        if field == _SAMPLING_MASK and value is True:
            yield "sampling replay", ("engine", "args", key)


_LOCAL_ARGMAX: Final = "use_local_argmax_reduction"
_SAMPLING_MASK: Final = "return_sampling_mask"
_AUX_OUTPUT: Final = "aux_output_config"
_ROUTED_EXPERTS: Final = "enable_return_routed_experts"


def _cpu_loras(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    """Source: vllm/config/lora.py: LoRAConfig._validate_lora_config."""
    if spec.lora is None:
        return
    on_cpu, most = spec.lora.engine_fields.get("max_cpu_loras"), spec.lora.max_loras
    if type(on_cpu) is not int or on_cpu >= most:
        return
    related = [Related(f"`max_loras` is `{most}`", source.place_of(("lora", "max_loras")))]
    message = f"`lora.max_cpu_loras`: the host keeps `{on_cpu}` adapters, fewer than the {most} of one step"
    help_text = f"write `{most}` or more, or lower `max_loras`"
    yield plan_rules.R101.at(source.place_of(("lora", "max_cpu_loras")), message, help_text, related)


def _draft_model(
    spec: ServingSpec, section: SpeculativeSection, source: SpecSource, table: EngineTable
) -> Iterator[Diagnostic]:
    """Source: vllm/config/speculative.py: SpeculativeConfig.__post_init__."""
    method = section.method
    if section.model is not None or (method and (method in _WITHOUT_MODEL or method.endswith(_MTP_SUFFIX))):
        return
    if any(_is_told(spec, "speculative", name, source) for name in ("model", "method")):
        return
    if method is not None and method not in table.config("SpeculativeConfig")["method"].type.all_choices:
        return
    place = source.place_of_key(("speculative",) if method is None else ("speculative", "method"))
    if method is None:
        message = "`speculative` names neither a method nor a draft model"
        help_text = "write `model: NAME`, or a `method` that drafts without one, such as `ngram`"
    elif method == "custom_class":
        message = f"`{method}` loads a class, and none is named"
        help_text = "write `model: my_module.MyClass` beside it"
    else:
        message = f"`{method}` drafts with a model of its own, and none is named"
        help_text = "write `model: NAME` beside it"
    yield plan_rules.R101.at(place, message, help_text)


def _is_told(spec: ServingSpec, section: str, name: str, source: SpecSource) -> bool:
    """Whether a field only looks absent: its value was refused, or it stands misspelled or elsewhere."""
    if name in getattr(spec, section).model_fields_set:
        return False
    if not isinstance(source.data.get(section), Mapping):
        return stands_elsewhere((section,), source.data)
    path = (section, name)
    return value_at(source.data, path) is not None or stands_elsewhere(path, source.data)


def _lookups(section: SpeculativeSection, source: SpecSource) -> Iterator[Diagnostic]:
    """Source: vllm/config/speculative.py: SpeculativeConfig.__post_init__; one bound alone stands for both."""
    least, most = (section.engine_fields.get(name) for name in ("prompt_lookup_min", "prompt_lookup_max"))
    looks_up = section.method in _LOOKUP_METHODS or (section.method is None and section.model in ("ngram", "[ngram]"))
    if not looks_up or type(least) is not int or type(most) is not int or least <= most:
        return
    related = [Related(f"`prompt_lookup_max` is `{most}`", source.place_of(("speculative", "prompt_lookup_max")))]
    message = f"`speculative.prompt_lookup_min` is `{least}`, above `prompt_lookup_max: {most}`"
    place = source.place_of(("speculative", "prompt_lookup_min"))
    yield plan_rules.R101.at(place, message, f"write `{most}` or less", related)
