"""The adapter as pods run it, which also says on SIGUSR1 how many tasks its loop has: nothing of the product tells that.

Owns that one line, on standard error, where the adapter itself writes nothing.

Usage: as ``python -m modelservice_sidecar``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from modelservice_sidecar.__main__ import main


def _tell_tasks(*_: object) -> None:
    os.write(2, b"tasks %d\n" % len(asyncio.all_tasks()))


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _tell_tasks)
    sys.exit(main())
