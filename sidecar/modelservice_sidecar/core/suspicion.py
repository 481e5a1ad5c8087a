"""Texts of a tool that read like instructions to the language model that chooses it.

Owns the signs and their words. Pure. A sign is a reason for a person to look, never a reason to change or withhold a text: what
is a trick in one description is plain documentation in another. What no reader sees is taken out before, by `core.text`.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_SEARCHED: Final = 64 * 1024
"""Characters of one tool's texts that are searched."""

_GAP: Final = r"\W+(?:\w+\W+){0,6}?"
_SIGNS: Final[Mapping[str, str]] = {
    "asks to set instructions aside": (
        rf"\b(?:ignor|disregard|forget|overrid|overrul|bypass|neglect)(?:e|ing)?{_GAP}"
        r"(?:instruction|rule|prompt|guideline|polic|restriction|safeguard|directive)"
    ),
    "asks for secrecy": (
        r"\b(?:do not|don t|don't|never|without|avoid|must not)\W+(?:\w+\W+){0,3}?"
        r"(?:tell|inform|mention|reveal|notify|ask|disclose|show|alert)\w*\W+(?:\w+\W+){0,4}?(?:user|human|operator|anyone)"
        r"|\b(?:secretly|silently|covertly)\b"
    ),
    "orders what to do beside the call": (
        rf"\b(?:before|after|prior to|when|whenever)\W+(?:you\W+)?(?:us|call|invok|run)(?:e|ing)?{_GAP}tools?\b{_GAP}"
        r"(?:must|read|send|call|include|append|pass|fetch|open|first|always)\b"
        r"|\b(?:always|first)\W+(?:call|use|invoke|run|prefer|choose)\W+this\W+tool"
        r"|\bthis\W+tool\W+(?:replaces|supersedes|overrides|must\W+be\W+(?:used|called)\W+(?:first|before|instead))"
        r"|\b(?:use|call)\W+this\W+tool\W+instead\W+of\W+(?:\w+\W+){0,3}(?:other|all|any|every)\b"
    ),
    "speaks in the place of the system or the user": (
        r"<\s*/?\s*(?:important|system|instructions?|secret|admin|hidden|assistant|sys)\s*>"
        r"|<\|[^|\n]{1,40}\|>|\[/?inst\]|<<\s*/?sys\s*>>"
        r"|(?:^|[\n.!?])\W{0,4}(?:system|assistant|developer)\s*:"
        r"|\b(?:system|developer)\W+(?:prompt|message|mode|override)\b|\bjailbreak|\byou\W+are\W+now\b|\bact\W+as\W+(?:an?\W+)?"
        r"(?:admin|administrator|root|superuser|developer)\b|\b(?:new|real|actual|updated)\W+(?:instructions?|task|goal)\W+"
        r"(?:is|are|follow)"
        r"|\bthe\W+user\W+(?:has|have|had)\W+(?:already\W+)?(?:approved|consented|authori[sz]ed|agreed|permitted)"
    ),
    "asks for secrets or files": (
        rf"\b(?:send|pass|includ|append|forward|attach|upload|post|leak|copy|read|provid|put|paste|insert|exfiltrat|cat)(?:e|ing)?"
        rf"{_GAP}(?:passwords?|secrets?|credentials?|(?:access|auth|bearer|session)\W?tokens?|(?:api|private|ssh)\W?keys?"
        r"|conversation|chat\W+history|message\W+history|environment\W+variables?|system\W+prompt)\b"
        r"|(?:~|/root|/home/\w+|\$home)/\.|\.(?:ssh|aws|kube|gnupg|netrc)\b|\bid[ _](?:rsa|ed25519)\b|/etc/(?:passwd|shadow)"
        r"|\bexfiltrat|\brm\s+-rf\b|\|\s*(?:ba)?sh\b"
    ),
    "sends something to an address": (
        r"\b(?:send|post|upload|forward|report|curl|wget|transmit|submit|email|mail)\w*\s+(?:\S+\s+){0,8}?"
        r"(?:https?://|ftp://|[\w.+-]+@[\w-]+\.\w)"
        r"|!\[[^\]\n]{0,200}\]\(\s*https?:|<\s*(?:script|img|iframe|object)\b|\bjavascript:|\bdata:text/html"
    ),
    "holds text in disguise": (
        r"[a-z0-9+/]{160,}={0,2}|(?:\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|&#x?[0-9a-f]{2,6};|%[0-9a-f]{2}){8,}"
        r"|\bdecode\W+(?:this|the\W+following)\b|\brot13\b"
    ),
}
_PATTERNS: Final = {sign: re.compile(pattern) for sign, pattern in _SIGNS.items()}

_LOOK_ALIKES: Final = str.maketrans(
    "аеорсухіјѕԁһӏԛԝαοερτυνικ",
    "aeopcyxijsdhlqwaoeptuvik",
)
_BLANKS: Final = re.compile(r"(?:[^\S\n]|_)+")


def find(definition: Mapping[str, Any]) -> str | None:
    """What the texts of a tool, as `tools/list` shows it, read like; `None` where nothing is odd about them."""
    said = _plain("\n".join(_texts(definition)))
    return next((sign for sign, pattern in _PATTERNS.items() if pattern.search(said)), None)


def _plain(text: str) -> str:
    """The text as a reader sees it: one spelling of every letter, lower case, single blanks."""
    folded = unicodedata.normalize("NFKC", text[:MAX_SEARCHED]).casefold().translate(_LOOK_ALIKES)
    return _BLANKS.sub(" ", folded)


def _texts(definition: Mapping[str, Any]) -> Iterator[str]:
    """Every text of the definition that a language model reads, names of arguments too."""
    left = MAX_SEARCHED
    pending: list[object] = [definition]
    while pending and left > 0:
        item = pending.pop()
        if isinstance(item, str):
            left -= len(item) + 1
            yield item
        elif isinstance(item, Mapping):
            pending += reversed([part for pair in item.items() for part in pair])
        elif isinstance(item, list | tuple):
            pending += reversed(item)
