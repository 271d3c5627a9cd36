"""The files that a server's command line names, read for :mod:`servespec.compiler.command_line`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from servespec.compiler.command_line import (
    CommandLine,
    Mended,
    as_it_listens,
    command_line_source,
    mended,
    read_command_line,
)
from servespec.compiler.facts.engine_fields import table, versions
from servespec.compiler.parallel_ranks import ranks
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError, has_errors
from servespec.runtime.gather import Options, compile_request
from servespec.schema.overrides import with_overrides

_CONFIG_ENDINGS = (".yaml", ".yml")


def plan_of_command(
    words: Sequence[str], machine: tuple[str, int | None], options: Options
) -> tuple[Plan, CommandLine]:
    """The plan of a command line; what could not be carried over is among its findings.

    ``machine`` is the GPU's name and how many there are, None for as many as the layout needs.

    Raises SpecError where the command line starts no server, or its spec is refused.
    """
    command = read_command_line(words, table(versions()[-1]), config_texts(words))
    if has_errors(command.leftovers):
        raise SpecError(command.leftovers)
    gpu, count = machine
    as_it_runs = on_the_engine_as_it_is(command)
    needed = count or ranks(command.data.get("parallel", {}))
    source = with_overrides(command_line_source(as_it_runs, gpu, needed), options.settings)
    return compile_spec(compile_request(source, options)), command


def on_the_engine_as_it_is(command: CommandLine) -> CommandLine:
    """A command line starts the unmodified engine, so nothing of ours is lowered into its launch."""
    engine = {**command.data.get("engine", {}), "lowering": "none"}
    return replace(command, data={**command.data, "engine": engine})


def config_texts(words: Sequence[str]) -> Mapping[str, str]:
    """The text of each word that names a config file that exists, by the word."""
    files = [word for word in words if word.endswith(_CONFIG_ENDINGS) and Path(word).is_file()]
    return {word: Path(word).read_text(encoding="utf-8", errors="replace") for word in files}


def mended_spec(plan: Plan, command: CommandLine) -> Mended:
    """A spec that gives the batches of the command line the graphs that they could have."""
    request = plan.resolution.request.spec
    source = command_line_source(as_it_listens(command), str(request.hardware.gpu), request.hardware.count)
    return mended(source.data, plan.to_json())
