"""Which processes are taken for an engine's that has lost its keeper."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from servespec.runtime.orphans import end_orphans

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are found in /proc"),
]


WAITS = "print(flush=True); input()"
# Its child waits for the same input, in a session of its own and with an environment that shows nothing.
HAS_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], env={}, start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


@contextmanager
def running(
    environ: Mapping[str, str], *, own_session: bool = True, program: str = WAITS
) -> Iterator[tuple["subprocess.Popen[bytes]", bytes]]:
    """A process and its first line: it has begun its program then, so that /proc shows its environment."""
    words = (sys.executable, "-I", "-S", "-c", program)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environ, start_new_session=own_session, **pipes) as one:
        assert one.stdout is not None
        yield one, one.stdout.readline()
        one.kill()


def test_those_of_its_session_and_those_with_its_mark_end_and_no_others() -> None:
    """The first has no environment to be seen, as one that wrote its title over it."""
    marked = {"SERVESPEC_LAUNCH": "ours"}
    of_another = {"SERVESPEC_LAUNCH": "ours-not"}
    with ExitStack() as stack:
        first, left_session, other, unmarked, beside = [
            stack.enter_context(running(environ, own_session=own_session))[0]
            for environ, own_session in (({}, True), (marked, True), (of_another, True), ({}, True), ({}, False))
        ]

        end_orphans(SimpleNamespace(pid=first.pid, mark="SERVESPEC_LAUNCH=ours"), 20.0)  # type: ignore[arg-type]

        assert [one.poll() is None for one in (first, left_session)] == [False, False]
        assert [one.poll() is None for one in (other, unmarked, beside)] == [True, True, True]


def test_one_that_shows_neither_ends_with_its_parent() -> None:
    with running({"SERVESPEC_LAUNCH": "ours"}, program=HAS_A_CHILD) as (_, pid):
        child = os.pidfd_open(int(pid))
        end_orphans(SimpleNamespace(pid=-1, mark="SERVESPEC_LAUNCH=ours"), 20.0)  # type: ignore[arg-type]

        has_ended, _, _ = select.select([child], [], [], 5)
        os.close(child)
    assert has_ended
