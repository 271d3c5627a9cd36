"""Where a remedy is proven: what it takes off was measured there, and its graphs were held against eager.

Neither follows from the engine's text, so both name a file of measurements, and a test reads it.
"""

from dataclasses import dataclass
from typing import Final

from servespec.provenance import Sourced
from servespec.units import Bytes


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a proof holds for: the models by the architectures in their configs, the GPU by its compute capability.

    Every one is of a launch of one rank without LoRA; ``attention_backend`` is the target's.  Sizes of the models, the
    name of the GPU, and sizes of the graphs are not part of it.
    """

    engine_version: str
    compute_capability: tuple[int, int]
    target: str
    drafter: str
    attention_backend: str

    @property
    def words(self) -> str:
        major, minor = self.compute_capability
        return f"`{self.target}` with `{self.drafter}`, compute capability {major}.{minor}, vLLM {self.engine_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenRemedy:
    """``saved`` is what captures took less on one device; ``replayed`` counts graphs that gave eager's bits.

    Each quote is the name of the spec in the file.
    """

    remedy: str
    architecture: Architecture
    saved: Sourced[Bytes]
    replayed: Sourced[int]


_MEASUREMENTS = "docs/measurements"

PROVEN_REMEDIES: Final = (
    ProvenRemedy(
        remedy="one_capture_stream",
        architecture=Architecture("0.33.0", (9, 0), "Qwen3ForCausalLM", "LlamaForCausalLMEagle3", "FLASH_ATTN"),
        saved=Sourced(
            Bytes(2_382_364_672),
            "bytes",
            "servespec",
            "0.1.0",
            f"{_MEASUREMENTS}/2026-11-30-h200-memory-launches-3.json",
            "r-8b-k3-onestream.yaml",
            "beside the five launches without it in files 1, 2 and 5 of the same day, which were all alike",
        ),
        replayed=Sourced(
            119,
            "graphs",
            "servespec",
            "0.1.0",
            f"{_MEASUREMENTS}/2026-12-01-h200-replay.json",
            "v-onestream.yaml",
            "smaller models of the same architectures",
        ),
    ),
)


def proof_of(remedy: str, architecture: Architecture) -> ProvenRemedy | None:
    return next((one for one in PROVEN_REMEDIES if (one.remedy, one.architecture) == (remedy, architecture)), None)
