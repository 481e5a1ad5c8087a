"""The parts of uvicorn that the adapter runs on, without the parts it does not.

Owns the import. `import uvicorn` loads uvicorn's command line (click) and its process supervisors (multiprocessing): five
megabytes of every pod's memory that nothing here uses. They stay out until somebody asks for `uvicorn.run` or `uvicorn.main`.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_MAIN = "uvicorn.main"
_ITS_NAMES = ("Server", "main", "run")


def _import_without_main() -> None:
    """Import the package with an empty module in the place of its command line, then make that come when asked for."""
    if "uvicorn" in sys.modules:
        return
    stand_in = ModuleType(_MAIN)
    for name in _ITS_NAMES:
        setattr(stand_in, name, None)
    sys.modules[_MAIN] = stand_in
    package = importlib.import_module("uvicorn")
    del sys.modules[_MAIN]
    for name in _ITS_NAMES:
        delattr(package, name)

    def load(name: str) -> Any:
        if name not in _ITS_NAMES:
            raise AttributeError(f"module 'uvicorn' has no attribute {name!r}")
        return getattr(importlib.import_module(_MAIN), name)

    package.__dict__["__getattr__"] = load


_import_without_main()

from uvicorn.config import Config  # noqa: E402 - only now
from uvicorn.protocols.http.httptools_impl import (  # noqa: E402 - only now
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import Server  # noqa: E402 - only now

__all__ = ["STATUS_LINE", "Config", "HttpToolsProtocol", "RequestResponseCycle", "Server"]
