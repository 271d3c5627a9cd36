"""Facts that stand in a file of vLLM 0.33.0."""

from typing import TypeVar

from servespec.provenance import Sourced

T = TypeVar("T")

_MODELS = "vllm/model_executor/models"


def in_engine(value: T, unit: str, path: str, quote: str, note: str = "") -> Sourced[T]:
    return Sourced(value, unit, "vllm", "0.33.0", path, quote, note)


def in_model_file(value: T, unit: str, file: str, quote: str) -> Sourced[T]:
    """``file`` is a name in the folder of models, or a path of a model that has a folder of its own."""
    path = file if file.startswith("vllm/") else f"{_MODELS}/{file}"
    return in_engine(value, unit, path, quote)
