"""What every file with an emitted launch says of itself."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

Json = Mapping[str, Any]


def launch_comment(plan: Json, spec_name: str) -> Iterator[str]:
    """Sentences, one a line, for the top of the file; ``spec_name`` is the spec's file as it was named."""
    engine, device, shown = plan["engine"], plan["device"], shown_name(spec_name)
    yield f"The launch of {shown} as servespec {plan['servespec']} planned it:"
    yield (
        f"vLLM {engine['version']} on {device['count']} x {device['name']}, lowering {engine['lowering']}, "
        f"spec sha256 {plan['inputs']['spec_sha256'][:16]}."
    )
    yield "Nothing here checks that the engine captures what was planned: `servespec serve` does, before it is ready."


def shown_name(spec_name: str) -> str:
    """A file's own name with nothing in it that would end a comment."""
    name = PurePath(spec_name).name or spec_name
    return "".join(letter if letter.isprintable() else "?" for letter in name)
