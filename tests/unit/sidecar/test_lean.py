"""What a pod pays for before the first call."""

import subprocess
import sys

HEAVY = (
    "click",
    "cryptography",
    "fastapi",
    "jsonschema_rs",
    "jwt",
    "mcp",
    "multiprocessing",
    "prometheus_client",
    "opentelemetry",
    "requests",
    "redis",
    "starlette",
    "uvicorn.main",
)


def test_nothing_heavy_is_imported_before_it_is_needed_and_uvicorn_stays_whole_for_who_wants_it() -> None:
    program = (
        "import sys, modelservice_sidecar.__main__\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "import uvicorn\n"
        "print(uvicorn.run.__module__, uvicorn.Server.__name__, hasattr(uvicorn, 'nothing'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "uvicorn.main Server False"]
