"""Serves two specs and makes one, many and one request at a time of each: does the load change what one request gets?

usage: python benchmarks/load_swing.py --out FILE [--many N] [--tokens N] SPEC OTHER

Meant for a spec with `speculative.load_aware` and its twin without.  Both are served at once, each asked for the same
tokens at temperature 0: one request, `--many` at a time, the same one request again.  The file has the tokens' digests
and the seconds of each part, and how many steps the workers say ran with all drafts and with chosen ones.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from servespec.runtime.bench.arms import Arm, arm_of
from servespec.runtime.bench.servers import arm_up
from servespec.runtime.gather import Options
from servespec.runtime.machine import made_on
from servespec.runtime.record import RECORD_NAME, read_record


def main() -> int:
    arguments = _arguments()
    arms = [arm_of(spec, Path(spec).stem, spec, Options()) for spec in (arguments.spec, arguments.other)]
    with tempfile.TemporaryDirectory() as folder:
        records = [Path(folder) / str(number) for number in range(len(arms))]
        with ExitStack() as stack:
            servers = [stack.enter_context(arm_up(arm, record, ())) for arm, record in zip(arms, records, strict=True)]
            for server in servers:
                server.wait_until_ready()
            said = [_swing(server.base_url, arguments.many, arguments.tokens) for server in servers]
        told = [_told(arm, record, parts) for arm, record, parts in zip(arms, records, said, strict=True)]
    document = {
        "what": "one, many and one request at a time of two specs, at temperature 0",
        **made_on(["python", *sys.argv]),
        "many": arguments.many,
        "tokens": arguments.tokens,
        "servers": told,
        "same_single_requests": len({part["sha256"] for parts in said for part in (parts[0], parts[-1])}) == 1,
    }
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: document[key] for key in ("servers", "same_single_requests")}, indent=1)[:4000])
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--many", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("spec")
    parser.add_argument("other")
    return parser.parse_args()


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


def _told(arm: Arm, folder: Path, parts: list[dict[str, Any]]) -> dict[str, Any]:
    record = read_record(folder / RECORD_NAME)
    measured = {key: record["measured"].get(key) for key in ("verdict", "verification", "dispatch")}
    return {"spec": Path(arm.spec).name, "text": Path(arm.spec).read_text(encoding="utf-8"), **measured, "parts": parts}


if __name__ == "__main__":
    raise SystemExit(main())
