"""Draft models whose architecture tells the engine the method."""

from collections.abc import Mapping
from types import MappingProxyType

from servespec.compiler.facts.engine_file import in_engine
from servespec.provenance import Sourced

_SPECULATIVE = "vllm/config/speculative.py"

METHOD_ARCHITECTURES: Mapping[str, Sourced[frozenset[str]]] = MappingProxyType(
    {
        "dflash": in_engine(
            frozenset({"MuseGlimmerAssistantModel"}),
            "draft architectures",
            _SPECULATIVE,
            'or "MuseGlimmerAssistantModel" in self.draft_model_config.architectures',
        ),
        "dspark": in_engine(
            frozenset({"Qwen3DSparkModel", "Qwen3OmniDSparkModel", "MuseSparkDSparkModel", "Gemma4DSparkModel"}),
            "draft architectures",
            _SPECULATIVE,
            'or "Qwen3DSparkModel" in self.draft_model_config.architectures',
            "where the name of the draft model does not tell; vLLM 0.32.0 lacks one of them",
        ),
    }
)
