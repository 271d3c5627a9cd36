"""A plan's launch as a file for `docker compose`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

from servespec.compiler.container import Container
from servespec.compiler.facts.containers import ENGINE_CACHE_FOLDER, HUB_CACHE_FOLDER
from servespec.render.launch_comment import launch_comment
from servespec.render.launch_dockerfile import dockerfile, wheel_name

Json = Mapping[str, Any]

_HEALTH = "http.client.HTTPConnection('127.0.0.1', {port}, timeout=5)"
_TLS_HEALTH = "http.client.HTTPSConnection('127.0.0.1', {port}, timeout=5, context=ssl._create_unverified_context())"
# Printable in JSON, and not in YAML.
_ESCAPED_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def launch_compose(plan: Json, spec_name: str, container: Container) -> str:
    """One service, `vllm`: every text is in quotes, so that no reader takes it for another kind of value."""
    version = plan["servespec"]
    comment = [f"# {line}" for line in _comment(plan, spec_name, container)]
    service = [*_image(container, version), *_command(container), *_outside(container), *_life(container)]
    volumes = ["volumes:", "  vllm-cache: {}"]
    return "\n".join([*comment, "services:", "  vllm:", *(indent(line, "    ") for line in service), *volumes]) + "\n"


def _comment(plan: Json, spec_name: str, container: Container) -> Iterator[str]:
    yield from launch_comment(plan, spec_name)
    if container.needs_servespec:
        yield f"The image is built on the official one; {wheel_name(plan['servespec'])} lies beside this file."
    if any(not mount.source.startswith("/") for mount in container.mounts):
        yield "Relative folders start at this file, which lies in the folder of the spec."


def _image(container: Container, version: str) -> Iterator[str]:
    if not container.needs_servespec:
        yield f"image: {_literal(container.image)}"
        return
    yield f"image: {_literal(_built_name(container.image, version))}"
    yield "build:"
    yield "  context: ."
    yield "  dockerfile_inline: |"
    yield indent(dockerfile(container.image, version).rstrip("\n").replace("$", "$$"), "    ")


def _built_name(image: str, version: str) -> str:
    """A repository of its own, and the official tag with servespec's version: a tag has few marks."""
    _, _, tag = image.partition(":")
    return "servespec-vllm-openai:" + re.sub(r"[^\w.-]", "-", f"{tag}-{version}")


def _command(container: Container) -> Iterator[str]:
    program, *arguments = container.argv
    yield f"entrypoint: [{_literal(program)}]"
    yield "command:"
    yield from _items(arguments)
    if container.mounts:
        yield f"working_dir: {_literal(container.folder)}"
    yield "environment:"
    yield from (f"  {name}: {_literal(value)}" for name, value in container.environment.items())
    yield "  # Secrets come from the shell, or from `.env` beside this file; one that is not set is not passed on."
    yield from (f"  {name}:" for name in container.secrets)


def _items(words: Sequence[str]) -> Iterator[str]:
    return (f"  - {_literal(word)}" for word in words)


def _outside(container: Container) -> Iterator[str]:
    yield "# The server binds every address of its container; outside it is reached at this one."
    yield "ports:"
    yield f"  - host_ip: {_literal(container.host_address)}"
    yield f'    published: "{container.port}"'
    yield f"    target: {container.port}"
    yield "    protocol: tcp"
    yield "volumes:"
    yield from _bind("${HF_HOME:-~/.cache/huggingface}", _literal(HUB_CACHE_FOLDER.value))
    for mount in container.mounts:
        yield from _bind(_escaped(_as_path(mount.source)), _literal(mount.target), read_only=True)
    yield "  - type: volume"
    yield "    source: vllm-cache"
    yield f"    target: {_literal(ENGINE_CACHE_FOLDER.value)}"
    yield "deploy:"
    yield "  resources:"
    yield "    reservations:"
    yield "      devices:"
    yield "        - driver: nvidia"
    yield f"          count: {container.gpus}"
    yield "          capabilities: [gpu]"
    yield "# A bound; the engine does not start where the queues of its processes do not fit."
    yield f"shm_size: {container.shared_memory_gib}gb"


def _bind(source: str, target: str, *, read_only: bool = False) -> Iterator[str]:
    """A hub cache that is not there yet is made; a model folder is there, or nothing starts."""
    yield "  - type: bind"
    yield f"    source: {_quoted(source)}"
    yield f"    target: {target}"
    if read_only:
        yield "    read_only: true"
    yield "    bind:"
    yield f"      create_host_path: {'false' if read_only else 'true'}"


def _as_path(folder: str) -> str:
    return folder if folder.startswith(("/", "./", "../")) else f"./{folder}"


def _life(container: Container) -> Iterator[str]:
    yield "# The first process hands a signal to the API server alone, which ends its workers in their order."
    yield "init: true"
    yield "stop_signal: SIGTERM"
    yield f"stop_grace_period: {container.stop_seconds}s"
    yield "healthcheck:"
    yield f'  test: ["CMD", "python3", "-c", {_literal(_health_program(container))}]'
    yield "  interval: 10s"
    yield "  timeout: 10s"
    yield "  retries: 3"
    yield f"  start_period: {container.start_seconds}s"


def _health_program(container: Container) -> str:
    """Python, which the image has for certain; proxies of the environment do not come between."""
    connection = (_TLS_HEALTH if container.is_tls else _HEALTH).format(port=container.port)
    modules = "http.client, ssl, sys" if container.is_tls else "http.client, sys"
    return f"import {modules}; c = {connection}; c.request('GET', '/health'); sys.exit(c.getresponse().status != 200)"


def _literal(text: str) -> str:
    """A text that compose leaves as it is."""
    return _quoted(_escaped(text))


def _escaped(text: str) -> str:
    """`$` begins a variable in a compose file, `$$` is a dollar."""
    return text.replace("$", "$$")


def _quoted(text: str) -> str:
    """JSON's quotes are YAML's, but for a few letters that YAML wants escaped."""
    return _ESCAPED_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
