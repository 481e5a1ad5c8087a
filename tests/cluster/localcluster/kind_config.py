"""Changes a kind configuration as text, by its top-level blocks. Pure: no file is read or written here.

A YAML parser is not in Python's standard library, and what is changed here needs none: whole blocks, and keys at a
block's first level. A block in flow style (``networking: {…}``) is refused rather than guessed at.
"""

from __future__ import annotations

import re

from localcluster.errors import ClusterError

_TOP_LEVEL_KEY = re.compile(r"([A-Za-z][A-Za-z0-9]*):(.*)")


def build_config(text: str, *, nodes: int | None, api_address: str | None) -> str:
    """The configuration with so many nodes, and its API server published on ``api_address``.

    Args:
        text: The configuration to start from.
        nodes: One control plane and the rest workers, in place of the nodes that ``text`` has; None: as in ``text``.
        api_address: None: as in ``text``.
    """
    blocks = split_blocks(text)
    if nodes is not None:
        blocks["nodes"] = "nodes:\n- role: control-plane\n" + "- role: worker\n" * (nodes - 1)
    if api_address is not None:
        # Port -1: the engine picks a free one. kind would look for one here, where the address is not.
        lines = f"  apiServerAddress: {api_address}\n  apiServerPort: -1\n"
        blocks["networking"] = "networking:\n" + lines + _rest_of_networking(blocks.get("networking", "networking:\n"))
    return "".join(blocks.values())


def split_blocks(text: str) -> dict[str, str]:
    """The text of each top-level key, in order; what comes before the first one under ""."""
    blocks: dict[str, str] = {"": ""}
    current = ""
    for line in text.splitlines():
        match = _TOP_LEVEL_KEY.match(line)
        if match:
            current = match[1]
            if current in blocks:
                raise ClusterError(f"kind configuration: {current} is there twice")
            blocks[current] = ""
        blocks[current] += line + "\n"
    return blocks


def _rest_of_networking(block: str) -> str:
    first, *rest = block.splitlines(keepends=True)
    if first.split("#")[0].strip() != "networking:":
        raise ClusterError(f"kind configuration: write networking with one key a line, not as {first.strip()!r}")
    rest = [line for line in rest if line.split(":")[0].strip() not in ("apiServerAddress", "apiServerPort")]
    indents = {len(line) - len(line.lstrip()) for line in rest if line.strip() and not line.lstrip().startswith("#")}
    if indents and min(indents) != 2:
        raise ClusterError("kind configuration: indent the keys under networking by two spaces")
    return "".join(rest)
