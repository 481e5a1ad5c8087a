"""The catalogue as it is served: every tool with its compiled checks, and the listing already written as JSON.

Owns the compilation. A `Published` is a value; the whole of it is swapped when the tools change, and calls in flight keep
the one they began with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from modelservice_api.adapter_config import ToolsConfig
from modelservice_sidecar import tensor_checks, validation
from modelservice_sidecar.core import catalogue
from modelservice_sidecar.core.catalogue import Catalogue, Tool, ToolSpec
from modelservice_sidecar.validation import Check


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedTool:
    """A tool ready to be called. `idempotent` and `cacheable` are what its annotations say, the ModelService's included."""

    tool: Tool
    check_arguments: Check
    check_answer: Check | None
    idempotent: bool = False
    cacheable: bool = False

    @property
    def name(self) -> str:
        return self.tool.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """One page of `tools/list`: the `tools` array as JSON, and the next page's cursor."""

    tools_json: orjson.Fragment
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True)
class Published:
    """What clients see until the next swap."""

    catalogue: Catalogue = field(default_factory=Catalogue)
    tools: dict[str, PublishedTool] = field(default_factory=dict)
    _pages: dict[str | None, Listing] = field(default_factory=dict)

    def only(self, names: frozenset[str]) -> "Published":
        """The part of it that has these names, for who may see no more."""
        shown = replace(self.catalogue, tools=tuple(tool for tool in self.catalogue.tools if tool.name in names))
        return Published(catalogue=shown, tools={name: tool for name, tool in self.tools.items() if name in names})

    def listing(self, cursor: str | None) -> Listing:
        """A page, the same for every revision: clients pass over fields they do not know.

        Raises:
            catalogue.BadCursorError: the cursor is not one of ours.
        """
        found = self._pages.get(cursor)
        if found is None:
            page = self.catalogue.page(cursor)
            shown = [tool.definition for tool in page.tools]
            found = Listing(tools_json=orjson.Fragment(orjson.dumps(shown)), next_cursor=page.next_cursor)
            # Any string decodes to some cursor, so only as many as there can be pages are kept.
            if len(self._pages) < _MAX_PAGES:
                self._pages[cursor] = found
        return found


def publish(specs: Sequence[ToolSpec], config: ToolsConfig, notes: Sequence[str]) -> Published:
    """Build and compile; a tool whose schema cannot be compiled is left out with a note. CPU-bound: not for the loop."""
    wanted = catalogue.choose(specs, config)
    if catalogue.is_too_many(len(wanted), config):
        return Published(catalogue=catalogue.build(specs, config, notes))
    unusable: set[str] = set()
    without_output: dict[str, ToolSpec] = {}
    checks: dict[str, tuple[Check, Check | None]] = {}
    said = list(notes)
    for spec in wanted:
        try:
            check_arguments = _argument_check(spec)
            orjson.dumps(spec.input_schema)
        except (validation.SchemaNotCompilableError, TypeError) as error:
            said.append(f"{spec.name!r} is not published: its schema is invalid ({error}).")
            unusable.add(spec.name)
            continue
        output_schema, check_answer = spec.output_schema, None
        try:
            # A tensor tool's backend holds every tensor against the signature, which is where the schema came from.
            if output_schema is not None and spec.signature is None:
                check_answer = validation.compile_check(output_schema)
        except validation.SchemaNotCompilableError:
            without_output[spec.name] = replace(spec, output_schema=None)
        checks[spec.name] = (check_arguments, check_answer)
    usable = [without_output.get(spec.name, spec) for spec in specs if spec.name not in unusable]
    built = catalogue.build(usable, config, said)
    tools = {
        tool.name: _published_tool(
            tool, check_arguments=checks[tool.spec.name][0], check_answer=checks[tool.spec.name][1]
        )
        for tool in built.tools
    }
    return Published(catalogue=built, tools=tools)


def _published_tool(tool: Tool, *, check_arguments: Check, check_answer: Check | None) -> PublishedTool:
    annotations = tool.definition.get("annotations", {})
    idempotent = annotations.get("idempotentHint") is True
    return PublishedTool(
        tool=tool,
        check_arguments=check_arguments,
        check_answer=check_answer,
        idempotent=idempotent,
        cacheable=idempotent and annotations.get("readOnlyHint") is True,
    )


def _argument_check(spec: ToolSpec) -> Check:
    if spec.signature is None:
        return validation.compile_check(spec.input_schema)
    return tensor_checks.compile_tensor_check(spec.signature)


_MAX_PAGES: Final = 16
