"""The generator of the reference pages as a module: docs/ is a folder of documents and no package."""

import importlib.util
from pathlib import Path
from types import ModuleType

PATH = Path(__file__).resolve().parents[2] / "docs" / "generate.py"


def generator() -> ModuleType:
    """`docs/generate.py`, loaded anew."""
    spec = importlib.util.spec_from_file_location("docs_generate", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
