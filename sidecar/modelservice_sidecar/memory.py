"""Keeps the process small and its pauses short.

Owns what is done to the interpreter's memory, and when: after the start, after each reading of a document, which can be a
hundred times larger than what is kept of it, and once tensors are served.
"""

import gc
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT: Final = 16 * 1024 * 1024
"""Bytes of freed memory that stay with the process where tensors are served."""

_THRESHOLDS: Final = (50_000, 20, 100)


def settle() -> None:
    """After the start: what lives now lives for ever. Out of the collector's sight, it shortens pauses from 15 ms to 2."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    give_back()


def give_back() -> None:
    """Return freed memory to the system, where the C library can (glibc keeps it otherwise)."""
    import ctypes  # only here, and only for this

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_for_tensors() -> None:
    """Megabytes come and go with every call: to get them from the system each time, page by page, costs more than to copy them.
    glibc's own rule learns the sizes of blocks and gives back what is left after each call."""
    import ctypes

    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT // 2)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT)
