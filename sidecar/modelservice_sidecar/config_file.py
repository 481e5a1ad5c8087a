"""The config document on disk, read again when it changes.

Owns the reading and the noticing. A ConfigMap volume swaps a symbolic link, so the file's identity is looked at through the
link. What is wrong with a document is said and the last good one stays: bad input loses nothing.
"""

import os
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from modelservice_api.adapter_config import AdapterConfig

MAX_DOCUMENT: Final = 1024 * 1024

Identity = tuple[int, int, int, int] | None


class BadDocumentError(Exception):
    """The document cannot be obeyed; the text says which field and why."""


class ConfigFile:
    """One file. `changed` and `read` are cheap and blocking: a ConfigMap lives in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Identity = None
        self.problem = ""
        """What is wrong with the document that was read last; empty where it is good or not there."""

    def changed(self) -> bool:
        """Whether the file is another one than `read` saw last."""
        return self._identity() != self._seen

    def read(self) -> AdapterConfig | None:
        """The document, or `None` where there is no file.

        Raises:
            BadDocumentError: it is not a config document of this version.
        """
        self._seen = self._identity()
        self.problem = ""
        if self._seen is None:
            return None
        try:
            return self._parse()
        except BadDocumentError as error:
            self.problem = str(error)
            raise

    def _parse(self) -> AdapterConfig:
        try:
            content = self.path.read_bytes()[: MAX_DOCUMENT + 1]
        except OSError as error:
            raise BadDocumentError(f"{self.path} cannot be read: {error.strerror}") from error
        if len(content) > MAX_DOCUMENT:
            raise BadDocumentError(f"{self.path} is larger than {MAX_DOCUMENT} bytes")
        try:
            return AdapterConfig.model_validate_json(content)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in problem['loc']) or 'document'}: {problem['msg']}"
                for problem in error.errors(include_input=False, include_url=False)[:5]
            )
            raise BadDocumentError(f"{self.path}: {problems}") from error

    def _identity(self) -> Identity:
        try:
            status = os.stat(self.path)  # noqa: PTH116 - follows the link that a ConfigMap volume swaps
        except OSError:
            return None
        return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
