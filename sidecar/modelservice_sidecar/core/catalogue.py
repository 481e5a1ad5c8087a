"""The tools: what discovery found, what the ModelService changes about them, and the list that clients see.

Owns names, order, filter, overrides, the cap and the pages. Pure. A catalogue is a value: it is replaced as a whole and
calls in flight finish on the one they started with.
"""

import base64
import binascii
import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from modelservice_api.adapter_config import ToolAnnotationsConfig, ToolOverride, ToolsConfig
from modelservice_sidecar.core import suspicion, text
from modelservice_sidecar.core.schema import Schema
from modelservice_sidecar.core.tensors import Signature

MAX_TOOLS: Final = 64
"""More tools than this confuse a model and cost every client their listing. Somebody must have chosen each by name; a part of
them is never published in silence, for nobody would know which."""
MAX_LISTING: Final = 256 * 1024
"""Bytes of all definitions together, chosen or not: about 64,000 tokens, which a client pays before the first call."""
PAGE_SIZE: Final = 100
MAX_NAME: Final = 64
"""MCP allows 128; model providers and several clients refuse more than 64."""

_FORBIDDEN_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


class BadCursorError(Exception):
    """A `cursor` that this server did not make."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """One tool as a backend describes it. `binding` is how to call it and means something to that backend only.

    `operation_id` is what include and exclude patterns match besides the name. `signature` is set where arguments and
    results are tensors; they are then checked against it, and may come as bytes. `batches_itself`: the model server joins calls
    that come together, so nobody need do it before.
    """

    name: str
    operation_id: str
    description: str
    input_schema: Schema
    binding: Any
    title: str | None = None
    output_schema: Schema | None = None
    signature: Signature | None = None
    batches_itself: bool = False
    annotations: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """One published tool. `definition` is what `tools/list` says about it, with every field of the newest revision."""

    name: str
    spec: ToolSpec
    definition: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A slice of the list and the cursor of the next one."""

    tools: Sequence[Tool]
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """The published tools in list order. `notes` are sentences about what was left out and why."""

    tools: tuple[Tool, ...] = ()
    notes: tuple[str, ...] = ()
    hash: str = ""
    by_name: Mapping[str, Tool] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)

    def page(self, cursor: str | None, size: int = PAGE_SIZE) -> Page:
        """The tools after the cursor. A cursor names the last tool seen, so it stays right when the catalogue changes.

        Raises:
            BadCursorError: the cursor is not one of ours.
        """
        start = 0 if cursor is None else bisect_right(self.names, _read_cursor(cursor))
        shown = self.tools[start : start + size]
        more = start + size < len(self.tools)
        return Page(tools=shown, next_cursor=_make_cursor(shown[-1].name) if more else None)


def choose(specs: Sequence[ToolSpec], config: ToolsConfig) -> list[ToolSpec]:
    """What `tools.filter` chooses; everything, where it names nothing."""
    return [spec for spec in specs if not config.filter or spec.name in config.filter]


def is_too_many(count: int, config: ToolsConfig) -> bool:
    """Whether so many tools are published only after somebody chose them."""
    return count > MAX_TOOLS and not config.filter


def build(specs: Sequence[ToolSpec], config: ToolsConfig, notes: Sequence[str] = ()) -> Catalogue:
    """The catalogue of these specs under this configuration; nothing is left out without a note."""
    said = list(notes)
    known = {spec.name for spec in specs}
    said += [f"tools.filter names {name!r}, which was not discovered." for name in config.filter if name not in known]
    said += [
        f"tools.overrides names {name!r}, which was not discovered." for name in config.overrides if name not in known
    ]
    tools: dict[str, Tool] = {}
    for spec in choose(specs, config):
        tool = define(spec, config)
        if tool.name in tools:
            said.append(f"Two tools are named {tool.name!r}; the one discovered as {spec.name!r} is left out.")
        else:
            tools[tool.name] = tool
    ordered = _within_bounds([tools[name] for name in sorted(tools)], config, said)
    said += [
        f"The texts of the tool {tool.name!r} read like instructions to a language model: something {sign}. Look at them, and"
        " replace them in tools.overrides unless they are meant."
        for tool in ordered
        if (sign := suspicion.find(tool.definition)) is not None
    ]
    return Catalogue(
        tools=ordered, notes=tuple(said), hash=_hash(ordered), by_name={tool.name: tool for tool in ordered}
    )


def define(spec: ToolSpec, config: ToolsConfig) -> Tool:
    """One tool as it is published under this configuration."""
    return _apply(spec, config.overrides.get(spec.name))


def _within_bounds(tools: Sequence[Tool], config: ToolsConfig, said: list[str]) -> tuple[Tool, ...]:
    """The tools, or none and a sentence that says what to choose."""
    if is_too_many(len(tools), config):
        said.insert(
            0,
            f"{len(tools)} tools were found and none is published: more than {MAX_TOOLS} must be chosen by name in "
            "tools.filter; or describe fewer, with include, exclude or tags of backend.openAPI.",
        )
        return ()
    sizes = {tool.name: _size(tool) for tool in tools}
    huge = [name for name, size in sizes.items() if size > MAX_LISTING]
    said += [f"{name!r} is not published: its description alone has {_kilobytes(sizes[name])}." for name in huge]
    kept = [tool for tool in tools if tool.name not in huge]
    total = sum(sizes[tool.name] for tool in kept)
    if total > MAX_LISTING:
        largest = sorted(kept, key=lambda tool: -sizes[tool.name])[:3]
        named = ", ".join(f"{tool.name} ({_kilobytes(sizes[tool.name])})" for tool in largest)
        said.insert(
            0,
            f"{len(kept)} tools were found and none is published: their descriptions have {_kilobytes(total)} and at most "
            f"{_kilobytes(MAX_LISTING)} are listed; choose fewer by name in tools.filter. The largest are {named}.",
        )
        return ()
    return tuple(kept)


def _size(tool: Tool) -> int:
    return len(json.dumps(tool.definition, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _kilobytes(size: int) -> str:
    return f"{round(size / 1024)} KB"


def tool_name(wanted: str, identity: str) -> str:
    """A name clients accept: `[A-Za-z0-9_-]`, at most 64 characters.

    Where that loses something, a hash over `identity` keeps the name unique and the same in every replica.
    """
    name = _FORBIDDEN_IN_NAME.sub("_", wanted).strip("_") or "tool"
    return name if len(name) <= MAX_NAME else with_suffix(name, identity)


def with_suffix(name: str, identity: str) -> str:
    """The name, shortened where needed, with eight digits of a hash over `identity`."""
    digest = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9].rstrip('_')}_{digest}"


def _apply(spec: ToolSpec, override: ToolOverride | None) -> Tool:
    override = override or ToolOverride()
    name = tool_name(override.name or spec.name, spec.operation_id)
    annotations = {**spec.annotations, **_annotations(override.annotations)}
    description = spec.description if override.description is None else text.clean(override.description)
    definition: dict[str, Any] = {"name": name}
    if spec.title:
        definition["title"] = spec.title
    definition["description"] = description
    definition["inputSchema"] = spec.input_schema
    if spec.output_schema is not None:
        definition["outputSchema"] = spec.output_schema
    if annotations:
        definition["annotations"] = annotations
    return Tool(name=name, spec=spec, definition=definition)


def _annotations(config: ToolAnnotationsConfig | None) -> dict[str, object]:
    return {} if config is None else config.model_dump(by_alias=True, exclude_none=True)


def _hash(tools: Sequence[Tool]) -> str:
    canonical = json.dumps([tool.definition for tool in tools], sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode("utf-8", "replace")).hexdigest()


def _make_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(b"n:" + name.encode()).decode()


def _read_cursor(cursor: str) -> str:
    try:
        decoded = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, UnicodeError, ValueError):
        raise BadCursorError from None
    if not decoded.startswith("n:") or len(decoded) > MAX_NAME + 2:
        raise BadCursorError
    return decoded[2:]
