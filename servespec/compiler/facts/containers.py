"""The engine's official image, and what its processes need of a container."""

from collections.abc import Mapping
from typing import Final

from servespec.provenance import Sourced
from servespec.units import Bytes

_CUDA_DOCS = "docs/getting_started/installation/gpu.cuda.inc.md"

OFFICIAL_IMAGE: Final = Sourced(
    "vllm/vllm-openai",
    "image",
    "vLLM documentation",
    "",
    _CUDA_DOCS,
    "The image can be used to run OpenAI compatible server and is available on Docker Hub as [vllm/vllm-openai]",
    "a release is tagged `v` and its number; the server runs as root",
)
LAYERED_INSTALL: Final = Sourced(
    ("uv", "pip", "install", "--system"),
    "words",
    "vLLM documentation",
    "",
    _CUDA_DOCS,
    "RUN uv pip install --system vllm[audio]==0.11.0",
    "how an image on top of the official one gets more packages",
)
HUB_CACHE_FOLDER: Final = Sourced(
    "/root/.cache/huggingface",
    "folder",
    "vLLM documentation",
    "",
    "docs/deployment/docker.md",
    "-v ~/.cache/huggingface:/root/.cache/huggingface",
)
ENGINE_CACHE_FOLDER: Final = Sourced(
    "/root/.cache/vllm",
    "folder",
    "vLLM documentation",
    "",
    "docs/deployment/docker.md",
    "-v vllm-cache:/root/.cache/vllm",
    "compiled code, and what a worker keeps for its next start",
)

_QUEUE = "vllm/distributed/device_communicators/shm_broadcast.py"
_QUEUE_QUOTE = "max_chunk_bytes: int = 1024 * 1024 * 24, max_chunks: int = 10,"
MESSAGE_QUEUE_BYTES: Final[Mapping[str, Sourced[Bytes]]] = {
    version: Sourced(
        Bytes(24 * 1024 * 1024 * 10),
        "bytes",
        "vllm",
        version,
        _QUEUE,
        _QUEUE_QUOTE,
        "shared memory of one queue; each worker has one for its answers, and all together one for their orders",
    )
    for version in ("0.33.0", "0.32.0")
}
