"""A model as the compiler sees it: its config, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler.checkpoint import Checkpoint
from servespec.compiler.facts.model_traits import ModelTraits, derived_max_model_len, model_traits, text_config
from servespec.compiler.facts.mtp_layers import mtp_layers
from servespec.provenance import Resolved
from servespec.units import Tokens


@dataclass(frozen=True, slots=True)
class Model:
    """``config`` is the model's config.json with the spec's overrides laid over it.

    ``checkpoint`` is what its files hold, where they are at hand.
    """

    config: Mapping[str, Any]
    traits: ModelTraits
    max_model_len: Resolved[Tokens | None]
    checkpoint: Checkpoint | None = None

    @property
    def text_architectures(self) -> tuple[str, ...]:
        """What the language part of a multimodal config names for itself."""
        named = text_config(self.config).get("architectures")
        return tuple(name for name in named if isinstance(name, str)) if isinstance(named, list) else ()

    @property
    def mtp_modules(self) -> int:
        """Multi-token-prediction modules that run in turn."""
        return mtp_layers(self.config).modules

    @property
    def draft_tokens(self) -> int | None:
        """How many tokens the model's own draft layers predict, the engine's `n_predict`."""
        return mtp_layers(self.config).predicted_tokens

    @property
    def block_size(self) -> int | None:
        """Tokens of one block of a block drafter."""
        found = (self._integer(name) for name in ("block_size", "dspark_block_size"))
        return next((size for size in found if size is not None), None)

    @property
    def sample_from_anchor(self) -> bool:
        """DSpark: whether the anchor is itself the first prediction.

        Source: vllm/config/vllm.py: VllmConfig.num_lookahead_tokens.
        """
        return self.config.get("sample_from_anchor") is not False

    def _integer(self, name: str) -> int | None:
        for part in (self.config, text_config(self.config)):
            value = part.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None


def model_of(config: Mapping[str, Any], facts_version: str, checkpoint: Checkpoint | None = None) -> Model:
    """The model of a config.json mapping, judged as that engine version would."""
    return Model(config, model_traits(config, facts_version), derived_max_model_len(config), checkpoint)
