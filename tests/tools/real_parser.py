"""What the real argument parser of ``vllm serve`` takes, as JSON on stdout.

A program of its own, run by an interpreter that has the engine's Python dependencies::

    PYTHONPATH=ROOT python real_parser.py
"""

import argparse
import json
import os
import sys
from typing import Any

# Multimodal packages that a CPU installation may lack or carry for another build of torch; not needed here.
sys.modules.update(dict.fromkeys(("torchvision", "torchaudio", "torchcodec")))
sys.argv = ["vllm", "serve"]


def main() -> None:
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    import vllm.envs
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = _make_arg_parser()(FlexibleArgumentParser())
    flags = {one.dest: _flag(one) for one in parser._actions if one.option_strings and one.dest != "help"}
    answer = {"flags": flags, "variables": _variables(vllm.envs), "meanings": _meanings(parser)}
    json.dump({**answer, "file": vllm.envs.__file__}, stdout)


def _make_arg_parser() -> Any:
    try:
        from vllm.entrypoints.common.cli_args import make_arg_parser
    except ModuleNotFoundError:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    return make_arg_parser


def _flag(action: argparse.Action) -> dict[str, Any]:
    choices = None if action.choices is None else sorted(str(one) for one in action.choices if one is not None)
    return {
        "spellings": sorted(action.option_strings),
        "nargs": action.nargs if action.nargs != 0 else None,
        "action": type(action).__name__,
        "default": _plain(action.default),
        "choices": choices,
    }


def _meanings(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """What each long spelling of a boolean flag sets, hidden ones included."""
    booleans = {s: a for s, a in parser._option_string_actions.items() if isinstance(a, _BOOLEAN)}
    return {one: getattr(parser.parse_args([one]), action.dest) for one, action in booleans.items()}


_BOOLEAN = argparse.BooleanOptionalAction


def _variables(envs: Any) -> dict[str, Any]:
    """The defaults: what each variable reads as while none is set."""
    for name in envs.environment_variables:
        os.environ.pop(name, None)
    return {name: _plain(read()) for name, read in envs.environment_variables.items()}


def _plain(value: Any) -> Any:
    """A JSON value as it is, anything else as text after ``repr:``."""
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return f"repr:{value!r}"


if __name__ == "__main__":
    main()
