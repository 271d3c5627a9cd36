"""What the engine's own parser makes of command lines.

A program of its own, one process for all lines of an engine::

    PYTHONPATH=ROOT python real_command_line.py < requests.json > answers.json

A request is ``{"words": [...], "entry": "serve" or "api_server", "files": {NAME: TEXT}}``; ``words`` follow the
program's name.
"""

import argparse
import contextlib
import dataclasses
import enum
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

# Multimodal packages that a CPU installation may lack or carry for another build of torch; not needed here.
sys.modules.update(dict.fromkeys(("torchvision", "torchaudio", "torchcodec")))
sys.argv = ["vllm", "serve"]


def main() -> None:
    requests = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    import vllm.envs
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    parsers = {"serve": _serve(), "api_server": _api_server()}
    defaults = vars(parsers["api_server"].parse_args([]))
    answers = [_answer(parsers[one["entry"]], one) for one in requests]
    json.dump({"answers": answers, "defaults": _plain(defaults), "file": vllm.envs.__file__}, stdout)


def _serve() -> Any:
    """The parser of ``vllm``, with its one command that serves."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    commands = parser.add_subparsers(required=False, dest="subparser")
    _make_arg_parser()(commands.add_parser("serve"))
    return parser


def _api_server() -> Any:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return _make_arg_parser()(FlexibleArgumentParser())


def _make_arg_parser() -> Any:
    try:
        from vllm.entrypoints.common.cli_args import make_arg_parser
    except ModuleNotFoundError:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    return make_arg_parser


def _answer(parser: argparse.ArgumentParser, request: dict[str, Any]) -> dict[str, Any]:
    words = request["words"] if request["entry"] == "api_server" else ["serve", *request["words"]]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in request["files"].items():
            Path(name).write_text(text, encoding="utf-8")
        try:
            with contextlib.redirect_stderr(io.StringIO()) as said:
                return {"values": _plain(vars(parser.parse_args(words)))}
        except _REFUSALS as error:
            last_line = said.getvalue().rstrip().rpartition("\n")[2]
            return {"refusal": f"{type(error).__name__}: {error} {last_line}"}


# What stops the engine: argparse exits, and its own rewriting of words raises each of the others.
_REFUSALS = (SystemExit, ValueError, TypeError, IndexError, AssertionError, OSError)


def _plain(value: Any) -> Any:
    """JSON types; an enum is its name and value, a config the mapping of its fields, anything else its text."""
    if isinstance(value, enum.Enum):
        return {"enum": value.name, "value": _plain(value.value)}
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner) for inner in value]
    if dataclasses.is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name, None)) for one in dataclasses.fields(value)}
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


if __name__ == "__main__":
    main()
