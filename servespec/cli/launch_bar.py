"""A launch on a terminal: its lines, and below them one bar of what the engine is doing until it is ready."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from servespec.render.serve_text import event_line
from servespec.runtime.supervise import PhaseReached, Progressed, Ready, Stopping

if TYPE_CHECKING:
    from servespec.compiler.plan import Plan
    from servespec.runtime.serving import OnLaunchEvent


@contextmanager
def launch_bar(plan: "Plan", console: Console | None = None) -> "Iterator[OnLaunchEvent]":
    """Gives what takes events; the bar goes as soon as the server is ready, is stopped, or the launch is over."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        _Counted(),
        TimeElapsedColumn(),
        console=console or Console(stderr=True),
        transient=True,
    )
    with bar:
        yield _LaunchBar(plan, bar).take


class _Counted(MofNCompleteColumn):
    """`23/51`, and nothing where the engine does not count."""

    def render(self, task: Any) -> Any:
        return super().render(task) if task.total is not None else ""


class _LaunchBar:
    def __init__(self, plan: "Plan", bar: Progress) -> None:
        self._plan = plan
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def take(self, event: Any) -> None:
        line = event_line(event, self._plan)
        if line is not None:
            # Words of a log may look like markup, and are none.
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        match event:
            case PhaseReached(phase=phase):
                # A new one, as what an old one counted is not forgotten.
                self._bar.remove_task(self._task)
                self._task = self._bar.add_task(str(phase), total=None)
                self._bar.refresh()
            case Progressed(phase=phase, done=done, total=total):
                self._bar.update(self._task, description=str(phase), completed=done, total=total, refresh=True)
            case Ready() | Stopping():
                self._bar.stop()
