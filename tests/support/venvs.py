"""Virtual environments of real model servers for tests: one each, because their pins contradict ours and each other's.

Owns making them, once per lock file, below the cache folder: `requirements/test-NAME.txt` says what is inside. Nothing of
them is ever imported by the tests' own process; they are programs to start.

Usage: ``python tests/support/venvs.py NAME …`` makes them ahead of time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = REPOSITORY / "requirements"


def names() -> list[str]:
    """Every environment there is a lock file for."""
    return sorted(path.stem.removeprefix("test-") for path in REQUIREMENTS.glob("test-*.txt"))


def python_of(name: str) -> Path:
    """The interpreter of the environment, which is made first where it is missing. Safe to call from several processes."""
    lock_file = REQUIREMENTS / f"test-{name}.txt"
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(lock_file.read_bytes() + str(base).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modelservice" / "venvs"
    folder = cache / f"{name}-{digest}"
    ready = folder / ".installed"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            for outdated in cache.glob(f"{name}-*"):
                shutil.rmtree(outdated, ignore_errors=True)
            print(f"==> installing requirements/test-{name}.txt into {folder}: {_why(lock_file)}", flush=True)
            uv = Path(sys.prefix) / "bin" / "uv"
            subprocess.run([uv, "venv", "-q", "--python", base, folder], check=True)
            command = [uv, "pip", "install", "-q", "--python", folder / "bin" / "python"]
            subprocess.run([*command, "--require-hashes", "-r", lock_file], check=True)
            ready.touch()
    return folder / "bin" / "python"


def _why(lock_file: Path) -> str:
    """The first comment of the `.in` file: a sentence for whoever waits."""
    first = lock_file.with_suffix(".in").read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("#").strip()


if __name__ == "__main__":
    for wanted in sys.argv[1:] or names():
        print(python_of(wanted))
