"""Environment → frozen settings. Owns every variable the operator reads, its default and its check."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import pydantic

from modelservice_api.adapter_config import LoggingConfig, TracingConfig
from modelservice_operator.core.issuers import NO_ISSUERS, AuthSettings
from modelservice_operator.core.signals import NO_SIGNALS, Signals

_DEFAULT_HEALTH_PORT = 8080
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class SettingsError(ValueError):
    """A variable cannot be used; the sentence names it and says what it should be."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the operator was installed."""

    namespaces: tuple[str, ...]
    """Namespaces to watch; empty with `cluster_wide`."""
    cluster_wide: bool
    adapter_image: str
    health_port: int
    log_level: str
    auth: AuthSettings = NO_ISSUERS
    """Whose tokens adapters may be told to trust."""
    signals: Signals = NO_SIGNALS
    """Where adapters send spans, and what they log."""
    workers: int = 8
    """Passes at once; each holds a thread for as long as the API server takes to answer."""
    sweep_seconds: float = 300.0
    """Every ModelService is looked at this often even if no event came (R30)."""


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings.

    Raises:
        SettingsError: Names the variable.
    """
    namespaces = tuple(
        item.strip() for item in environment.get("MODELSERVICE_NAMESPACES", "").split(",") if item.strip()
    )
    cluster_wide = environment.get("MODELSERVICE_CLUSTER_WIDE", "").lower() in ("1", "true", "yes")
    if cluster_wide == bool(namespaces):
        raise SettingsError(
            "Set MODELSERVICE_NAMESPACES to the namespaces to watch, or MODELSERVICE_CLUSTER_WIDE=true; one of the two."
        )
    image = environment.get("MODELSERVICE_ADAPTER_IMAGE", "")
    if not image:
        raise SettingsError(
            "Set MODELSERVICE_ADAPTER_IMAGE to the adapter's image, for example by installing the chart."
        )
    return Settings(
        namespaces=namespaces,
        cluster_wide=cluster_wide,
        adapter_image=image,
        health_port=_port(environment.get("MODELSERVICE_HEALTH_PORT", str(_DEFAULT_HEALTH_PORT))),
        log_level=_log_level(environment.get("MODELSERVICE_LOG_LEVEL", "INFO")),
        auth=_auth(environment.get("MODELSERVICE_AUTH") or "{}"),
        signals=Signals(
            tracing=_document(TracingConfig, environment, "MODELSERVICE_TRACING", "tracing"),
            logging=_document(LoggingConfig, environment, "MODELSERVICE_CALL_LOG", "callLog"),
        ),
    )


def _port(text: str) -> int:
    if text.isdecimal() and 0 < int(text) < 65536:
        return int(text)
    raise SettingsError(f"MODELSERVICE_HEALTH_PORT is {text!r}; it must be a port number.")


def _auth(text: str) -> AuthSettings:
    return _document(AuthSettings, {"MODELSERVICE_AUTH": text}, "MODELSERVICE_AUTH", "auth")


Document = TypeVar("Document", bound=pydantic.BaseModel)


def _document(kind: type[Document], environment: Mapping[str, str], name: str, value: str) -> Document:
    """A value of the chart that is a whole block, as JSON."""
    try:
        return kind.model_validate_json(environment.get(name) or "{}")
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise SettingsError(f"{name}, the chart's {value}: {path or 'the value'}: {first['msg']}.") from error


def _log_level(text: str) -> str:
    if text.upper() in _LOG_LEVELS:
        return text.upper()
    raise SettingsError(f"MODELSERVICE_LOG_LEVEL is {text!r}; it must be one of {', '.join(_LOG_LEVELS)}.")
