"""Completion in bash, zsh and fish, and for kubectl's plugins.

Owns the scripts and what may come next on a line. The parser of arguments is the one source of it; names of objects are asked
of the cluster, and where that fails nothing is offered. The answer is what kubectl asks of `kubectl_complete-*`: a word and
what it is a line, at the end a directive.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from modelservice_cli import observing
from modelservice_cli.cluster_arguments import spelled_out
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.outcome import OK, CommandError

FILES: Final = ":0"
"""The shell offers files."""
NO_FILES: Final = ":4"

BASH: Final = r"""_modelservice() {
  local IFS=$'\n' found
  found="$(modelservice __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)"
  COMPREPLY=($(printf '%s\n' "$found" | sed '/^:/d' | cut -f1))
}
complete -o default -F _modelservice modelservice
"""

ZSH: Final = r"""#compdef modelservice
_modelservice() {
  local -a found
  found=("${(@f)$(modelservice __complete "${(@)words[2,CURRENT]}" 2>/dev/null | sed '/^:/d; s/:/\\:/g; s/	/:/')}")
  [[ -n "$found" ]] && _describe 'modelservice' found || _files
}
compdef _modelservice modelservice
"""

FISH: Final = r"""function __modelservice_complete
  set --local words (commandline --tokenize --cut-at-cursor --current-process)
  modelservice __complete $words[2..-1] (commandline --current-token) 2>/dev/null | string match --invert ':*'
end
complete --command modelservice --arguments '(__modelservice_complete)'
"""

KUBECTL: Final = """#!/bin/sh
exec modelservice __complete "$@"
"""

SCRIPTS: Final[Mapping[str, str]] = {"bash": BASH, "zsh": ZSH, "fish": FISH, "kubectl": KUBECTL}

_SHORTEST_ANSWER: Final = 5.0


def run(options: argparse.Namespace) -> int:
    """Print a shell's script; the exit code."""
    sys.stdout.write(SCRIPTS[options.shell])
    return OK


def main() -> int:
    """The program `kubectl_complete-modelservice`."""
    from modelservice_cli.__main__ import build_parser

    return answer(build_parser(), sys.argv[1:])


def answer(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print what may come in place of the last word; the exit code."""
    found = list(candidates(parser, words or [""]))
    for word, about in found:
        print(f"{word}\t{about}" if about else word)
    print(NO_FILES if found else FILES)
    return OK


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(word, what it is) for the last of `words`, which may be empty."""
    spelled = spelled_out(words)
    if spelled != list(words) and len(words) == 2:
        yield from _candidates(parser, words)  # `tools l` may become `tools list` as well as `tools` of a model's name
    yield from _candidates(parser, spelled)


def _candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    *before, last = words
    line = _Line(parser)
    for word in before:
        line.take(word)
    flag, equals, value = last.partition("=")
    if line.awaits is not None:
        yield from _matching(_values(line.awaits, line), last)
    elif last.startswith("--") and equals:
        option = line.option(flag)
        found = _matching(_values(option, line), value) if option else ()
        yield from ((f"{flag}={word}", about) for word, about in found)
    elif last.startswith("-"):
        yield from _matching(line.options(), last)
    else:
        positional = line.positional()
        yield from _matching(_values(positional, line) if positional else (), last)


class _Line:
    """The words so far: which parser reads the next one, and what it is."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.awaits: argparse.Action | None = None
        self.seen: dict[str, str] = {}
        self._place = 0

    def take(self, word: str) -> None:
        """One word that stands."""
        if self.awaits is not None:
            self.seen[self.awaits.dest] = word
            self.awaits = None
        elif word.startswith("-") and word != "-":
            flag, equals, value = word.partition("=")
            option = self.option(flag)
            if option is not None and option.nargs != 0:
                if equals:
                    self.seen[option.dest] = value
                else:
                    self.awaits = option
        else:
            action = self.positional()
            if action is None:
                return
            if isinstance(action.choices, Mapping) and word in action.choices:
                self.parser, self._place = action.choices[word], 0
                return
            self.seen[action.dest] = word
            if action.nargs not in ("*", "+"):
                self._place += 1

    def option(self, flag: str) -> argparse.Action | None:
        """The option of that spelling."""
        return next((action for action in self._actions() if flag in action.option_strings), None)

    def options(self) -> Iterator[tuple[str, str]]:
        """Every option by its longest spelling."""
        for action in self._actions():
            if action.option_strings and action.help != argparse.SUPPRESS:
                yield max(action.option_strings, key=len), _help(action)

    def positional(self) -> argparse.Action | None:
        """What the next word is where it is no option."""
        found = [action for action in self._actions() if not action.option_strings]
        return found[self._place] if self._place < len(found) else None

    def _actions(self) -> list[argparse.Action]:
        return self.parser._actions  # noqa: SLF001  argparse has no public way to list them


def _values(action: argparse.Action, line: _Line) -> Iterator[tuple[str, str]]:
    """What this argument may be."""
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  argparse's only name for it
        yield from ((choice.dest, choice.help or "") for choice in action._choices_actions)  # noqa: SLF001
    elif action.choices is not None:
        yield from ((str(choice), "") for choice in action.choices)
    elif (ask := _ASKED.get(str(action.metavar))) is not None:
        kubectl = Kubectl(
            context=line.seen.get("context", ""),
            kubeconfig=line.seen.get("kubeconfig", ""),
            namespace=line.seen.get("namespace", ""),
        )
        try:
            yield from list(ask(kubectl, line.seen))
        except CommandError:
            return  # no cluster to ask; nobody wants a message in the middle of a line


def _model_services(kubectl: Kubectl, _: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in _names(kubectl, observing.MODEL_SERVICES):
        yield name, ""


def _tools(kubectl: Kubectl, seen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    path = "{.status.tools.names[*]}"
    said = kubectl.run(
        "get", observing.MODEL_SERVICES, seen.get("name", ""), f"--output=jsonpath={path}", timeout=_SHORTEST_ANSWER
    )
    yield from ((name, "") for name in said.split())


def _workloads(kubectl: Kubectl, _: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for kind in ("deployment", "statefulset", "daemonset"):
        for name in _names(kubectl, f"{kind}s.apps"):
            yield f"{kind}/{name}", ""


def _namespaces(kubectl: Kubectl, _: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((name, "") for name in _names(kubectl, "namespaces"))


def _contexts(kubectl: Kubectl, _: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    said = kubectl.run("config", "get-contexts", "--output=name", timeout=_SHORTEST_ANSWER)
    yield from ((name, "") for name in said.split())


_ASKED: Final[Mapping[str, Callable[[Kubectl, Mapping[str, str]], Iterator[tuple[str, str]]]]] = {
    "NAME": _model_services,
    "TOOL": _tools,
    "WORKLOAD": _workloads,
    "NAMESPACE": _namespaces,
    "CONTEXT": _contexts,
}
"""By what an argument is called in the help."""


def _names(kubectl: Kubectl, kind: str) -> list[str]:
    said = kubectl.run("get", kind, "--output=name", timeout=_SHORTEST_ANSWER)
    return [line.partition("/")[2] for line in said.splitlines()]


def _matching(found: Any, start: str) -> Iterator[tuple[str, str]]:
    return (each for each in found if each[0].startswith(start))


def _help(action: argparse.Action) -> str:
    return (action.help or "").partition(";")[0].replace("%(default)s", str(action.default))
