"""What the engine's own counters of drafts expose, given steps of requests; in an interpreter that has the engine.

A program of its own: it reads ``{"positions": K, "steps": [[engine, drafted, accepted], ...]}`` and prints the metrics
as a JSON string.
"""

import json
import sys
from types import SimpleNamespace

import prometheus_client


def main() -> None:
    request = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    from vllm.v1.spec_decode.metrics import SpecDecodingProm, SpecDecodingStats

    positions = request["positions"]
    engines = {engine: ["model", str(engine)] for engine, _, _ in request["steps"]}
    counters = SpecDecodingProm(SimpleNamespace(num_speculative_tokens=positions), ["model_name", "engine"], engines)
    for engine, drafted, accepted in request["steps"]:
        stats = SpecDecodingStats.new(positions)
        stats.observe_draft(drafted, accepted)
        counters.observe(stats, engine)
    json.dump(prometheus_client.generate_latest().decode(), stdout)


if __name__ == "__main__":
    main()
