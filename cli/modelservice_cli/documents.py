"""YAML streams of manifests: which documents there are, and how a changed one is written.

Owns reading and writing. A document that nobody changes keeps its very bytes, comments and all. Scalars are read as Kubernetes
reads them, not as YAML 1.1 would have them: `on`, `22:22` and dates stay text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import yaml

from modelservice_cli.outcome import USAGE, CommandError

_MARKER: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document: its text, from its `---` on, and what it says."""

    text: str
    value: Any


def split(stream: str) -> list[Document]:
    """The documents of a stream, in order; their texts joined are the stream.

    Raises:
        CommandError: It is no YAML.
    """
    starts = [found.start() for found in _MARKER.finditer(stream)]
    cuts = [0, *(start for start in starts if start > 0), len(stream)]
    return [
        Document(text=text, value=parse(text))
        for text in (stream[here:there] for here, there in pairwise(cuts))
        if text
    ]


def parse(text: str) -> Any:
    """What one document says; None where it is empty.

    Raises:
        CommandError: It is no YAML, or several documents.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  a SafeLoader with fewer types
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise CommandError(f"The input is no YAML that can be read: {said}.", USAGE) from error


def join(texts: Sequence[str]) -> str:
    """Documents one after another, a marker before each but the first that has none."""
    written = ""
    for text in texts:
        if written and not _MARKER.match(text):
            written += ("" if written.endswith("\n") else "\n") + "---\n"
        written += text
    return written


def write(value: Any) -> str:
    """A document as YAML, without a marker. What older readers would not take for text is quoted."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True))


class _Loader(yaml.SafeLoader):
    """Safe, and without the types of YAML 1.1 that Kubernetes' reader has not."""


_REPLACED: Final = {f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "timestamp")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag not in _REPLACED]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^(?:[-+]?0[0-7]+|[-+]?(?:0|[1-9][0-9]*)|[-+]?0x[0-9a-fA-F]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"),
    list("-+0123456789."),
)


class _Dumper(yaml.SafeDumper):
    """Without anchors, and with texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)
