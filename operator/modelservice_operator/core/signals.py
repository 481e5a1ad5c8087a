"""Where adapters send their spans and what their log lines may hold, as the platform admin says in the chart's values.

Owns the shape of the chart's `tracing` and `callLog`. Authors of ModelServices have no part in it: an author who could name an
endpoint could send requests to it, and one who could log bodies would log other people's.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict

from modelservice_api.adapter_config import LoggingConfig, TracingConfig


class Signals(BaseModel):
    """The two blocks as they go into every adapter's config document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tracing: TracingConfig = TracingConfig()
    logging: LoggingConfig = LoggingConfig()


NO_SIGNALS: Final = Signals()
"""No spans, and no bodies in the log."""
