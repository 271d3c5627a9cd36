"""Which modes of graphs an engine may choose from; it dispatches by its own rule among those that are left.

Nothing of the engine is replaced while a step is timed: its managers look for a graph in a table, and find a smaller
one.  Without any graph a step is neither padded nor replayed, as where the engine captured none.
Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.dispatch.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from servespec.runtime.extension.captured_shapes import CapturedShape, shape_of
from servespec.runtime.extension.substitution import substitute

FULL, PIECEWISE, NONE = "FULL", "PIECEWISE", "NONE"
CHOICES: Final = (frozenset({FULL, PIECEWISE}), frozenset({PIECEWISE}), frozenset[str]())
"""What is allowed in turn: as served, without FULL graphs, without any."""


class GraphChoice:
    """The managers of an engine, and what each may choose from."""

    def __init__(self, managers: Iterable[Any]) -> None:
        self._managers = list(managers)
        self._tables = {allowed: [_table(manager, allowed) for manager in self._managers] for allowed in CHOICES}

    @contextmanager
    def only(self, allowed: frozenset[str]) -> Iterator[None]:
        with ExitStack() as undo:
            for manager, table in zip(self._managers, self._tables[allowed], strict=True):
                substitute(undo, manager, "_candidates", table)
            yield


def _table(manager: Any, allowed: frozenset[str]) -> dict[Any, list[Any]]:
    return {
        key: [one for one in descriptors if one.cg_mode.name in allowed]
        for key, descriptors in manager._candidates.items()
    }


@contextmanager
def noted(seen: list[CapturedShape]) -> Iterator[None]:
    """Adds what the managers choose meanwhile to ``seen``; the last choice of a manager is what it runs."""
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    engines_own = CudaGraphManager.dispatch

    def dispatch(manager: Any, *given: Any, **named: Any) -> Any:
        descriptor = engines_own(manager, *given, **named)
        seen.append(shape_of(manager, descriptor))
        return descriptor

    with ExitStack() as undo:
        substitute(undo, CudaGraphManager, "dispatch", dispatch)
        yield
