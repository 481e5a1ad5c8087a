"""Puts the benchmarks' package on the path: they are a command of their own, not part of the product."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
