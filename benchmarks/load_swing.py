"""Serves two specs and makes one, many and one request at a time of each: does the load change what one request gets?

usage: python benchmarks/load_swing.py --out FILE [--many N] [--tokens N] SPEC OTHER

Meant for a spec with `speculative.load_aware` and its twin without.  Both are served at once, each asked for the same
tokens at temperature 0: one request, `--many` at a time, the same one request again.  The file has the tokens' digests
and the seconds of each part, and how many steps the workers say ran with all drafts and with chosen ones.
"""

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servespec.compiler.pipeline import compile_spec
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.machine import made_on
from servespec.runtime.record import RECORD_NAME, read_record
from servespec.runtime.spec_file import read_spec

_STOP_SECONDS = 60


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        records = {spec: Path(folder) / Path(spec).stem for spec in (arguments.spec, arguments.other)}
        with _served(arguments.spec, records) as one, _served(arguments.other, records) as other:
            urls = [_ready(*server, arguments.timeout) for server in (one, other)]
            said = [_swing(url, arguments.many, arguments.tokens) for url in urls]
        servers = [_told(spec, records[spec], parts) for spec, parts in zip(records, said, strict=True)]
    document = {
        "what": "one, many and one request at a time of two specs, at temperature 0",
        **made_on(["python", *sys.argv]),
        "many": arguments.many,
        "tokens": arguments.tokens,
        "servers": servers,
        "same_single_requests": len({part["sha256"] for said_ in said for part in (said_[0], said_[-1])}) == 1,
    }
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: document[key] for key in ("servers", "same_single_requests")}, indent=1)[:4000])
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--many", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--timeout", type=float, default=500, help="seconds until both are ready")
    parser.add_argument("spec")
    parser.add_argument("other")
    return parser.parse_args()


@contextmanager
def _served(spec: str, records: dict[str, Path]) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """`servespec serve` in the background; its address, and the process."""
    plan = compile_spec(compile_request(read_spec(spec), Options()))
    address = f"http://127.0.0.1:{plan.resolution.request.spec.serve.port}"
    words = (sys.executable, "-m", "servespec", "serve", spec, "--record", str(records[spec]))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield address, process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_SECONDS)


def _ready(address: str, process: "subprocess.Popen[bytes]", timeout_seconds: float) -> str:
    end = time.monotonic() + timeout_seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):  # noqa: S310 - our own server
                return address
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(1)
    raise SystemExit(f"{address} did not come up: exit code {process.poll()}")


def _swing(address: str, many: int, tokens: int) -> list[dict[str, Any]]:
    """Each part once; a first request of each size is not counted, since kernels compile in it."""
    _part(address, 1, tokens)
    _part(address, many, tokens)
    return [_part(address, requests, tokens) for requests in (1, many, 1)]


def _part(address: str, requests: int, tokens: int) -> dict[str, Any]:
    began = time.monotonic()
    with ThreadPoolExecutor(requests) as pool:
        answers = list(pool.map(lambda number: _tokens(address, number, tokens), range(requests)))
    return {
        "requests": requests,
        "seconds": round(time.monotonic() - began, 4),
        "distinct_tokens": len({token for answer in answers for token in answer}),
        "sha256": hashlib.sha256(json.dumps(answers).encode()).hexdigest(),
    }


def _tokens(address: str, number: int, tokens: int) -> list[int]:
    body = {
        "prompt": f"request number {number} asks for {tokens} tokens of its own",
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        found: list[int] = json.load(answer)["choices"][0]["token_ids"]
    return found


def _told(spec: str, folder: Path, parts: list[dict[str, Any]]) -> dict[str, Any]:
    record = read_record(folder / RECORD_NAME)
    measured = {key: record["measured"].get(key) for key in ("verdict", "verification", "dispatch")}
    return {"spec": Path(spec).name, "text": Path(spec).read_text(encoding="utf-8"), **measured, "parts": parts}


if __name__ == "__main__":
    raise SystemExit(main())
