"""Supervises a command given as JSON; prints each event and the outcome as one JSON object a line."""

import dataclasses
import json
import sys
from pathlib import Path

from servespec.runtime.ask import ask
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.supervise import Event, serve


def say(kind: str, **said: object) -> None:
    print(json.dumps({"kind": kind, **said}, default=str), flush=True)


def on_event(event: Event) -> None:
    say(type(event).__name__, **dataclasses.asdict(event))


def main() -> int:
    given = json.loads(sys.argv[1])
    question = given.pop("ask", None)
    timeout_seconds = given.pop("ready_timeout_seconds", 10.0)
    command = LaunchCommand(**{**given, "argv": tuple(given["argv"]), "log_path": Path(given["log_path"])})
    task = (lambda url: say("Answer", text=ask(url, question))) if question else None
    outcome = serve(command, ready_timeout_seconds=timeout_seconds, on_event=on_event, task=task)
    codes = [d.code for d in outcome.diagnostics]
    messages = [d.message for d in outcome.diagnostics]
    say("Outcome", exit_code=outcome.exit_code, codes=codes, messages=messages, ready_seconds=outcome.ready_seconds)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
