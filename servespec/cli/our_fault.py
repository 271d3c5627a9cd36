"""What no command foresaw is a fault of servespec: one line that says so, and a file with what to report."""

import errno
from types import TracebackType

import typer

from servespec.cli.exit_codes import EXIT_OUR_FAULT, EXIT_REFUSED


class OurFault:
    """Around a command: an error that comes out of it ends the program with an exit code of its own.

    A reader that is gone is no fault, and neither is a disk that is full.
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        full = _why_full(error) if isinstance(error, OSError) else None
        if full is not None:
            typer.echo(f"cannot write the output: {full}; free some, or write it elsewhere", err=True)
            raise SystemExit(EXIT_REFUSED) from None
        if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
            tell(error)
            raise SystemExit(EXIT_OUR_FAULT) from None


_FULL = {errno.ENOSPC: "no space is left", errno.EDQUOT: "the disk quota is used up"}


def _why_full(error: OSError) -> str | None:
    """Why a stream that is open could not take more; a file that cannot be opened comes with its name."""
    return None if error.errno is None or error.filename is not None else _FULL.get(error.errno)


def tell(error: Exception) -> None:
    import traceback

    lines = "".join(traceback.format_exception(error))
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    where = _kept(lines)
    if where is None:
        typer.echo(lines, err=True, nl=False)
    report = "the lines above" if where is None else f"`{where}`"
    typer.echo(f"this is a fault of servespec, not of your spec: {what}; please report it with {report}", err=True)


def _kept(lines: str) -> str | None:
    """The name of a file that only its owner can read, None where there can be none."""
    import os
    import tempfile

    try:
        descriptor, name = tempfile.mkstemp(prefix="servespec-fault-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(lines)
    except OSError:
        return None
    return name
