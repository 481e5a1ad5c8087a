"""Text that comes from a model server's document and is shown to a language model: cleaned and capped.

Owns the rules. Descriptions are a known way to smuggle instructions past a reader's eyes, so everything a person cannot
see is taken out: control characters, bidirectional overrides, zero-width and tag characters.
"""

import re
from typing import Final

MAX_TEXT: Final = 1024

_UNSEEN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u00ad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero-width, line separators, bidirectional overrides and isolates
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb"  # variation selectors, byte order mark, interlinear annotations
    "\ud800-\udfff"  # lone surrogates: not encodable
    "\U000e0000-\U000e0fff"  # tags and further variation selectors
    "]"
)


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """The text without unseen characters, stripped, at most `limit` characters with an ellipsis where it was cut."""
    # Cut generously first: cleaning a megabyte to keep a thousand characters is work an attacker would choose.
    cleaned = _UNSEEN.sub("", text[: limit * 4]).strip()
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1].rstrip() + "…"


def line(text: str, limit: int = MAX_TEXT) -> str:
    """The text cleaned and on one line, for a place inside a sentence."""
    return " ".join(clean(text, limit).split())
