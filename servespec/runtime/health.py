"""Whether an engine is ready: its port before the start, its health check afterwards, who answers."""

import errno
import http.client
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from threading import Event, Thread

from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.keeper import descendants
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.own_server import unverified_context
from servespec.runtime.run_rules import ADDRESS_UNUSABLE, PORT_TAKEN

_PROBE_SECONDS = 2.0
_CUT_AGAIN_SECONDS = 0.05
_LISTENING = "0A"
_TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


def loopback_of(host: str) -> str:
    """The address to reach a server bound to ``host`` at, from the same machine."""
    return _ANY_ADDRESS.get(host, host)


def base_url(command: LaunchCommand) -> str:
    host = loopback_of(command.host)
    scheme = "https" if command.tls else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{command.port}"


def port_problem(command: LaunchCommand) -> Diagnostic | None:
    """A finding when the engine could not bind its port now."""
    place = Place(str(command.log_path))
    try:
        _bind_all(command.host, command.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return PORT_TAKEN.at(
                place,
                f"port `{command.port}` of `{command.host}` is in use by another process",
                f"stop that process, or set `serve.port` to a free one, such as `{free_port()}`",
            )
        why = (error.strerror or str(error)).lower()
        return ADDRESS_UNUSABLE.at(
            place,
            f"`{command.host}` port `{command.port}` cannot be bound: {why}",
            "set `serve.host` to `127.0.0.1`, or to an address of this machine",
        )
    return None


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Health(StrEnum):
    """What GET /health says; the values are said to a person."""

    OK = "answers"
    FAILED = "answers with a server error"
    OTHER = "answers, but not with 200"
    CLOSED = "is refused"
    GARBLED = "gets an answer that is no HTTP"
    SILENT = "gets no answer in time"


def health_of(command: LaunchCommand) -> Health:
    """What GET /health says now; waits two seconds at most for it.

    A vLLM whose engine is dead answers 503; one that sleeps or scales answers 200.
    Source: vllm/entrypoints/serve/instrumentator/health.py: health.
    """
    with closing(_connection(command)) as connection, _cut_off(connection) as is_cut_off:
        answered = _answered(connection)
        # Headers that end with the connection look whole.
        return Health.SILENT if is_cut_off() else answered


def _answered(connection: http.client.HTTPConnection) -> Health:
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except TimeoutError:
        return Health.SILENT
    except OSError:
        return Health.CLOSED
    except http.client.HTTPException:
        return Health.GARBLED
    if status == http.HTTPStatus.OK:
        return Health.OK
    return Health.FAILED if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR else Health.OTHER


@contextmanager
def _cut_off(connection: http.client.HTTPConnection) -> Iterator[Callable[[], bool]]:
    """Ends the connection once the time is over: its own timeout starts anew with every byte and every address.

    Gives what tells whether it was ended so.
    """
    over, done = Event(), Event()

    def end() -> None:
        if done.wait(_PROBE_SECONDS):
            return
        over.set()
        # It may not be open yet, and a socket that starts TLS is another one afterwards.
        _shut(connection)
        while not done.wait(_CUT_AGAIN_SECONDS):
            _shut(connection)

    cutter = Thread(target=end, daemon=True)
    cutter.start()
    try:
        yield over.is_set
    finally:
        done.set()
        # Once the connection is closed, its descriptor may be somebody else's.
        cutter.join()


def _shut(connection: http.client.HTTPConnection) -> None:
    """Not by the method of a TLS socket, which takes its state from under whoever reads from it."""
    open_socket = connection.sock
    with suppress(OSError):
        if open_socket is not None:
            socket.socket.shutdown(open_socket, socket.SHUT_RDWR)


def is_foreign(command: LaunchCommand, keeper_pid: int) -> bool:
    """Whether a process that is not below ``keeper_pid`` listens where the engine is to answer.

    True only where the system tells: an engine shares its port with an older one of the same user
    (``SO_REUSEPORT``), so every socket that could take the request must be the launched engine's.
    """
    listening = set(listening_inodes(_table_addresses(command.host), command.port, _tables()))
    owned = {inode for pid in descendants(keeper_pid) for inode in _socket_inodes(pid)}
    return bool(listening - owned)


def listening_inodes(addresses: Collection[str], port: int, tables: Iterable[str]) -> Iterator[str]:
    """The sockets that listen on ``port`` of ``addresses`` in tables of the form of /proc/net/tcp."""
    for table in tables:
        for fields in map(str.split, table.splitlines()[1:]):
            (address, _, hex_port), state, inode = fields[1].partition(":"), fields[3], fields[9]
            if state == _LISTENING and address in addresses and int(hex_port, 16) == port:
                yield inode


def table_form(packed: bytes) -> str:
    """A network address as /proc/net/tcp writes it: words of four bytes in the machine's own order."""
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _table_addresses(host: str) -> set[str]:
    """Where a request to ``host`` from this machine can arrive: its own addresses and the sockets for any."""
    found = socket.getaddrinfo(loopback_of(host), None, type=socket.SOCK_STREAM)
    return {"0" * 8, "0" * 32} | {table_form(socket.inet_pton(f, str(a[0]).partition("%")[0])) for f, *_, a in found}


def _tables() -> Iterator[str]:
    for path in _TCP_TABLES:
        with suppress(OSError):
            yield path.read_text("ascii")


def _socket_inodes(pid: int) -> Iterator[str]:
    # A process may end, or belong to another user, while its descriptors are listed.
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]


def _bind_all(host: str, port: int) -> None:
    """Binds as the engine will, each address that ``host`` stands for, and lets go."""
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        with socket.socket(family, kind, protocol) as probe:
            # An address in TIME_WAIT is free to the engine, which sets the same option.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)


def _connection(command: LaunchCommand) -> http.client.HTTPConnection:
    host = loopback_of(command.host)
    if not command.tls:
        return http.client.HTTPConnection(host, command.port, timeout=_PROBE_SECONDS)
    return http.client.HTTPSConnection(host, command.port, timeout=_PROBE_SECONDS, context=unverified_context())
