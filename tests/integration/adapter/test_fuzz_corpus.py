"""Every input that fuzzing found or that was chosen for it, once more: `make fuzz` looks for new ones."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "fuzz"


def _load(name: str) -> ModuleType:
    """A module of the fuzz command, which is no package and not on the path."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


targets: Any = _load("targets")


@pytest.mark.promise("hostile")
@pytest.mark.parametrize("name", targets.TARGETS)
def test_every_input_of_the_corpus_is_read_or_refused(name: str) -> None:
    target = targets.TARGETS[name]
    assert target.corpus != []
    with target.open() as check:
        for file in target.corpus:
            try:
                check(file.read_bytes())
            except Exception as error:
                error.add_note(f"the input is {file.relative_to(FOLDER)}")
                raise


def test_every_folder_of_the_corpus_has_its_target() -> None:
    assert {folder.name for folder in targets.CORPUS.iterdir()} == set(targets.TARGETS)
