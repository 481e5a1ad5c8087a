"""Makes root file systems from Debian's packages. Which packages, and what becomes of them, is for others to say."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from localcluster import packages, processes, progress, settings
from localcluster.errors import CommandError

_NEEDLESS = (
    "var/cache/apt/*",
    "var/lib/apt/lists/*",
    "var/log/*",
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/locale/*",
    "tmp/*",
    "dev/*",
)


def bootstrap(root: Path, *, include: Sequence[str], what: str, log: Path) -> None:
    """Fills ``root`` with a minimal Debian and the packages ``include``, without what only a person reads."""
    packages.require(["debootstrap", "unshare"], log=log.with_name("install-debootstrap.log"))
    selection = ["--variant=minbase", "--include=" + ",".join(include)]
    with progress.step(what) as step:
        command: list[str | Path] = ["debootstrap", *selection, settings.DEBIAN_SUITE, root, *_mirror()]
        # Sealed: debootstrap mounts /proc in the new root, and a killed one would leave it there.
        processes.run_watched(command, step=step, log=log, sealed=True)
        trim(root)


def trim(root: Path) -> None:
    """Removes what no container needs."""
    for pattern in _NEEDLESS:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _mirror() -> list[str]:
    """The mirror that this machine's apt uses; debootstrap's own choice where it does not say."""
    try:
        listed = processes.run(["apt-get", "indextargets", "--format", "$(SUITE) $(CODENAME) $(REPO_URI)"])
    except CommandError:
        return []
    for line in listed.splitlines():
        suite, codename, address = line.split(" ", 2)
        if settings.DEBIAN_SUITE in (suite, codename) and address.startswith(("http:", "https:")):
            return [address]
    return []
