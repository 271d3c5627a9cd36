"""The process that makes the load: starts it, hands it one cell at a time, reads what it measured."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servespec.diagnostics import Place, SpecError
from servespec.runtime.bench.bench_rules import CLIENT_FAILED
from servespec.runtime.keeper import ended_with_us
from servespec.runtime.launch_folder import written_in
from servespec.runtime.own_server import own_key

_CLIENT = "servespec.runtime.bench.client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run of the client: how many prompts, of which size, how many at a time.

    ``model`` is a folder or a name whose tokenizer makes the prompts; ``served_name`` is the server's name for it.
    """

    base_url: str
    model: str
    served_name: str
    concurrency: int
    prompts: int
    input_tokens: int
    output_tokens: int
    seed: int

    def words(self) -> tuple[str, ...]:
        """The arguments of `vllm bench serve`: random prompts, greedy, every request to its full length."""
        return (
            *("--backend", "openai", "--base-url", self.base_url, "--endpoint", "/v1/completions"),
            *("--model", self.model, "--served-model-name", self.served_name),
            *("--dataset-name", "random", "--ignore-eos", "--temperature", "0", "--seed", str(self.seed)),
            *("--random-input-len", str(self.input_tokens), "--random-output-len", str(self.output_tokens)),
            *("--num-prompts", str(self.prompts), "--max-concurrency", str(self.concurrency)),
            # A server of this machine, whose certificate names the public host.
            *(["--insecure"] if self.base_url.startswith("https:") else []),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "90,99", "--disable-tqdm"),
        )


@dataclass(frozen=True, slots=True)
class BenchClient:
    """A running client."""

    process: "subprocess.Popen[str]"
    log_path: Path

    def run(self, load: Load) -> dict[str, Any]:
        """What the client measured, by its own names.

        Raises SpecError where the client could not do it.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(load.words()) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = _answer(line)
        fault = answer.get("error") or _unanswered(answer["result"], load)
        if fault:
            message = f"the bench client failed at concurrency {load.concurrency}: {fault}"
            help_text = "see the end of its log, and of the server's"
            raise SpecError([CLIENT_FAILED.at(Place(str(self.log_path)), message, help_text)])
        result: dict[str, Any] = answer["result"]
        return result


def _unanswered(result: dict[str, Any], load: Load) -> str | None:
    """What is said of a load of which nothing was answered: the next one would fail as well."""
    if result.get("completed") != 0:
        return None
    reason = result.get("first_error") or "the client gives no reason"
    return f"none of {load.prompts} requests was answered: {reason}"


def _answer(line: str) -> dict[str, Any]:
    """A client that is killed may leave half a line; a library of its Python may print one that is no answer."""
    if not line.endswith("\n"):
        return {"error": "it ended before it answered"}
    try:
        answer: dict[str, Any] = json.loads(line)
    except ValueError:
        return {"error": f"it printed `{line.strip()}` in place of an answer"}
    return answer


@contextmanager
def bench_client(log_path: Path, hosts: Iterable[str]) -> Iterator[BenchClient]:
    """A client of servers on ``hosts`` of this machine, whose output goes to ``log_path``; it ends with the block."""
    with written_in(log_path.parent):
        log = log_path.open("w", encoding="utf-8")
    with log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            (sys.executable, "-P", "-m", _CLIENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **_without_proxy(hosts), **_key_of_servers()},
            preexec_fn=ended_with_us(),  # noqa: PLW1509 - one thread here
        )
        try:
            yield BenchClient(process, log_path)
        finally:
            process.terminate()
            # Closes its pipes too, and takes no offence at a question that nobody read.
            process.communicate()


def _key_of_servers() -> dict[str, str]:
    """The client sends a key by another name than the servers read it by.

    Source: vllm/benchmarks/lib/endpoint_request_func.py: _get_headers.
    """
    key = own_key()
    return {"OPENAI_API_KEY": key} if key else {}


def _without_proxy(hosts: Iterable[str]) -> dict[str, str]:
    """The engine's client heeds a proxy of the environment; the hub may need it, what is on this machine must not.

    Source: vllm/benchmarks/serve.py: benchmark, trust_env.
    """
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if given == "*":
        return {}
    named = ",".join(filter(None, [given, *sorted(set(hosts))]))
    return {"no_proxy": named, "NO_PROXY": named}
