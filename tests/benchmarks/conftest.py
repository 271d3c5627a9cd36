"""The benchmarks are programs of their own folder; their tests import them as Python would run them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
