"""The emitted compose file: what Docker Compose itself and a YAML reader make of it, whatever stands in its values."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from ruamel.yaml import YAML

from servespec.compiler.container import container_of
from servespec.compiler.facts.containers import MESSAGE_QUEUE_BYTES
from servespec.diagnostics import SpecError
from servespec.render.launch_compose import launch_compose
from servespec.render.launch_dockerfile import dockerfile
from servespec.runtime.gather import model_folders
from tests.emit.launches import compose_program, hostile_specs, launched, model_id
from tests.plans import Json, spec_of

COMPOSE = compose_program()


def compose_text(spec: Json, folders: tuple[str, ...] | None = None) -> tuple[Json, str]:
    made = launched(spec)
    document = made.to_json()
    container = container_of(made, model_folders(made) if folders is None else folders)
    return document, launch_compose(document, "spec.yaml", container)


def service_of(text: str) -> Json:
    """The service as YAML, with compose's one escape undone."""
    service: Json = undollared(YAML(typ="safe", pure=True).load(text)["services"]["vllm"])
    return service


def undollared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: undollared(part) for key, part in value.items()}
    if isinstance(value, list):
        return [undollared(part) for part in value]
    if not isinstance(value, str) or value.startswith("${HF_HOME:-"):
        return value
    assert "$" not in value.replace("$$", ""), value
    return value.replace("$$", "$")


def as_planned(service: Json, document: Json) -> None:
    """The command but for the address that is bound, and the environment but for secrets."""
    launch = document["launch"]
    words = [*service["entrypoint"], *service["command"]]
    at = len(words) - 4
    assert (words[:at], words[at + 2 :]) == (launch["argv"][:at], launch["argv"][at + 2 :])
    assert words[at : at + 2] == ["--host", "0.0.0.0"]  # noqa: S104 - compared
    assert service["environment"] == {**launch["env"], "HF_TOKEN": None, "VLLM_API_KEY": None}


@given(spec=hostile_specs())
@settings(max_examples=150)
def test_a_reader_of_yaml_finds_the_launch_of_the_plan(spec: Json) -> None:
    document, text = compose_text(spec)

    as_planned(service_of(text), document)


@pytest.mark.skipif(COMPOSE is None, reason="needs Docker Compose (the dev extra has it)")
@given(spec=hostile_specs())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_docker_compose_finds_the_launch_of_the_plan(spec: Json, tmp_path: Path) -> None:
    document, text = compose_text(spec)

    as_planned(undollared(read_by_compose(text, tmp_path)), document)


def read_by_compose(text: str, folder: Path, **variables: str) -> Json:
    """The service as Docker Compose resolves it; it writes each dollar twice again."""
    (folder / "compose.yaml").write_text(text, encoding="utf-8")
    words = [str(COMPOSE), "-f", "compose.yaml", "config", "--format", "json"]
    environment = {"HOME": "/home/me", "PATH": "/usr/bin:/bin", **variables}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    service: Json = json.loads(done.stdout)["services"]["vllm"]
    return service


@pytest.mark.skipif(COMPOSE is None, reason="needs Docker Compose (the dev extra has it)")
def test_what_docker_compose_makes_of_the_rest(tmp_path: Path) -> None:
    spec = spec_of(
        "qwen3-8b", "h200", hardware={"gpu": "h200", "count": 2}, parallel={"tensor_parallel_size": 2},
        serve={"host": "192.0.2.7", "port": 8001, "ready_timeout_seconds": 90},
    )  # fmt: skip
    _, text = compose_text(spec, ("/models/a", "models/b"))

    service = read_by_compose(text, tmp_path, HF_TOKEN="mine")  # noqa: S106 - of this test

    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}
    ]
    assert service["ports"] == [
        {"mode": "ingress", "host_ip": "192.0.2.7", "target": 8001, "published": "8001", "protocol": "tcp"}
    ]
    assert (service["init"], service["stop_signal"], service["stop_grace_period"]) == (True, "SIGTERM", "20s")
    assert int(service["shm_size"]) == 2 << 30
    assert service["environment"] == {"HF_TOKEN": "mine", "VLLM_API_KEY": None}
    assert "mine" not in text
    health = service["healthcheck"]
    assert (health["start_period"], health["interval"], health["retries"]) == ("1m30s", "10s", 3)
    assert [(one["type"], one["source"], one["target"], one.get("read_only", False)) for one in service["volumes"]] == [
        ("bind", "/home/me/.cache/huggingface", "/root/.cache/huggingface", False),
        ("bind", "/models/a", "/models/a", True),
        ("bind", str(tmp_path / "models/b"), "/srv/servespec/spec/models/b", True),
        ("volume", "vllm-cache", "/root/.cache/vllm", False),
    ]
    assert service["working_dir"] == "/srv/servespec/spec"
    cache = read_by_compose(text, tmp_path, HF_HOME="/cache")["volumes"][0]
    assert cache["source"] == "/cache"


def test_the_image_is_the_planned_release() -> None:
    _, text = compose_text(spec_of("qwen3-8b", "h200", engine={"version": "0.32.0", "lowering": "legacy"}))

    assert service_of(text)["image"] == "vllm/vllm-openai:v0.32.0"
    assert "build" not in service_of(text)


def test_the_extension_comes_with_an_image_built_on_it() -> None:
    document, text = compose_text(spec_of("qwen3-8b", "h200", engine={"version": "0.33.0", "lowering": "extension"}))
    service, version = service_of(text), document["servespec"]

    assert re.fullmatch(r"servespec-vllm-openai:v0\.33\.0-[\w.-]+", service["image"])
    assert service["build"]["context"] == "."
    assert service["build"]["dockerfile_inline"] == dockerfile("vllm/vllm-openai:v0.33.0", version)
    assert f"servespec-{version}-py3-none-any.whl lies beside this file" in text


@pytest.mark.parametrize(("workers", "gib"), [(1, 1), (2, 2), (3, 2), (4, 3), (8, 4)])
def test_the_queues_of_all_workers_fit_with_a_gib_for_others(workers: int, gib: int) -> None:
    """240 MiB each: for two workers three queues, 720 MiB, in the first GiB."""
    spec = spec_of(
        "qwen3-8b", "h200", hardware={"gpu": "h200", "count": workers}, parallel={"data_parallel_size": workers}
    )

    assert MESSAGE_QUEUE_BYTES["0.33.0"].value == 240 << 20
    assert container_of(launched(spec), ()).shared_memory_gib == gib


@pytest.mark.parametrize(("host", "published"), [("localhost", "127.0.0.1"), ("", "0.0.0.0"), ("::1", "::1")])  # noqa: S104
def test_the_host_publishes_where_the_spec_binds(host: str, published: str) -> None:
    _, text = compose_text(spec_of("qwen3-8b", "h200", serve={"host": host}))

    assert service_of(text)["ports"][0]["host_ip"] == published


@pytest.mark.parametrize(
    ("changes", "folders", "message", "path"),
    [
        ({"serve": {"host": "gpu7.lan"}}, (), "published at an address, and `gpu7.lan` is a name", "serve.host"),
        ({}, ("~/models/a",), "the folder `~/models/a` is another one in a container", "speculative.model"),
    ],
)
def test_what_cannot_be_a_container_is_refused(
    changes: Json, folders: tuple[str, ...], message: str, path: str
) -> None:
    made = launched(spec_of("qwen3-8b", "h200", **changes))

    with pytest.raises(SpecError) as refused:
        container_of(made, folders)

    (finding,) = refused.value.diagnostics
    assert (finding.code, message in finding.message, bool(finding.help)) == ("R118", True, True)
    expected = made.resolution.request.source.place_of(tuple(path.split(".")))
    assert finding.place == expected


@pytest.mark.parametrize(
    ("folder", "start", "target"),
    [
        ("a/b", "/srv/servespec/spec", "/srv/servespec/spec/a/b"),
        ("./a", "/srv/servespec/spec", "/srv/servespec/spec/a"),
        ("../a", "/srv/servespec/spec/spec", "/srv/servespec/spec/a"),
        ("../../../etc", "/srv/servespec/spec/spec/spec/spec", "/srv/servespec/spec/etc"),
        ("/models/a", "/srv/servespec/spec", "/models/a"),
    ],
)
def test_a_folder_is_mounted_where_the_command_looks_and_over_nothing_of_the_image(
    folder: str, start: str, target: str
) -> None:
    found = container_of(launched(spec_of("qwen3-8b", "h200")), (folder, folder))

    assert (found.folder, [mount.target for mount in found.mounts]) == (start, [target])
    assert os.path.normpath(f"{start}/{folder}" if folder[0] != "/" else folder) == target


class Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        assert self.path == "/health"
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize(("status", "returncode"), [(200, 0), (503, 1)])
def test_the_health_check_tells_an_engine_that_answers_from_one_that_is_dead(
    status: int, returncode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Health, "status", status)
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        _, text = compose_text(spec_of("qwen3-8b", "h200", serve={"port": server.server_port}))
        kind, program, *words = service_of(text)["healthcheck"]["test"]

        done = subprocess.run([sys.executable, *words], env={"http_proxy": "http://127.0.0.1:1"}, timeout=60)

    assert (kind, program, done.returncode) == ("CMD", "python3", returncode)


def test_a_server_with_a_certificate_is_asked_by_tls() -> None:
    args = {"ssl-certfile": "/certs/a.pem", "ssl-keyfile": "/certs/a.key"}
    _, text = compose_text(spec_of("qwen3-8b", "h200", engine={"version": "0.33.0", "args": args}))

    program = service_of(text)["healthcheck"]["test"][-1]

    compile(program, "health", "exec")
    assert "HTTPSConnection" in program


def test_the_model_folder_is_mounted_read_only() -> None:
    _, text = compose_text(spec_of("qwen3-8b", "h200"))

    mounted = [one for one in service_of(text)["volumes"] if one["target"] == model_id()]

    assert [(one["type"], one["source"], one["read_only"]) for one in mounted] == [("bind", model_id(), True)]
