"""How the operator tells what it does: one JSON line per record on stderr.

Owns the log format. Metrics of the operator come with the work on its own survival (promise `survives`).
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    """One record, one line; `extra={"fields": {…}}` becomes members."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _KopfCancelNoise(logging.Filter):
    """Drops one report of asyncio: kopf 1.45.2 asserts inside a callback of a watch that was cancelled
    (`_cogs/clients/api.py`, `request_cancel_callback`), dozens of times whenever connections are renewed."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "request_cancel_callback" not in record.getMessage()


def configure(level: str) -> None:
    """Sends every record of this process through `JsonFormatter`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("asyncio").addFilter(_KopfCancelNoise())
    # kopf and its HTTP client report each watch reconnect; their warnings stay.
    for noisy in ("kopf", "aiohttp", "urllib3", "kubernetes"):
        logging.getLogger(noisy).setLevel(max(logging.getLevelName(level), logging.WARNING))
