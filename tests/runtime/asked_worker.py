"""A worker's process in a few lines: it reports its captures and answers as the extension makes it.

Run by path, with the folder of the launch in the extension's variable.  It says `up` when it answers; what its main
thread does from then on is named by its second argument.
"""

import ctypes
import json
import queue
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from servespec.runtime.extension.answers import Answers, end_answers
from servespec.runtime.extension.report import entries_of, leave, report_name, write_left
from tests.runtime.engine_types import Descriptor, Mode

FAULTS = {"OSError": OSError, "RuntimeError": RuntimeError, "KeyError": KeyError}


class Manager:
    """As the engine's; ``faults`` are raised one by one in place of its graphs."""

    def __init__(self, graphs: int) -> None:
        self.cudagraph_mode = SimpleNamespace(name="FULL")
        self.decode_query_len, self.breakable_cg_runner = 1, None
        self.held = {Descriptor(Mode.FULL, count, count, 1): None for count in range(1, graphs + 1)}
        self.faults: list[Exception] = []

    @property
    def graphs(self) -> dict[Descriptor, None]:
        if self.faults:
            raise self.faults.pop()
        return self.held


def put_stand_ins() -> None:
    """In the place of the engine's modules."""
    members: dict[str, dict[str, Any]] = {
        "vllm.v1.worker.gpu.cudagraph_utils": {"CudaGraphManager": Manager},
        "vllm.compilation.cuda_graph": {"CUDAGraphWrapper": SimpleNamespace(_all_instances=[])},
    }
    for name, own in members.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(own)


def answering(rank: int, manager: Manager) -> SimpleNamespace:
    parallel = SimpleNamespace(data_parallel_index=0)
    runner = SimpleNamespace(cudagraph_manager=manager)
    worker = SimpleNamespace(rank=rank, model_runner=runner, vllm_config=SimpleNamespace(parallel_config=parallel))
    leave(worker, report_name, entries_of(runner))
    Answers(worker).begin()
    return worker


def be_busy() -> None:
    while True:
        pass


def call_the_device() -> None:
    """Waits in C, as for a device: no handler in Python runs until it returns."""
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    while True:
        library.pthread_mutex_lock(mutex)


def change(held: dict[Descriptor, None]) -> None:
    """Grows and shrinks what is read, as often as it can."""
    sys.setswitchinterval(1e-5)
    late = Descriptor(Mode.FULL, 0)
    while True:
        held[late] = None
        del held[late]


def main() -> None:
    rank, doing, faults = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    put_stand_ins()
    # Many take long enough to read for something to change in between.
    manager = Manager(20_000 if doing == "changes its graphs" else 399)
    if doing == "made in a thread":
        maker = threading.Thread(target=answering, args=(rank, manager))
        maker.start()
        maker.join()
    else:
        worker = answering(rank, manager)
    manager.faults = [FAULTS[one]("as the test asks") for one in faults]
    print("up", flush=True)
    if doing == "ends when told":
        sys.stdin.readline()
        end_answers(worker)
        write_left(worker)
    elif doing == "computes":
        be_busy()
    elif doing == "calls the device":
        call_the_device()
    elif doing == "changes its graphs":
        change(manager.held)
    else:
        queue.Queue[None]().get()


if __name__ == "__main__":
    main()
