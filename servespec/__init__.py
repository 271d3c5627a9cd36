"""Compile one YAML serving spec into an exact plan, then launch vLLM so that it captures that plan."""

__version__ = "0.1.0"

__all__ = ["__version__"]
