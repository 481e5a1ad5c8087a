"""Keeps what is expensive to make, by name and key. An entry is there whole or not at all, whoever is killed when.

It is built beside its place under a temporary name and renamed at the end. While it is built its lock is held, so any
temporary name that is found with the lock in hand is what a killed run left, and goes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localcluster import progress

_TEMPORARY = ".building"


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A folder of entries; an entry is a folder ``NAME@KEY``."""

    folder: Path

    def has(self, name: str, key: str) -> bool:
        """Whether the entry is there."""
        return (self.folder / f"{name}@{key}").is_dir()

    def entry(self, name: str, key: str, build: Callable[[Path], None]) -> Path:
        """The entry's folder; ``build`` fills it first if it is not there."""
        place = self.folder / f"{name}@{key}"
        if place.is_dir():
            return place
        with lock(self.folder / f"{name}.lock", what=f"{name} (another run is making it)"):
            if place.is_dir():
                return place
            for left in self.folder.glob(f"{name}@*{_TEMPORARY}"):
                shutil.rmtree(left)
            temporary = self.folder / f"{name}@{key}{_TEMPORARY}"
            temporary.mkdir()
            try:
                build(temporary)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            temporary.rename(place)
        return place


@contextmanager
def lock(path: Path, *, what: str) -> Iterator[None]:
    """Holds ``path`` locked against other processes; says ``what`` it waits for. The kernel frees it when we end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step(f"waiting for {what}"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def key_of(*, files: Iterable[Path] = (), texts: Iterable[str] = ()) -> str:
    """A short key that changes with the files' contents and the texts, not with the files' places or times."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    for text in texts:
        digest.update(f"{len(text)}\n{text}".encode())
    return digest.hexdigest()[:12]
