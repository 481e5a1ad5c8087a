"""`modelservice tools lint`: what a language model would stumble over in the tools of a model server, a document or a list.

Owns where tools are read from and how findings are printed. The rules are in `core.tool_lint`; finding and reading a model
server is what the adapter does.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from modelservice_api.adapter_config import AdapterConfig
from modelservice_cli import mcp_list
from modelservice_cli.place import Target, UsageError, parse_url
from modelservice_sidecar import validation
from modelservice_sidecar.backends import probe
from modelservice_sidecar.config_file import BadDocumentError, ConfigFile
from modelservice_sidecar.core import catalogue, openapi, tool_lint
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import BackendError, DescribeError
from modelservice_sidecar.core.tool_lint import Report
from modelservice_sidecar.upstream import Pool

EXIT_CLEAN: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2
MAX_FILE: Final = 64 * 1024 * 1024
_DOCUMENT_NAMES: Final = ("openapi", "swagger", "api-docs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The tools as clients would see them, and what was said about the rest."""

    definitions: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()


def run(options: argparse.Namespace) -> int:
    """Read the tools, print what there is to better; the exit code."""
    try:
        config = _config(options.config)
        found = read(options.target, config)
    except UsageError as error:
        print(f"modelservice tools lint: {error}", file=sys.stderr)
        return EXIT_USAGE
    report = tool_lint.lint(found.definitions, found.notes)
    print(as_json(report) if options.format == "json" else as_text(report))
    return EXIT_FINDINGS if report.findings else EXIT_CLEAN


def read(target: str, config: AdapterConfig) -> Found:
    """The tools at a URL or in a file, under this configuration.

    Raises:
        UsageError: there is nothing that tools can be read from; the text says what to name instead.
    """
    path = Path(target)
    if "://" not in target and path.exists():
        return _from_file(path, config)
    if "://" not in target and path.suffix in {".json", ".yaml", ".yml"}:
        raise UsageError(f"There is no file {target}")
    place = parse_url(target, "the target")
    last = place.prefix.rsplit("/", 1)[-1].lower()
    is_document = last.endswith((".json", ".yaml", ".yml")) or last in _DOCUMENT_NAMES
    try:
        if last == "mcp":
            return Found(definitions=asyncio.run(mcp_list.tools(place.host, place.port, place.prefix)))
        return asyncio.run(_from_server(place, _at(place, config, is_document=is_document), config))
    except (DescribeError, BackendError) as error:
        raise UsageError(f"{error} Name a model server, its OpenAPI document, a file, or an MCP endpoint.") from error


def as_text(report: Report) -> str:
    """One line per finding, and one that sums up."""
    return "\n".join([*(str(finding) for finding in report.findings), report.summary])


def as_json(report: Report) -> str:
    """The same for programs."""
    findings = [
        {name: getattr(finding, name) for name in ("tool", "path", "rule", "problem", "advice")}
        for finding in report.findings
    ]
    return json.dumps(
        {"tools": report.tools, "tokens": report.tokens, "findings": findings}, indent=2, ensure_ascii=False
    )


def _config(file: str | None) -> AdapterConfig:
    if file is None:
        return AdapterConfig()
    try:
        config = ConfigFile(Path(file)).read()
    except BadDocumentError as error:
        raise UsageError(str(error)) from error
    if config is None:
        raise UsageError(f"There is no {file}; write one or leave --config out")
    return config


def _at(place: Target, config: AdapterConfig, *, is_document: bool) -> AdapterConfig:
    """The configuration, looking where the URL says."""
    if not place.prefix:
        return config
    path = place.prefix if is_document else f"{place.prefix}/openapi.json"
    backend = config.backend.model_copy(
        update={
            "open_api": config.backend.open_api.model_copy(update={"path": path}),
            "type": "OpenAPI" if is_document else config.backend.type,
        }
    )
    return config.model_copy(update={"backend": backend})


async def _from_server(place: Target, looking: AdapterConfig, config: AdapterConfig) -> Found:
    pool = Pool(place.host, place.port, max_connections=2)
    try:
        backend, description = await probe.find(pool, looking)
        await backend.aclose()
    finally:
        await pool.aclose()
    return _chosen(description.tools, config, description.notes)


def _from_file(path: Path, config: AdapterConfig) -> Found:
    try:
        if path.stat().st_size > MAX_FILE:
            raise UsageError(f"{path} is larger than {MAX_FILE // 1024**2} MiB")
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    listed = document.get("result", document) if isinstance(document, dict) else document
    tools = listed.get("tools") if isinstance(listed, dict) else None
    if isinstance(tools, list):
        return Found(definitions=[tool for tool in tools if isinstance(tool, dict)])
    try:
        reading = openapi.read(document, config.backend.open_api, is_pattern=validation.is_pattern)
    except DescribeError as error:
        raise UsageError(f"{path}: {error} Name an OpenAPI document, or the result of tools/list.") from error
    return _chosen(reading.tools, config, reading.notes)


def _chosen(specs: Sequence[ToolSpec], config: AdapterConfig, notes: Sequence[str]) -> Found:
    """Every tool that was chosen, also where they are too many to be published: that is one of the findings."""
    tools = [catalogue.define(spec, config.tools) for spec in catalogue.choose(specs, config.tools)]
    return Found(definitions=[tool.definition for tool in sorted(tools, key=lambda tool: tool.name)], notes=notes)
