"""An engine in a few lines: it logs like one, serves /health and a chat, and fails as it is told to.

The standard library alone, so that it starts at once.  Run by path; see ``--help`` for the ways.
"""

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

STAGES = {
    "loading": "INFO [base.py:1] Starting to load model fake...",
    "compiling": "INFO [backends.py:1] Dynamo bytecode transform time: 1.00 s",
    "sizing": "INFO [worker.py:1] Available KV cache memory: 1.00 GiB",
    "capturing": "Capturing CUDA graphs (FULL):  50%",
    "warming": "INFO [core.py:1] init engine (profile, create kv cache, warmup model) took 1.00 s",
    "opening": "INFO [entry.py:1] Starting vLLM server on http://fake",
}
SLEEPER = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in %r]; time.sleep(600)"


class Handler(http.server.BaseHTTPRequestHandler):
    health = 200
    deaf = False

    def do_GET(self) -> None:
        if self.path == "/health":
            time.sleep(600 if self.deaf else 0)
            self.answer(self.health, {})
        else:
            self.answer(200, {"data": [{"id": "fake-model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = f"{asked['model']} heard: {asked['messages'][0]['content']}"
        if "fail" in content:
            self.answer(500, {"error": "asked to fail"})
        elif "hang" in content:
            time.sleep(600)
        elif "cut short" in content:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{")
        elif "garble" in content:
            self.wfile.write(b"no answer of a web server\r\n\r\n")
        elif "nest" in content:
            self.answer_bytes(b"[" * 100_000)
        else:
            self.answer(200, {"choices": [{"message": {"content": None if "be silent" in content else content}}]})

    def answer(self, status: int, body: object) -> None:
        self.answer_bytes(json.dumps(body).encode(), status)

    def answer_bytes(self, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


def note_pid(file: Path | None, pid: int) -> None:
    if file:
        with file.open("a") as pids:
            pids.write(f"{pid}\n")


def spawn(pids: Path | None, *, own_session: bool, ignoring: tuple[int, ...]) -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEPER % (ignoring,)], start_new_session=own_session)
    note_pid(pids, child.pid)


def tidy_up(notes: Path) -> None:
    """As an engine core does: the first SIGTERM makes it tidy up, which a second one cuts short."""

    def begin(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(0.4)
        notes.write_text("tidy")
        os._exit(0)

    signal.signal(signal.SIGTERM, begin)
    time.sleep(600)


def keep_order(args: argparse.Namespace) -> None:
    """A front end that ends its engine core before itself."""
    core = os.fork()
    if core == 0:
        tidy_up(args.tidy)
    note_pid(args.pids, core)

    def end(*_: object) -> None:
        os.kill(core, signal.SIGTERM)
        os.waitpid(core, 0)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)


def fail(args: argparse.Namespace, stage: str) -> None:
    if args.crash_at == stage:
        for line in args.say:
            print(line, flush=True)
        if args.by_signal:
            os.kill(os.getpid(), args.by_signal)
        os._exit(args.exit_code)
    if args.hang_at == stage:
        for line in args.say:
            print(line, flush=True)
        time.sleep(600)


def sicken(args: argparse.Namespace) -> None:
    for line in args.say:
        print(line, flush=True)
    Handler.health = 503


def flood(total_bytes: int) -> None:
    line = b"INFO [flood.py:1] " + b"x" * 100_000 + b"\n"
    for _ in range(total_bytes // len(line)):
        sys.stdout.buffer.write(line)
    sys.stdout.flush()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--stage-seconds", type=float, default=0.0)
    parser.add_argument("--crash-at", choices=[*STAGES, "ready"])
    parser.add_argument("--hang-at", choices=STAGES)
    parser.add_argument("--say", action="append", default=[], help="printed before a crash or a hang")
    parser.add_argument("--log", action="append", default=[], help="printed at the beginning")
    parser.add_argument("--exit-code", type=int, default=1)
    parser.add_argument("--by-signal", type=int)
    parser.add_argument("--ready-seconds", type=float, default=0.2, help="from ready to a crash at ready")
    parser.add_argument("--health", type=int, default=200)
    parser.add_argument("--sick-seconds", type=float, help="from ready to an engine that dies under its server")
    parser.add_argument("--deaf", action="store_true", help="take connections and never answer /health")
    parser.add_argument("--flood-bytes", type=int, default=0)
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--family", action="store_true", help="leave children, one in a session of its own")
    parser.add_argument("--stubborn-family", action="store_true", help="the same, and they ignore SIGTERM")
    parser.add_argument("--tidy", type=Path, help="an engine core of its own that tidies up when it is stopped, once")
    parser.add_argument("--pids", type=Path)
    parser.add_argument("--print-env")
    return parser.parse_args()


def main() -> None:
    args = parse()
    note_pid(args.pids, os.getpid())
    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.ignore_sigterm else signal.SIG_DFL)
    if args.print_env:
        print(f"{args.print_env}={os.environ.get(args.print_env)}", flush=True)
    if args.family or args.stubborn_family:
        ignoring = (signal.SIGTERM.value, signal.SIGINT.value) if args.stubborn_family else ()
        spawn(args.pids, own_session=False, ignoring=ignoring)
        spawn(args.pids, own_session=True, ignoring=ignoring)
    if args.tidy:
        keep_order(args)
    flood(args.flood_bytes)
    for line in args.log:
        print(line, flush=True)
    for stage, line in STAGES.items():
        print(line, flush=True)
        time.sleep(args.stage_seconds)
        fail(args, stage)
    if args.port is None:
        time.sleep(600)
    Handler.health = args.health
    Handler.deaf = args.deaf
    server = http.server.ThreadingHTTPServer((args.host, args.port), Handler)
    if args.crash_at == "ready":
        threading.Timer(args.ready_seconds, fail, (args, "ready")).start()
    if args.sick_seconds is not None:
        threading.Timer(args.sick_seconds, sicken, (args,)).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
