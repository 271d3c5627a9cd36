"""Where each of the engine's settings is written in a spec: one home for each flag, field and variable.

A home is a path such as ``scheduler.max_num_seqs``.  Checks use it to move a setting to its field, lowering and
import to go between the two.
"""

from collections.abc import Iterator, Mapping

from servespec.compiler.facts.engine_fields import EngineField, EngineFlag, EngineTable
from servespec.schema.parse import sections, sections_with
from servespec.schema.spec import OpenSection

OWN_NAMES: Mapping[tuple[str, str], str] = {
    ("ModelConfig", "model"): "model.id",
    ("CacheConfig", "cache_dtype"): "memory.kv_cache_dtype",
    ("CompilationConfig", "cudagraph_specialize_lora"): "lora.cudagraph_specialize_lora",
    ("SpeculativeConfig", "num_speculative_tokens_per_batch_size"): "speculative.dynamic",
}
"""Fields that the spec names otherwise than the engine does."""

_HIDDEN = OWN_NAMES.keys() - {("SpeculativeConfig", "num_speculative_tokens_per_batch_size")}
"""Fields that a section does not take by the engine's name; tiers that people already have, it does."""

WHOLE_CONFIGS: Mapping[str, str] = {
    "compilation_config": "compilation",
    "speculative_config": "speculative",
    "attention_config": "attention",
    "kernel_config": "kernel",
    "kv_transfer_config": "kv_transfer",
}
"""Flags that take a whole config as JSON; each is a section."""

_SHORTCUTS: Mapping[str, str] = {
    "spec_method": "speculative.method",
    "spec_model": "speculative.model",
    "spec_tokens": "speculative.num_speculative_tokens",
    "enable_lora": "lora",
    "performance_mode": "performance_mode",
    "optimization_level": "optimization_level",
    "host": "serve.host",
    "port": "serve.port",
    "additional_config": "nothing: servespec writes it",
}

VARIABLE_HOMES: Mapping[str, str] = {
    "VLLM_USE_V2_MODEL_RUNNER": "engine.model_runner",
    "VLLM_USE_BREAKABLE_CUDAGRAPH": "compilation.breakable_cudagraph",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "memory.estimate_cudagraph_memory",
}
"""Variables that have a field of their own."""


def config_home(config: str, field: str) -> str | None:
    """The path of a config class's field, None where the spec has no section for it."""
    own = OWN_NAMES.get((config, field))
    if own is not None:
        return own
    return next((f"{name}.{field}" for name, model in sections() if config in model.engine_configs), None)


def flag_home(flag: EngineFlag) -> str | None:
    """The path of a flag, None where it can only be passed on."""
    name = flag.name
    if name in WHOLE_CONFIGS:
        return WHOLE_CONFIGS[name]
    if name in _SHORTCUTS:
        return _SHORTCUTS[name]
    return config_home(flag.config, flag.field) if flag.config and flag.field else None


def field_homes(name: str, table: EngineTable) -> tuple[str, ...]:
    """The paths of the fields that are called ``name``, servespec's own and the engine's."""
    found = [f"{section}.{name}" for section in sections_with(name)]
    for section, model in sections():
        if issubclass(model, OpenSection) and any(field.name == name for field in section_fields(model, table)):
            found.append(f"{section}.{name}")
    return tuple(found)


_JSON_CONFIGS = frozenset(
    {"CompilationConfig", "SpeculativeConfig", "AttentionConfig", "KernelConfig", "KVTransferConfig"}
)
"""Config classes that one flag takes whole; a field of any other needs a flag of its own."""


def section_fields(model: type[OpenSection], table: EngineTable) -> Iterator[EngineField]:
    """The engine's fields that a section takes besides its own, as far as a command line can set them.

    A field of two classes is the first one's.
    """
    seen = set(model.model_fields)
    for config in model.engine_configs:
        if not table.has_config(config):
            continue
        for name, field in table.config(config).items():
            settable = config in _JSON_CONFIGS or table.flag_of(config, name) is not None
            if settable and name not in seen and not field.internal and (config, name) not in _HIDDEN:
                seen.add(name)
                yield field


def own_field(section: str, name: str, table: EngineTable) -> EngineField | None:
    """What the engine declares of a field that a section has itself; None where the engine has no such field."""
    model = dict(sections())[section]
    own = (key for key, home in OWN_NAMES.items() if home == f"{section}.{name}")
    for config, field in (*own, *((config, name) for config in model.engine_configs)):
        found = table.config(config).get(field) if table.has_config(config) else None
        if found is not None:
            return found
    return None
