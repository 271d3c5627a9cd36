"""An image that adds servespec to the engine's official one, and changes nothing that is in it."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from servespec.compiler.facts.containers import LAYERED_INSTALL

Json = Mapping[str, Any]

OWN_REQUIREMENTS: Final = ("ruamel.yaml>=0.18.6,<0.20", "rich>=13")
"""What servespec needs and the engine does not bring; rich comes with its typer, of a version that may be older."""


def wheel_name(version: str) -> str:
    return f"servespec-{version}-py3-none-any.whl"


def dockerfile(image: str, version: str) -> str:
    """For `docker build` in a folder with the wheel of servespec ``version``; ``image`` is the official one."""
    wheel = wheel_name(version)
    install = " ".join((*LAYERED_INSTALL.value, "--no-deps", f"/mnt/{wheel}", *map(shlex.quote, OWN_REQUIREMENTS)))
    return f"""\
# The official image of the planned engine, with servespec {version}.
# {wheel} lies beside it: pip wheel --no-deps --wheel-dir . CHECKOUT
FROM {image}
# Without dependencies nothing that the image has is replaced, torch and vLLM least of all.
# The build ends where servespec misses something, or cannot be loaded as the engine's workers load it.
RUN --mount=type=bind,source={wheel},target=/mnt/{wheel} \\
    {install} \\
 && ! python3 -m pip check | grep '^servespec ' \\
 && python3 -c 'import servespec.runtime.extension.worker'
"""
