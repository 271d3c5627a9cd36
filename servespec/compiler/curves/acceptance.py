"""How many tokens a step gains by K drafts: the share of steps in which each draft is accepted."""

import math
from dataclasses import dataclass

_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``rates`` are unconditional: the share of verified drafts whose position 1, 2, ... was accepted."""

    rates: tuple[float, ...]
    because: str

    def tokens_per_step(self, num_speculative_tokens: int) -> float:
        """Tokens that one request gains in one step, the bonus token included: the engine's acceptance length.

        Raises ValueError for more drafts than there are rates.
        """
        if num_speculative_tokens > len(self.rates):
            raise ValueError(f"{len(self.rates)} rates do not say what {num_speculative_tokens} drafts gain")
        return 1 + math.fsum(self.rates[:num_speculative_tokens])


def rates_of_length(acceptance_length: float, num_speculative_tokens: int) -> tuple[float, ...]:
    """Rates that fall geometrically and give ``acceptance_length``: each draft is accepted with the same chance.

    ``acceptance_length`` lies in [1, 1 + K].
    """
    drafts = acceptance_length - 1
    low, high = 0.0, 1.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if _accepted(middle, num_speculative_tokens) < drafts else (low, middle)
    return tuple(high**position for position in range(1, num_speculative_tokens + 1))


def _accepted(chance: float, drafts: int) -> float:
    return math.fsum(chance**position for position in range(1, drafts + 1))


def engine_rates_of_length(acceptance_length: float, num_speculative_tokens: int) -> tuple[float, ...]:
    """What `rejection_sample_method: synthetic` makes of a length: as many sure drafts as fit, then the fraction.

    Source: vllm/config/speculative.py: SpeculativeConfig._acceptance_length_to_rates.
    """
    drafts = acceptance_length - 1
    return tuple(min(max(drafts - position, 0.0), 1.0) for position in range(num_speculative_tokens))
