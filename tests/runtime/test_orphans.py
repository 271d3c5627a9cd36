"""Which processes are taken for an engine's that has lost its keeper."""

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


@contextmanager
def running(environ: Mapping[str, str], *, own_session: bool = True) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has begun its program, so that /proc shows its environment."""
    words = (sys.executable, "-I", "-S", "-c", "print(flush=True); input()")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environ, start_new_session=own_session, **pipes) as one:
        assert one.stdout is not None
        one.stdout.readline()
        yield one
        one.kill()


def test_those_of_its_session_and_those_with_its_mark_end_and_no_others() -> None:
    """The first has no environment to be seen, as one that wrote its title over it."""
    marked = {"SERVESPEC_LAUNCH": "ours"}
    of_another = {"SERVESPEC_LAUNCH": "ours-not"}
    with ExitStack() as stack:
        first, left_session, other, unmarked, beside = [
            stack.enter_context(running(environ, own_session=own_session))
            for environ, own_session in (({}, True), (marked, True), (of_another, True), ({}, True), ({}, False))
        ]

        end_orphans(SimpleNamespace(pid=first.pid, mark="SERVESPEC_LAUNCH=ours"), 20.0)  # type: ignore[arg-type]

        assert [one.poll() is None for one in (first, left_session)] == [False, False]
        assert [one.poll() is None for one in (other, unmarked, beside)] == [True, True, True]
