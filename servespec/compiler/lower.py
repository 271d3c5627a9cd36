"""From a resolved spec and its shapes to a command line: nothing is left to a default of the engine.

``native`` passes the five fields, ``extension`` and ``legacy`` one token list, ``none`` nothing about graphs but the
mode.  Beside the list, which sizes its buffers, the extension's engine is handed every graph of the plan.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from servespec.compiler.engine_homes import section_fields
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.engine_fields import EngineFlag, EngineTable, Form
from servespec.compiler.graphs.hand_off import HAND_OFF_KEY, Remedy
from servespec.compiler.graphs.shape import Shape, union_tokens
from servespec.schema.spec import OpenSection, ServingSpec
from servespec.units import Tokens

EXTENSION_CLASS: Final = "servespec.runtime.extension.worker.PlannedGraphs"
STARTUP_PLAN_VARIABLE: Final = "VLLM_ENABLE_STARTUP_PLAN"
"""Has each worker keep the size of its KV cache for the next start. Source: vllm/v1/worker/startup_plan.py."""


class Lowering(StrEnum):
    """How a plan reaches the engine."""

    NATIVE = "native"
    EXTENSION = "extension"
    LEGACY = "legacy"
    NONE = "none"


class Statistics(StrEnum):
    """Who has the engine say how each step ran: servespec, the spec's own arguments, or nobody."""

    SERVESPEC = "servespec"
    SPEC = "spec"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What starts the engine. ``argv[0]`` is `vllm` or `python`; a launcher puts the real path in its place.

    ``token_list`` is the legacy list that goes with it, None where none is passed; ``remedies`` are in force.
    """

    lowering: Lowering
    statistics: Statistics
    argv: tuple[str, ...]
    env: Mapping[str, str]
    token_list: tuple[Tokens, ...] | None
    remedies: tuple[Remedy, ...]

    @property
    def is_tls(self) -> bool:
        """Whether the server answers HTTPS.  Source: vllm/entrypoints/launchers/api_server/entry.py."""
        return any(word.partition("=")[0] == "--ssl-certfile" for word in self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What lowering needs of a resolution; every value is final.

    ``program`` are the words up to the model's; ``pinned_backend`` is the attention backend that the plan assumed,
    None where the model hard-wires one. ``capture_fields`` are the new fields in force, as a spec writes them;
    ``hand_off`` is what the extension's workers are handed, None for another lowering, and ``remedies`` are those in
    force.  ``kv_cache_memory_bytes`` is pinned by the spec, or by a measurement.
    """

    spec: ServingSpec
    table: EngineTable
    program: tuple[str, ...]
    mode: CudaGraphMode
    asks_for_graphs: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    tiers: tuple[tuple[int, int, int], ...]
    num_speculative_tokens: int | None
    method: str | None
    pinned_backend: str | None
    capture_fields: Mapping[str, Any]
    hand_off: Mapping[str, Any] | None
    remedies: tuple[Remedy, ...]
    kv_cache_memory_bytes: int | None


def lower(launch: Launch, lowering: Lowering, token_list: tuple[Tokens, ...] | None) -> Lowered:
    """The command line and environment of one launch."""
    return Lowered(
        lowering=lowering,
        statistics=_statistics(launch.spec),
        argv=(*launch.program, *_arguments(launch, lowering, token_list)),
        env=dict(sorted(_environment(launch))),
        token_list=token_list,
        remedies=launch.remedies,
    )


def _arguments(launch: Launch, lowering: Lowering, token_list: tuple[Tokens, ...] | None) -> Iterator[str]:
    spec = launch.spec
    for flag, value in _flags(launch):
        yield from flag_words(launch.table, flag, value)
    configs = {
        "attention_config": _attention(launch),
        "speculative_config": _speculative(launch),
        "compilation_config": _compilation(launch, lowering, token_list),
        "kernel_config": spec.kernel.engine_fields,
        "kv_transfer_config": spec.kv_transfer.engine_fields if spec.kv_transfer else {},
    }
    for flag, config in configs.items():
        if config:
            yield from flag_words(launch.table, flag, config)
    if launch.hand_off is not None:
        yield from flag_words(launch.table, "worker_extension_cls", EXTENSION_CLASS)
        yield from flag_words(launch.table, "additional_config", {**_own_config(spec), HAND_OFF_KEY: launch.hand_off})
    if _statistics(spec) is Statistics.SERVESPEC:
        yield from flag_words(launch.table, "cudagraph_metrics", True)
    for key, value in spec.engine.args.items():
        if launch.hand_off is None or not is_additional_config(key):
            yield from flag_words(launch.table, key, value)
    yield from ("--host", spec.serve.host, "--port", str(spec.serve.port))


def bound_to(argv: Sequence[str], host: str) -> tuple[str, ...]:
    """The same command line for a server that binds another address."""
    *words, flag, _, port_flag, port = argv
    assert (flag, port_flag) == ("--host", "--port"), argv
    return (*words, flag, host, port_flag, port)


def is_additional_config(key: str) -> bool:
    """Whether a key of `engine.args` is the flag that the hand-off travels in too."""
    return key.replace("-", "_").lstrip("_") == "additional_config"


def _own_config(spec: ServingSpec) -> Mapping[str, Any]:
    """What the spec itself hands to the engine's plug-ins; the flag is given once, so both go together."""
    given = next((value for key, value in spec.engine.args.items() if is_additional_config(key)), None)
    return given if isinstance(given, Mapping) else {}


def _statistics(spec: ServingSpec) -> Statistics:
    """What `engine.args` says of statistics wins; without any, the engine hands its own to nobody."""
    written = {key.replace("-", "_").lstrip("_"): value for key, value in spec.engine.args.items()}
    if written.get("disable_log_stats") or written.get("no_cudagraph_metrics"):
        return Statistics.OFF
    if "cudagraph_metrics" in written:
        return Statistics.SPEC if written["cudagraph_metrics"] else Statistics.OFF
    return Statistics.SERVESPEC


def _flags(launch: Launch) -> Iterator[tuple[str, Any]]:
    """Flags of the sections that the engine takes one by one, in the spec's order."""
    spec = launch.spec
    model, parallel = spec.model, spec.parallel
    yield from (
        ("revision", model.revision),
        ("dtype", model.dtype),
        ("quantization", model.quantization),
        ("max_model_len", model.max_model_len),
        ("load_format", model.load_format),
        ("trust_remote_code", model.trust_remote_code or None),
        ("hf_overrides", model.hf_overrides or None),
        ("enforce_eager", model.enforce_eager or None),
        ("served_model_name", None if model.served_model_name is None else [model.served_model_name]),
    )
    yield from _engine_flags(launch.table, model)
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        size = getattr(parallel, name)
        yield name, size if size != 1 else None
    yield "enable_expert_parallel", parallel.enable_expert_parallel or None
    yield from _engine_flags(launch.table, parallel)
    yield "max_num_seqs", launch.max_num_seqs
    yield "max_num_batched_tokens", launch.max_num_batched_tokens
    yield from _engine_flags(launch.table, spec.scheduler)
    yield from _lora_flags(launch)
    yield "performance_mode", spec.performance_mode
    yield "optimization_level", spec.optimization_level
    yield from _memory_flags(launch)


def _lora_flags(launch: Launch) -> Iterator[tuple[str, Any]]:
    lora = launch.spec.lora
    if lora is None:
        return
    yield "enable_lora", True
    yield "max_loras", lora.max_loras
    yield "specialize_active_lora", lora.specialize_active_lora or None
    yield from _engine_flags(launch.table, lora)


def _memory_flags(launch: Launch) -> Iterator[tuple[str, Any]]:
    memory = launch.spec.memory
    yield "gpu_memory_utilization", memory.gpu_memory_utilization
    yield "kv_cache_memory_bytes", launch.kv_cache_memory_bytes
    yield "kv_cache_dtype", memory.kv_cache_dtype
    yield "block_size", memory.block_size
    yield from _engine_flags(launch.table, memory)


def _engine_flags(table: EngineTable, section: OpenSection) -> Iterator[tuple[str, Any]]:
    """The engine's own fields of a section, as the flags that set them."""
    written = section.engine_fields
    for field in section_fields(type(section), table) if written else ():
        if field.name in written:
            flag = table.flag_of(field.config, field.name)
            assert flag is not None, field
            yield flag, written[field.name]


def _attention(launch: Launch) -> dict[str, Any]:
    attention = launch.spec.attention
    backend = launch.pinned_backend
    return {**({"backend": backend} if backend else {}), **attention.engine_fields}


def _speculative(launch: Launch) -> dict[str, Any]:
    section = launch.spec.speculative
    if section is None:
        return {}
    config: dict[str, Any] = {
        "method": launch.method,
        "model": section.model,
        "num_speculative_tokens": launch.num_speculative_tokens,
        "enable_adaptive_verification": section.verifies_adaptively or None,
        "draft_sample_method": section.draft_sample_method,
    }
    if launch.tiers:
        config["num_speculative_tokens_per_batch_size"] = [list(tier) for tier in launch.tiers]
    written = {key: value for key, value in config.items() if value is not None}
    return {**section.engine_fields, **written}


def _compilation(launch: Launch, lowering: Lowering, token_list: tuple[Tokens, ...] | None) -> dict[str, Any]:
    section = launch.spec.compilation
    config: dict[str, Any] = dict(section.engine_fields)
    if launch.spec.lora is not None and not launch.spec.lora.cudagraph_specialize_lora:
        config["cudagraph_specialize_lora"] = False
    if launch.asks_for_graphs:
        config["cudagraph_mode"] = str(launch.mode)
    if lowering is Lowering.NATIVE:
        config.update(_native_fields(launch))
    elif token_list:
        config["cudagraph_capture_sizes"] = list(token_list)
    elif section.max_cudagraph_capture_size is not None:
        config["max_cudagraph_capture_size"] = section.max_cudagraph_capture_size
    return config


def _native_fields(launch: Launch) -> dict[str, Any]:
    """The five fields as set; an engine that has them resolves them itself.

    `unlimited` has no word of the engine's, whose null means its default: it becomes the tokens of the widest decode.
    """
    widest_tokens = launch.max_num_seqs * (1 + (launch.num_speculative_tokens or 0))
    return {name: widest_tokens if value == "unlimited" else value for name, value in launch.capture_fields.items()}


def _environment(launch: Launch) -> Iterator[tuple[str, str]]:
    spec = launch.spec
    if spec.engine.model_runner != "auto":
        yield "VLLM_USE_V2_MODEL_RUNNER", "1" if spec.engine.model_runner == "v2" else "0"
    if spec.compilation.breakable_cudagraph != "auto":
        yield "VLLM_USE_BREAKABLE_CUDAGRAPH", _number(spec.compilation.breakable_cudagraph)
    if spec.memory.estimate_cudagraph_memory is not None:
        yield "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", _number(spec.memory.estimate_cudagraph_memory)
    if Remedy.KV_FROM_MEASUREMENT in launch.remedies:
        yield STARTUP_PLAN_VARIABLE, "1"
    for name, value in spec.engine.env.items():
        yield name, _number(value) if isinstance(value, bool) else str(value)


def _number(value: bool) -> str:
    return "1" if value else "0"


def flag_words(table: EngineTable, name: str, value: Any) -> tuple[str, ...]:
    """The words that make the engine's parser read ``value`` for flag ``name``; none for null.

    A key such as `no-enable-x: true` is the negation of the flag it names.
    """
    flag = table.flag(name)
    assert flag is not None, name
    if value is None:
        return ()
    if isinstance(value, bool) and flag.form in (Form.SWITCH, Form.BOOLEAN):
        negated = name.replace("_", "-").lstrip("-").startswith("no-") and flag.name[:3] != "no_"
        return _switch(flag, value != negated)
    if flag.form is Form.JSON or isinstance(value, Mapping):
        return (flag.long, json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    if isinstance(value, list | tuple) and flag.form is Form.VALUE:
        return _value_words(flag, ",".join(map(_word, value)))
    if isinstance(value, list | tuple):
        return _list_words(flag, value)
    return _value_words(flag, value)


def _switch(flag: EngineFlag, value: bool) -> tuple[str, ...]:
    if value:
        return (flag.long,)
    return (flag.negation,) if flag.negation else ()


def _list_words(flag: EngineFlag, values: Sequence[Any]) -> tuple[str, ...]:
    if flag.form is Form.APPEND:
        return tuple(word for value in values for word in (flag.long, _word(value)))
    return (flag.long, *(_word(value) for value in values))


def _value_words(flag: EngineFlag, value: Any) -> tuple[str, ...]:
    """A value that starts with a dash would be read as a flag, so it is joined to its own."""
    word = _word(value)
    return (f"{flag.long}={word}",) if word.startswith("-") else (flag.long, word)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def legacy_token_list(shapes: Sequence[Shape], later_steps_reach: int, step_tokens: int) -> tuple[Tokens, ...]:
    """The one list that comes closest: every token count of the target, and the widest later draft step."""
    sizes = set(union_tokens(shapes))
    if later_steps_reach:
        sizes.add(Tokens(later_steps_reach))
    return tuple(sorted(size for size in sizes if size <= step_tokens))
