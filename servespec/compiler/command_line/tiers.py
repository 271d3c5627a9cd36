"""The engine's ranges of batch sizes as the tiers of a spec.

Source: vllm/v1/spec_decode/dynamic/utils.py: build_dynamic_sd_schedule_lookup; the last range's K holds for larger
batches too.
"""

from typing import Any


def tiers_of(ranges: Any) -> list[dict[str, int]] | None:
    """Tiers that say the same as inclusive `[first, last, K]` ranges; None where tiers cannot say it."""
    if not isinstance(ranges, list) or not ranges or not all(map(_is_range, ranges)):
        return None
    ordered = sorted(ranges)
    starts = [1, *(last + 1 for _, last, _ in ordered[:-1])]
    if [first for first, _, _ in ordered] != starts:
        return None
    bounded = [{"up_to": last, "num_speculative_tokens": k} for _, last, k in ordered[:-1]]
    return [*bounded, {"num_speculative_tokens": ordered[-1][2]}]


def _is_range(one: Any) -> bool:
    if not isinstance(one, list) or len(one) != 3 or not all(type(part) is int for part in one):
        return False
    first, last, k = map(int, one)
    return 1 <= first <= last and k >= 0
