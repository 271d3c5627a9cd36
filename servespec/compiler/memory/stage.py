"""Pipeline stages: which layers each holds, and what only the first and the last one do."""

from collections.abc import Iterable
from dataclasses import dataclass

from servespec.schema.spec import ServingSpec


@dataclass(frozen=True, slots=True)
class Stage:
    """One of ``count`` stages, from 0.  The last has the head, the sampler and the drafter."""

    index: int
    count: int

    def __post_init__(self) -> None:
        assert 0 <= self.index < self.count, self

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def is_last(self) -> bool:
        return self.index == self.count - 1

    def of(self, layers_by_stage: Iterable[int]) -> range:
        """Its own layers, by their places in the whole model."""
        counts = tuple(layers_by_stage)
        first = sum(counts[: self.index])
        return range(first, first + counts[self.index])


WHOLE_MODEL = Stage(0, 1)


def stages_of(spec: ServingSpec) -> tuple[Stage, ...]:
    count = spec.parallel.pipeline_parallel_size
    return tuple(Stage(index, count) for index in range(count))
