"""Launches with hostile values, and what stands in for the programs that take an emitted one."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

from hypothesis import strategies as st

from servespec.compiler.plan import Plan
from servespec.runtime.gather import Options
from servespec.schema.dump import dump_yaml
from tests.plans import Json, compiled, spec_of

HOSTILE = ("'", '"', "\\", "$", "$$", "${HOME}", "$(exit 3)", "`exit 3`", "\n", "\t", "*", "~", "!", "#", ";", "&", "|")
"""Pieces that a shell, YAML or compose reads as something else."""

ADDRESSES = ("127.0.0.1", "0.0.0.0", "::1", "localhost")  # noqa: S104 - written, never bound

READ_AS_OTHERS = (
    *("yes", "on", "null", "~", "017", "0x1f", "1e3", "1:20", "12_3", "=", "<<", "- a", "a: b", "a #b", ""),
)
"""Texts that some reader of YAML takes for another kind of value."""

letters = st.text("ab -=:{}[],%\u2018\xe9\x85\u2028\ufeff\U0001f600", max_size=3)
texts = st.lists(st.sampled_from(HOSTILE) | letters, max_size=6).map("".join) | st.sampled_from(READ_AS_OTHERS)


@st.composite
def hostile_specs(draw: st.DrawFn) -> Json:
    """Specs that are accepted, with texts of any kind wherever the engine takes one."""
    gpus = draw(st.sampled_from((1, 2, 8)))
    return spec_of(
        "qwen3-8b",
        "h200",
        model={"id": model_id(), "served_model_name": draw(texts) or "m"},
        hardware={"gpu": "h200", "count": gpus},
        parallel={"tensor_parallel_size": gpus},
        scheduler={"max_num_seqs": draw(st.integers(1, 64))},
        engine={
            "version": "0.33.0",
            "lowering": draw(st.sampled_from(("legacy", "extension"))),
            "args": {"root-path": draw(texts), "additional-config": {draw(texts): [draw(texts)]}},
            "env": {"VLLM_LOGGING_PREFIX": draw(texts), "TZ": draw(texts)},
        },
        serve={"host": draw(st.sampled_from(ADDRESSES)), "port": draw(st.integers(1, 65535))},
    )


def launched(spec: Json, *, allow_unverified_engine: bool = False) -> Plan:
    """Its plan, from YAML: JSON has two escapes for what YAML calls one character."""
    return compiled(dump_yaml(spec).encode(), Options(allow_unverified_engine=allow_unverified_engine))


def model_id() -> str:
    return str(spec_of("qwen3-8b", "h200")["model"]["id"])


def fake_program(folder: Path, name: str) -> Path:
    """A program called ``name`` that leaves what it was started with in the file it gives back."""
    seen = folder / f"{name}.json"
    program = folder / name
    program.write_text(
        f"#!{sys.executable} -S\n"
        "import json, os, sys\n"
        f"json.dump([os.path.basename(sys.argv[0]), *sys.argv[1:]], open({str(seen)!r}, 'w'))\n"
        f"json.dump(dict(os.environ), open({str(seen) + '.env'!r}, 'w'))\n"
    )
    program.chmod(0o755)
    return seen


def seen_by(seen: Path) -> tuple[list[str], dict[str, str]]:
    return json.loads(seen.read_text()), json.loads(Path(f"{seen}.env").read_text())


def compose_program() -> Path | None:
    """Docker Compose itself, where its package is installed."""
    found = find_spec("compose")
    program = Path(str(found.origin)).with_name("docker-compose") if found is not None else None
    return program if program is not None and program.is_file() else None
