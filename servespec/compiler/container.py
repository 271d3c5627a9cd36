"""A plan's launch as a container of the engine's official image runs it.

The command is the plan's, but for the address that the server binds: a container has addresses of its own, so the
server binds all of them, and the one of the spec is where the host publishes the port.
"""

import ipaddress
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from servespec.compiler.engine import CPU_DISTRIBUTION, Engine
from servespec.compiler.environment import SECRET_VARIABLES, STOP_SECONDS
from servespec.compiler.facts.containers import MESSAGE_QUEUE_BYTES, OFFICIAL_IMAGE
from servespec.compiler.lower import Lowering, bound_to
from servespec.compiler.plan import Plan
from servespec.compiler.plan_rules import R118
from servespec.diagnostics import Diagnostic, SpecError

_MOUNTED_BELOW: Final = "/srv/servespec"
"""Chosen: a folder that the image does not have."""
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the container's own addresses; the host publishes one
_NAMED_ADDRESSES: Final = {"": _EVERY_ADDRESS, "localhost": "127.0.0.1"}
_RELEASE = re.compile(r"(\d+\.\d+\.\d+(?:\.post\d+)?)(?:\+\S+)?")
_GIB: Final = 1 << 30
_OTHER_SHARED_MEMORY_GIB: Final = 1
"""Chosen: for NCCL and whatever else shares memory; it is a bound, and nothing is taken before it is used."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host, and where the container has it, read only."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """``image`` is the official one of the planned version; ``needs_servespec`` where its workers load the extension.

    ``folder`` is where its relative paths start.  ``host_address`` is where the host publishes ``port``.  ``secrets``
    are variables that the container takes from the shell.  ``start_seconds`` may pass before an answer,
    ``stop_seconds`` until an end.
    """

    image: str
    needs_servespec: bool
    argv: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    secrets: tuple[str, ...]
    host_address: str
    port: int
    is_tls: bool
    gpus: int
    shared_memory_gib: int
    mounts: tuple[Mount, ...]
    start_seconds: int
    stop_seconds: int


def container_of(plan: Plan, folders: Sequence[str]) -> Container:
    """``folders`` are the model folders that the command names.

    Raises SpecError where there is no image, or the host cannot lead to the server.
    """
    problems = [*_problems(plan), *_unmountable(plan, folders)]
    if problems:
        raise SpecError(problems)
    serve, engine = plan.resolution.request.spec.serve, plan.resolution.engine
    start = _spec_folder(folders)
    return Container(
        image=official_image(plan),
        needs_servespec=plan.lowered.lowering is Lowering.EXTENSION,
        argv=bound_to(plan.lowered.argv, _EVERY_ADDRESS),
        folder=start,
        environment=plan.lowered.env,
        secrets=tuple(sorted(SECRET_VARIABLES.values())),
        host_address=_NAMED_ADDRESSES.get(serve.host, serve.host),
        port=serve.port,
        is_tls=plan.lowered.is_tls,
        gpus=plan.resolution.device_count,
        shared_memory_gib=_shared_memory_gib(plan.resolution.device_count, engine.facts_version),
        mounts=tuple(Mount(one, posixpath.normpath(posixpath.join(start, one))) for one in dict.fromkeys(folders)),
        start_seconds=serve.ready_timeout_seconds,
        stop_seconds=STOP_SECONDS,
    )


def official_image(plan: Plan) -> str:
    """Of the planned version.  Raises SpecError where none is released."""
    release = _release_of(plan.resolution.engine)
    if release is None:
        raise SpecError([_no_image(plan)])
    return f"{OFFICIAL_IMAGE.value}:v{release}"


def _release_of(engine: Engine) -> str | None:
    found = _RELEASE.fullmatch(engine.version)
    return found[1] if found is not None and engine.distribution != CPU_DISTRIBUTION else None


def _no_image(plan: Plan) -> Diagnostic:
    engine, place_of = plan.resolution.engine, plan.resolution.request.source.place_of
    if engine.distribution == CPU_DISTRIBUTION:
        message = "the official image has the engine for GPUs, and this plan is for a CPU"
        return R118.at(place_of(("hardware", "gpu")), message, "name a GPU, or start it by `servespec serve`")
    message = f"there is no official image of vLLM `{engine.version}`, which is no release"
    return R118.at(place_of(("engine", "version")), message, "plan for a release, such as `engine.version: 0.33.0`")


def _problems(plan: Plan) -> Iterator[Diagnostic]:
    if _release_of(plan.resolution.engine) is None:
        yield _no_image(plan)
    host = plan.resolution.request.spec.serve.host
    if host not in _NAMED_ADDRESSES and not _is_address(host):
        message = f"the port of a container is published at an address, and `{host}` is a name"
        place = plan.resolution.request.source.place_of(("serve", "host"))
        yield R118.at(place, message, "write an address of the host: `127.0.0.1`, or `0.0.0.0` for all of them")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _unmountable(plan: Plan, folders: Sequence[str]) -> Iterator[Diagnostic]:
    target, place_of = plan.resolution.request.spec.model.id, plan.resolution.request.source.place_of
    for folder in folders:
        if folder.startswith("~"):
            message = f"the folder `{folder}` is another one in a container, which has a home of its own"
            place = place_of(("model", "id") if folder == target else ("speculative", "model"))
            yield R118.at(place, message, "write an absolute path")


def _spec_folder(folders: Sequence[str]) -> str:
    """As deep as any folder of the command goes up, so that each is mounted below one of ours."""
    ups = max((posixpath.normpath(folder).split("/").count("..") for folder in folders), default=0)
    return _MOUNTED_BELOW + "/spec" * (ups + 1)


def _shared_memory_gib(workers: int, facts_version: str) -> int:
    """The engine refuses to start where its queues do not fit; one worker alone has none."""
    queues = workers + 1 if workers > 1 else 0
    return -(-queues * MESSAGE_QUEUE_BYTES[facts_version].value // _GIB) + _OTHER_SHARED_MEMORY_GIB
