"""The engine's generating models that no torch.compile cuts on an NVIDIA GPU.

No class that such a model builds has `support_torch_compile`, the encoder of a multimodal one left aside, and so it has
PIECEWISE graphs only where graphs are breakable.  A test reads the engine's model files for that.  Of a multimodal
model that builds whichever language model its config names, that one decides.
"""

from collections.abc import Iterable
from typing import Final

from servespec.compiler.facts.engine_file import in_engine
from servespec.provenance import Sourced

UNCOMPILED_MODELS: Final[Sourced[frozenset[str]]] = in_engine(
    frozenset(
        {
            "BeamForCausalLM",
            "DbrxForCausalLM",
            "DeepseekV32ForCausalLM",
            "DeepseekV41ForCausalLM",
            "DeepseekV4ForCausalLM",
            "DeepseekV4ForConditionalGeneration",
            "Dots3NoteForCausalLM",
            "Ernie4_5_VLMoeForConditionalGeneration",
            "FlintForCausalLM",
            "Glm5NextForCausalLM",
            "GlmMoeDsaForCausalLM",
            "HYV4ForCausalLM",
            "HfMoondream",
            "InklingForCausalLM",
            "InklingForConditionalGeneration",
            "KimiK3ForConditionalGeneration",
            "KimiLinearForCausalLM",
            "MiniMaxM3SparseForCausalLM",
            "MiniMaxM3SparseForConditionalGeneration",
            "Moondream3ForCausalLM",
            "MuseSparkForConditionalGeneration",
            "NemotronParseForConditionalGeneration",
            "Param2MoEForCausalLM",
            "Qwen4ExpForCausalLM",
            "Qwen4ExpForConditionalGeneration",
            "RadioMBartPrefixForCausalLM",
            "Step1ForCausalLM",
            "Step5ForCausalLM",
        }
    ),
    "architectures",
    "vllm/model_executor/models/registry.py",
    '"DbrxForCausalLM": ("dbrx", "DbrxForCausalLM"),',
    "by their names in the registry; vLLM 0.32.0 lacks some and differs in nothing else",
)


def uncompiled_model(architectures: Iterable[str]) -> str | None:
    """The architecture among these that nothing compiles, if there is one."""
    return next((name for name in architectures if name in UNCOMPILED_MODELS.value), None)
