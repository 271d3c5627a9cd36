"""Names that a person may have meant."""

import re
from collections.abc import Iterable

# Chosen: one slip in four letters, at most three; more is another word.
_LETTERS_PER_SLIP = 4
_MOST_SLIPS = 3
# Chosen: keeps `gpu_mem_utilization` beside `gpu_memory_utilization` and parts `port` from `sport_team`.
_LEAST_LIKENESS = 0.75
# Longer names are compared by their spelling alone; edit distance takes the product of both lengths.
_LONGEST_COMPARED = 80
_UNITS = {"token", "request"}


def nearest(name: str, candidates: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """Up to ``limit`` candidates that ``name`` may stand for, the likeliest first; none for nonsense.

    The same name in another spelling (case, dashes, camel case) comes first, then singular and plural, then
    few slips of the keyboard, then another unit, then a likeness of the whole.
    """
    ranked = ((_rank(name, candidate), candidate) for candidate in set(candidates) - {name})
    close = sorted((rank, candidate) for rank, candidate in ranked if rank is not None)
    return tuple(candidate for _, candidate in close[:limit])


def nearest_by_words(name: str, candidates: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The same for names of several words, which people shorten and lengthen: `NVIDIA H200`, `a100`, `qwen3-8b`.

    A candidate whose words are all in ``name`` comes first, the one with most of them; then one that has all words of
    ``name``, the one with fewest others; then what :func:`nearest` finds.
    """
    given, others = _words(name), tuple(dict.fromkeys(candidates))
    within = [one for one in others if _has_all(given, _words(one))]
    around = [one for one in others if len(_bare(name)) > 1 and _has_all(_words(one), given)]
    most, fewest = sorted(within, key=lambda one: -len(_words(one))), sorted(around, key=lambda one: len(_words(one)))
    ranked = (*most, *fewest, *nearest(name, others, limit))
    return tuple(dict.fromkeys(ranked))[:limit]


def _words(name: str) -> list[str]:
    return re.findall(r"[0-9a-z]+", name.casefold())


def _has_all(words: list[str], wanted: list[str]) -> bool:
    """Whether one of the wanted words is among ``words`` and the others begin one: `80` does `80gb`, `20` not `200`."""
    shares_one = not set(words).isdisjoint(wanted)
    return shares_one and all(any(_begins(one, word) for word in words) for one in wanted)


def _begins(start: str, word: str) -> bool:
    rest = word.removeprefix(start)
    return word.startswith(start) and (not rest or rest[0].isdigit() != start[-1].isdigit())


def _bare(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.casefold()) or name


def _rank(name: str, other: str) -> tuple[int, float] | None:
    """Lower is nearer; None is too far."""
    wanted, candidate = _bare(name), _bare(other)
    if wanted == candidate:
        return (0, 0.0)
    if _singular(wanted) == _singular(candidate):
        return (1, 0.0)
    if max(len(wanted), len(candidate)) > _LONGEST_COMPARED:
        return None
    allowed = _slips_allowed(wanted, candidate)
    # A letter more or less is a slip each, so that most pairs need no comparison.
    slips = slips_between(wanted, candidate) if abs(len(wanted) - len(candidate)) <= allowed else allowed + 1
    if slips <= allowed:
        return (2, slips)
    if _in_another_unit(name, other):
        return (3, 0.0)
    # Needed only once something is misspelled.
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, wanted, candidate, autojunk=False)
    # Upper bounds of the likeness, each cheaper than the next.
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < _LEAST_LIKENESS:
        return None
    likeness = matcher.ratio()
    return (4, 1 - likeness) if likeness >= _LEAST_LIKENESS else None


def _in_another_unit(name: str, other: str) -> bool:
    """Names that differ in the word of the unit alone."""
    words = list(zip(name.split("_"), other.split("_"), strict=False))
    different = [pair for pair in words if pair[0] != pair[1]]
    has_all = name.count("_") == other.count("_")
    return has_all and len(different) == 1 and {_singular(word) for word in different[0]} == _UNITS


def _singular(bare: str) -> str:
    return bare.removesuffix("s")


def _slips_allowed(wanted: str, candidate: str) -> int:
    return min(_MOST_SLIPS, min(len(wanted), len(candidate)) // _LETTERS_PER_SLIP)


def slips_between(first: str, second: str) -> int:
    """Letters added, left out, replaced or swapped with their neighbour to get from one to the other."""
    before_last: list[int] = []
    last = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        row = [i]
        for j, other in enumerate(second, 1):
            slips = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                slips = min(slips, before_last[j - 2] + 1)
            row.append(slips)
        before_last, last = last, row
    return last[-1]
