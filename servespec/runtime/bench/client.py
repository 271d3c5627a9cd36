"""vLLM's own bench client, in the engine's Python, started once for all cells.

Run as ``python -m servespec.runtime.bench.client``.  Each line of standard input is a JSON list of the words that `vllm
bench serve` takes; each is answered by one JSON line on standard output, ``{"result": {...}}`` or ``{"error": "..."}``.
What the client prints goes to standard error.  One process, because importing the engine takes as long as a short cell.
Source: vllm/benchmarks/serve.py: add_cli_args, main.
"""

import contextlib
import json
import re
import sys
from typing import Any, TextIO

_KEPT = (
    "duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "output_throughput",
    "total_token_throughput", "request_throughput", "spec_decode_acceptance_length", "spec_decode_acceptance_rate",
)  # fmt: skip
_REASON_CHARACTERS = 500
_KEPT_ENDINGS = ("_ttft_ms", "_tpot_ms", "_itl_ms", "_e2el_ms")


def main() -> int:
    import vllm.benchmarks.serve  # noqa: F401 - while the servers start, not at the first cell

    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            answer(answers, bench(json.loads(line)))
    return 0


def bench(words: list[str]) -> dict[str, Any]:
    """One run of the client.  What it raises is told; the process goes on to the next."""
    from aiohttp import ClientError
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as bench_serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    try:
        return {"result": kept(bench_serve(parser.parse_args(words)))}
    except SystemExit:
        return {"error": f"the client refused its arguments: {' '.join(words)}"}
    except (ValueError, RuntimeError, OSError, ClientError, TimeoutError) as error:
        return {"error": f"{type(error).__name__}: {reason_of(str(error))}"}


def kept(result: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a result, without the text and times of every request, and the first error there was."""
    numbers = {name: value for name, value in result.items() if name in _KEPT or name.endswith(_KEPT_ENDINGS)}
    errors = [error for error in result.get("errors", ()) if error]
    return {**numbers, "first_error": reason_of(str(errors[0])) if errors else None}


def reason_of(said: str) -> str:
    """In one line; of a traceback its end, which alone says what happened.

    Source: vllm/benchmarks/lib/endpoint_request_func.py: async_request_openai_completions, traceback.format_exception.
    """
    before, _, trace = said.partition("Traceback (most recent call last):")
    # Frames are indented, and the error that follows the last of them is not.
    *_, end = re.split(r"\n +[^\n]*(?=\n)", trace.strip())
    return " ".join([*before.split(), *end.split()])[:_REASON_CHARACTERS]


def answer(stream: TextIO, document: dict[str, Any]) -> None:
    stream.write(json.dumps(document) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
