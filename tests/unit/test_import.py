"""Files that hold commands, and the specs that they become."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.command_line.file_commands import server_commands
from servespec.compiler.command_line.server_command import ServerCommand
from servespec.diagnostics import SpecError
from servespec.runtime.importing import imported
from servespec.schema.source import read_source
from tests.plans import REPOSITORY, model_folder
from tests.plans import spec_of as spec_data

RECIPES = REPOSITORY.parent / "shared" / "cases" / "recipes"

SCRIPT = """\
#!/bin/bash
MODEL=org/model
export VLLM_LOGGING_LEVEL=DEBUG HF_TOKEN=hf_secret
pip install vllm
docker pull vllm/vllm-openai:latest
vllm serve "$MODEL" --tensor-parallel-size ${TP:-4} \\
  --max-num-seqs 64 > log 2>&1
"""
LEFT_OUT = "`HF_TOKEN` may hold a secret and is not carried"
RECIPE = """\
meta: {title: a recipe}
model:
  model_id: org/model
  base_args: ["--max-model-len", "8k"]
  base_env: {VLLM_LOGGING_LEVEL: DEBUG}
features:
  tools: {args: ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]}
  drafts: {args: ["--speculative-config", '{"method": "ngram"}']}
opt_in_features: [drafts]
variants:
  default: {precision: bf16}
  fp8:
    model_id: org/model-fp8
    extra_args: ["--max-num-seqs", 8]
    hardware_overrides: {hopper: {extra_args: ["--x"]}}
compatible_strategies: [single_node_tp]
guide: |
  Run it:

  ```bash
  vllm serve org/model --port 9000
  ```

  ```python
  print("vllm serve nothing")
  ```
"""


def titles(text: str, name: str) -> list[str]:
    return [command.title for command in server_commands(text.encode(), name)]


def run(*words: str, given: str | None = None) -> Any:
    return CliRunner().invoke(app, ["import", "--gpu", "h200", *words], input=given)


def spec_of(done: Any) -> dict[str, Any]:
    return dict(read_source(done.stdout, "spec").data)


def test_a_script(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(SCRIPT)

    done = run(str(path))

    assert done.exit_code == 0
    assert spec_of(done) == {
        "servespec": 1,
        "model": {"id": "org/model"},
        "hardware": {"gpu": "h200", "count": 4},
        "parallel": {"tensor_parallel_size": 4},
        "scheduler": {"max_num_seqs": 64},
        "engine": {"env": {"VLLM_LOGGING_LEVEL": "DEBUG"}, "lowering": "none"},
        "serve": {"host": "0.0.0.0"},  # noqa: S104
    }
    assert done.stdout.splitlines()[1:4] == [
        f"# Imported from {path}, line 6: vllm serve org/model.",
        "# Not carried over, or not as written:",
        f"# - {LEFT_OUT} (line 3); set `HF_TOKEN` in the shell that starts the server",
    ]
    assert f"warning[S310]: {LEFT_OUT}\n --> {path}:3:" in done.stderr
    assert "hf_secret" not in done.output


def test_several_commands_are_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)

    asked, fourth = run(str(path)), run(str(path), "--command", "4")

    assert (asked.exit_code, asked.stdout) == (2, "")
    assert asked.stderr.splitlines()[-3:] == [
        "  1  the recipe's variant `default`",
        "  2  the recipe's variant `fp8`",
        "  3  line 21: vllm serve org/model",
    ]
    assert (fourth.exit_code, fourth.stdout) == (2, "")
    assert spec_of(run(str(path), "--command", "3"))["serve"] == {"host": "0.0.0.0", "port": 9000}  # noqa: S104


def test_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)

    done = run(str(path), "--command", "2")

    assert done.exit_code == 0
    assert spec_of(done) == {
        "servespec": 1,
        "model": {"id": "org/model-fp8", "max_model_len": 8000},
        "hardware": {"gpu": "h200", "count": 1},
        "scheduler": {"max_num_seqs": 8},
        "engine": {
            "args": {"enable-auto-tool-choice": True, "tool-call-parser": "hermes"},
            "env": {"VLLM_LOGGING_LEVEL": "DEBUG"},
            "lowering": "none",
        },
        "serve": {"host": "0.0.0.0"},  # noqa: S104
    }
    notes = [line for line in done.stdout.splitlines() if line.startswith("# - ")]
    assert [note.split("`")[1] for note in notes] == [
        "features.drafts", "variants.fp8.hardware_overrides", "compatible_strategies",
    ]  # fmt: skip
    assert "S319" in done.stderr


def test_a_flag_of_a_recipe_in_one_item_with_its_value(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    items = ["--max-num-seqs 8", '--kv-transfer-config {"kv_connector": "NixlConnector", "kv_role": "kv_both"}']
    path.write_text(json.dumps({"model": {"model_id": "org/model", "base_args": items}}))

    done = run(str(path))

    assert (done.exit_code, done.stderr) == (0, "")
    assert spec_of(done)["scheduler"] == {"max_num_seqs": 8}
    assert spec_of(done)["kv_transfer"] == {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def test_the_engine_s_own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text("model: org/model\nmax-num-seqs: 8\nenable-prefix-caching: false\n")
    Path("no-model.yaml").write_text("max-num-seqs: 8\n")

    done, without = run("c.yaml"), run("no-model.yaml")

    assert done.exit_code == 0
    assert spec_of(done)["scheduler"] == {"max_num_seqs": 8}
    assert "warning[S312]: vLLM drops `enable-prefix-caching: false`" in done.stderr
    assert (without.exit_code, "error[S311]" in without.stderr) == (1, True)
    named = run("--", "vllm", "serve", "org/model", "--config", "no-model.yaml")
    assert (named.exit_code, spec_of(named)["model"]["id"]) == (0, "org/model")


@pytest.mark.parametrize("words", [("no-model.yaml",), ("--", "vllm", "serve", "--max-num-seqs", "8")])
def test_a_model_laid_over_it_is_the_one_that_is_missing(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("no-model.yaml").write_text("max-num-seqs: 8\n")

    without, done = run(*words), run("--set", "model.id=org/model", *words)

    assert "model" in without.stderr
    assert (done.exit_code, done.stderr) == (0, "")
    assert spec_of(done)["model"] == {"id": "org/model"}
    assert "Not carried over" not in done.stdout


def test_a_secret_of_a_config_file_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(f"model: {model_folder('qwen3-8b')}\napi-key: mine\nenable-prefix-caching: false\n")

    done = run("c.yaml")
    planned = CliRunner().invoke(app, ["plan", "--gpu", "h200", "--", "vllm", "serve", "--config", "c.yaml"])

    assert (done.exit_code, planned.exit_code) == (0, 0)
    assert all("warning[S310]" in one.stderr and "mine" not in one.output for one in (done, planned))


COMPOSE = """\
services:
  llm:
    image: vllm/vllm-openai:v0.32.0
    command: --model ${MODEL:-org/model} --max-num-seqs 8
    environment:
      VLLM_LOGGING_LEVEL: DEBUG
      HF_TOKEN: hf_secret
      OTHER:
    env_file: prod.env
    ipc: host
    ports: ["8000:8000"]
  web: {image: nginx, command: [serve]}
"""
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - {name: proxy, image: nginx}
        - name: llm
          image: registry:5000/vllm-openai:v0.32.0
          command: [/bin/sh, -c]
          args: ["export VLLM_NO_USAGE_STATS=1; exec vllm serve org/model --max-num-seqs 8"]
          env:
            - {name: VLLM_LOGGING_LEVEL, value: DEBUG}
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}
          resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.mark.parametrize(
    ("text", "env", "told"),
    [
        (
            COMPOSE,
            {"VLLM_LOGGING_LEVEL": "DEBUG"},
            [
                "`ipc`, `ports` of the container are not carried (line 2)",
                "`OTHER` of the container is set elsewhere and not carried (line 5)",
                f"{LEFT_OUT} (line 7); set `HF_TOKEN` in the shell that starts the server",
                "the variables of `env_file` are not read (line 9); write those of the engine under `engine.env`",
            ],
        ),
        (
            MANIFEST,
            {"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_NO_USAGE_STATS": "1"},
            [
                "`resources` of the container is not carried (line 8)",
                "`HF_TOKEN` of the container is set elsewhere and not carried (line 12)",
            ],
        ),
    ],
    ids=["compose", "kubernetes"],
)
def test_a_container_of_a_manifest(text: str, env: dict[str, str], told: list[str], tmp_path: Path) -> None:
    path = tmp_path / "containers.yaml"
    path.write_text(text)

    done = run(str(path))

    assert done.exit_code == 0, done.stderr
    assert spec_of(done) == {
        "servespec": 1,
        "model": {"id": "org/model"},
        "hardware": {"gpu": "h200", "count": 1},
        "scheduler": {"max_num_seqs": 8},
        "engine": {"env": env, "version": "0.32.0", "lowering": "none"},
        "serve": {"host": "0.0.0.0"},  # noqa: S104
    }
    assert done.stdout.splitlines()[1] == f"# Imported from {path}, the container `llm`."
    assert [line[4:] for line in done.stdout.splitlines() if line.startswith("# - ")] == told
    assert "hf_secret" not in done.output


POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: llm
      image: vllm/vllm-openai:v0.32.0
      env: [{name: HALF, value: "1"}, {name: TP, value: "$(HALF)0"}]
"""


@pytest.mark.parametrize(
    "started",
    [
        'args: [org/model, --seed, "$(TP)", --served-model-name, "$$(TP)"]',
        "command: [sh, -c, \"vllm serve org/model --seed ${TP:-3} --served-model-name '$$(TP)'\"]",
        "command: [sh, -c]\n      args: [\"exec vllm serve org/model --seed $(TP) --served-model-name '$$(TP)'\"]",
    ],
)
def test_a_container_s_own_variables_are_filled_in(started: str) -> None:
    path = Path("pod.yaml")
    (command,) = server_commands(f"{POD}      {started}\n".encode(), str(path))

    read = imported(command, "h200", None, ())
    assert read_source(read.text, "spec").data["model"] == {
        "id": "org/model",
        "seed": 10,
        "served_model_name": "$(TP)",
    }


def test_a_compose_file_s_dollar_is_for_the_shell_in_the_container() -> None:
    text = "services: {a: {image: v/vllm, environment: [S=5], command: sh -c 'vllm serve org/model --seed $$S'}}\n"
    (command,) = server_commands(text.encode(), "compose.yaml")

    assert read_source(imported(command, "h200", None, ()).text, "spec").data["model"] == {"id": "org/model", "seed": 5}


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Service\n---\n" + MANIFEST,
        "---\n" + MANIFEST + "---\n# nothing\n---\n- a list\n",
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [{}, dict(read_source(MANIFEST, "m").data)]}),
    ],
)
def test_every_object_of_a_file_is_read(text: str) -> None:
    (command,) = server_commands(text.encode(), "all.yaml")

    assert command.title == "the container `llm`"
    assert command.place.range is not None
    assert text.splitlines()[command.place.range.start.line - 1].find("name") >= 0


def test_a_second_document_of_another_file_is_a_fault() -> None:
    with pytest.raises(SpecError) as refused:
        server_commands(b"max-num-seqs: 8\n---\nseed: 1\n", "a.yaml")

    assert [one.code for one in refused.value.diagnostics] == ["S009"]


def test_what_servespec_emits_for_compose_comes_back(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(spec_data("qwen3-8b", "h200", scheduler={"max_num_seqs": 8})))
    emitted = CliRunner().invoke(app, ["plan", str(spec), "--emit", "compose", "-o", str(tmp_path / "compose.yaml")])

    done = run(str(tmp_path / "compose.yaml"))

    assert (emitted.exit_code, done.exit_code) == (0, 0), done.stderr
    assert spec_of(done)["scheduler"]["max_num_seqs"] == 8


def test_a_missing_config_file_is_one_error() -> None:
    done = run("--", "vllm", "serve", "--config", "missing.yaml")

    assert done.exit_code == 1
    assert "error[S311]: the file `missing.yaml` (word 4) cannot be read" in done.stderr
    assert done.stderr.rstrip().endswith("1 error in command line")


def test_the_usual_lines_of_a_start_script_hide_no_server(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(
        'DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n: "${PORT:=8001}"\nLEN=$(( 4096 * 2 ))\n'
        "vllm serve org/model --port $PORT --max-model-len $LEN\n"
    )

    done = run(str(path))

    assert spec_of(done)["serve"]["port"] == 8001
    assert done.stderr.count("error[") == 1
    assert "error[S318]: nothing above sets `$(( 4096 * 2 ))`" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "srun --export=ALL,HF_TOKEN=hf_abc123 vllm serve org/model",
        'singularity exec --env="A=b HF_TOKEN=hf_abc123" image vllm serve org/model',
        "docker run --name vllm --env=HF_TOKEN=hf_abc123 vllm/vllm-openai org/model",
    ],
)
def test_a_secret_of_a_script_is_shown_nowhere(line: str, tmp_path: Path) -> None:
    """Neither in the spec and its title, nor in the line beside a finding."""
    path = tmp_path / "serve.sh"
    path.write_text(line + "\n")

    done = run(str(path))

    assert done.exit_code == 0
    assert "warning[S310]: `HF_TOKEN` may hold a secret" in done.stderr
    assert "abc123" not in done.output


def test_what_nothing_sets_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text('vllm serve org/model --host "$HOST"\n')

    done = run(str(path))

    assert done.exit_code == 1
    assert f"error[S318]: nothing above sets `$HOST` in `$HOST`\n --> {path}:1:29" in done.stderr


@pytest.mark.parametrize(
    ("words", "serve"),
    [
        ([], {"host": "0.0.0.0"}),  # noqa: S104
        (["--host", "10.0.0.1"], {"host": "10.0.0.1"}),
        (["--uds", "/run/vllm.sock"], None),
    ],
)
def test_a_server_listens_where_it_did(words: list[str], serve: dict[str, str] | None) -> None:
    done = run("--", "vllm", "serve", "org/model", *words)

    assert spec_of(done).get("serve") == serve
    assert ("  # every address of the machine" in done.stdout) == (words == [])


def test_a_branch_that_is_taken_for_granted_is_told(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(
        "if [ $1 ]; then\n  EXTRA=--enforce-eager\nelse\n  EXTRA='--seed 5'\nfi\n"
        "[ $2 ] && export VLLM_LOGGING_LEVEL=DEBUG\n[ $3 ] && export HF_TOKEN=x OTHER=y\n"
        "if [ $4 ]; then\n  vllm serve org/model $EXTRA\nfi\n"
    )

    done = run(str(path))

    assert (done.exit_code, spec_of(done)["model"]) == (0, {"id": "org/model", "seed": 5})
    told = [line.partition(";")[0] for line in done.stdout.splitlines() if "only in" in line]
    assert told == [
        "# - `EXTRA` is set only in the `else` of line 3, which is taken to run (line 4)",
        "# - `VLLM_LOGGING_LEVEL` is set only in what follows the `&&` of line 6, which is taken to run (line 6)",
        "# - the server is started only in the `if` of line 8 (line 9)",
    ]
    assert "warning[S321]: `EXTRA` is set only in the `else` of line 3" in done.stderr
    assert f" ::: {path}:2:3: set here otherwise\n" in done.stderr
    assert "note[S322]" in done.stderr


def test_what_is_not_carried_may_be_unset(tmp_path: Path) -> None:
    """A secret, a variable of another program, and the options of a container."""
    path = tmp_path / "serve.sh"
    path.write_text(
        "export OTHER=$1\ndocker run -v $HOME/x:/x -e HF_TOKEN=$TOKEN -e VLLM_LOGGING_LEVEL=$LEVEL vllm/vllm-openai m\n"
    )

    done = run(str(path))

    assert done.exit_code == 1
    assert done.stderr.count("error[S318]") == 1
    assert "nothing above sets `$LEVEL` in `VLLM_LOGGING_LEVEL`" in done.stderr
    assert "env" not in spec_of(done)["engine"]


def test_a_variable_for_a_container_hides_no_other_option(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text("docker run --ipc host -e VLLM_LOGGING_LEVEL=DEBUG vllm/vllm-openai org/model\n")

    done = run(str(path))

    assert spec_of(done)["engine"]["env"] == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert "# - `docker run --ipc host vllm/vllm-openai` before the program is not carried (line 1)" in done.stdout


@pytest.mark.parametrize(
    ("machine", "hardware"),
    [
        (["--gpu", "b300x2"], {"gpu": "b300", "count": 2}),
        (["--gpu", "b300", "--count", "2"], {"gpu": "b300", "count": 2}),
        (["--gpu", "b300"], {"gpu": "b300", "count": 2}),
        (["--gpu", "rtx-pro-6000x2"], {"gpu": "rtx-pro-6000", "count": 2}),
        (["--gpu", "RTX-PRO-6000x2"], {"gpu": "rtx-pro-6000", "count": 2}),
    ],
)
def test_a_machine_by_name_and_count(machine: list[str], hardware: dict[str, Any]) -> None:
    done = run(*machine, "--", "vllm", "serve", "org/model", "-tp", "2")

    assert (done.exit_code, spec_of(done)["hardware"]) == (0, hardware)


@pytest.mark.parametrize("command", ["import", "plan"])
@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (["--gpu", "h20o"], "`h20o` is not in the device table; did you mean `h200`? it has gb200, b200"),
        (["--gpu", "h9000"], "`h9000` is not in the device table; it has gb200, b200"),
        (["--gpu", "h200x2", "--count", "4"], "`h200x2` is 2 of them"),
    ],
)
def test_2_for_a_machine_that_is_none(command: str, machine: list[str], said: str) -> None:
    done = CliRunner().invoke(app, [command, *machine, "--", "vllm", "serve", "org/model"])

    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_count_that_is_not_the_layout_s_is_an_error_of_the_spec() -> None:
    done = run("--gpu", "b300x2", "--", "vllm", "serve", "org/model")

    assert done.exit_code == 1
    assert "error[R114]: the layout needs 1 GPU and `hardware.count` is `2`" in done.stderr
    assert "= help: write `count: 1`, or change `parallel`" in done.stderr


def test_a_value_can_be_laid_over_it() -> None:
    done = run("--set", "model.id=org/mine", "--count", "2", "--", "vllm", "serve", "org/model", "-tp", "2")

    assert (done.exit_code, done.stderr) == (0, "")
    assert (spec_of(done)["model"]["id"], spec_of(done)["hardware"]["count"]) == ("org/mine", 2)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sh", "echo hello\n", "error[S320]: no line of the file starts a vLLM server, of 1"),
        ("a.md", "```python\nvllm serve x\n```\n", "error[S320]: no line of the file starts a vLLM server, of 3"),
        ("a.yaml", "servespec: 1\n", "error[S320]: the file is a spec already"),
        ("a.yaml", "replicas: 1\nname: x\n", "error[S320]: no key of the file is a flag of vLLM"),
        ("a.yaml", "services: {web: {image: nginx}}\n", "error[S320]: no line of the file starts a vLLM server, of 1"),
        ("a.yaml", "a: [\n", "error[S005]"),
    ],
)
def test_1_for_a_file_without_a_server(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)

    done = run(str(path))

    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
    assert run(str(tmp_path / "missing")).exit_code == 1


def test_standard_input_and_markdown() -> None:
    text = "Serve it:\n\n> ~~~console\n> $ vllm serve org/a\n> ~~~\n\n```\nvllm serve org/b -tp 2\n```\n"
    script = run("-", given=SCRIPT)

    assert titles(text, "README.md") == ["line 4: vllm serve org/a", "line 8: vllm serve org/b"]
    assert spec_of(script)["model"]["id"] == "org/model"


def test_no_line_is_shown_of_standard_input_that_is_read() -> None:
    done = run("-", given="vllm serve $MODEL\n")

    said = done.stderr.splitlines()
    assert said[:3] == [
        "error[S318]: nothing above sets `$MODEL` in `$MODEL`",
        " --> <stdin>:1:12",
        "  = help: write its value in its place",
    ]


@pytest.mark.skipif(not RECIPES.is_dir(), reason="no recipes at hand")
@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_command_of_a_recipe_becomes_a_spec(path: Path) -> None:
    """Or says at which word it does not."""
    text = path.read_text(encoding="utf-8")
    found = server_commands(path.read_bytes(), str(path))

    written = text.count("vllm serve ") + text.count("vllm.entrypoints.openai.api_server")
    assert 1 <= len(found) <= written + text.count("vllm/vllm-openai") + 20
    for number in range(1, len(found) + 1):
        done = run(str(path), "--command", str(number))
        assert done.exit_code in (0, 1)
        assert spec_of(done)["servespec"] == 1
        assert (done.exit_code == 1) == ("error[" in done.stderr)


def test_findings_of_the_spec_show_its_lines() -> None:
    done = run("--", "vllm", "serve", "org/m", "--max-cudagraph-capture-size", "64")

    assert done.exit_code == 0
    assert "--> the imported spec:" in done.stderr
    assert "|   max_cudagraph_capture_size: 64" in done.stderr


def test_a_spec_error_names_the_file() -> None:
    with pytest.raises(SpecError) as refused:
        server_commands(b"servespec: 1\n", "a.yaml")

    assert json.dumps(refused.value.diagnostics[0].to_json()).count("a.yaml") == 2


pieces = st.one_of(
    st.sampled_from(
        ["vllm serve m", "```bash\n", "```\n", "\n", "export A=1\n", "A=(", ")", "'", '"', "$A", "${A", "$(", "`",
         "<<E\n", "E\n", "\\", "> ", ">&", "&", "#", "model:", "  model_id: x\n", "services:\n",
         " a: {image: v/vllm, command: x}\n", "features: [a]\n",
         "--config x.yaml ", "=", " ", "if t; then ", "else ", "fi; ", "case x in ", "a) ", ";; ", "esac ", "&& ",
         "|| ", "f() { ", "} ", "; "]
    ),
    st.text(max_size=6),
)  # fmt: skip


def text_of(command: ServerCommand) -> str:
    """The spec of a command, '' where a word holds what no spec can."""
    try:
        return imported(command, "h200", None, ()).text
    except SpecError as error:
        if {one.code for one in error.diagnostics} != {"S002"}:
            raise
        return ""


@settings(max_examples=300)
@given(st.lists(pieces, max_size=12).map("".join), st.sampled_from(["a.sh", "a.md", "a.yaml"]))
def test_any_text_is_read_or_refused(text: str, name: str) -> None:
    """With findings, never with another exception; what is written is a file that can be read."""
    try:
        commands = server_commands(text.encode(errors="replace"), name)
    except SpecError:
        return
    for written in filter(None, map(text_of, commands)):
        assert read_source(written, "spec").data["hardware"]["gpu"] == "h200"
