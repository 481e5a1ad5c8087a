"""What a shell offers next, by the protocol that kubectl asks plugins in, and in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from modelservice_cli import completion
from modelservice_cli.__main__ import build_parser, main


def offered(*words: str) -> list[str]:
    return [word for word, _ in completion.candidates(build_parser(), words)]


@pytest.fixture(autouse=True)
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubectl that knows one ModelService with two tools."""
    program = tmp_path / "kubectl"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '  *tools.names*) echo "score explain";;\n'
        "  *modelservices*name*) echo modelservice.modelservice.dev/fraud;;\n"
        "  *deployments*) echo deployment.apps/web;;\n"
        "  *get-contexts*) echo staging;;\n"
        "  *) exit 1;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def test_commands_options_choices_and_names_of_objects_are_offered() -> None:
    assert offered("re") == ["release"]
    assert {"adopt", "status", "dev", "tools"} <= set(offered(""))
    assert offered("tools", "l") == ["list", "lint"]
    assert offered("status", "") == ["fraud"]
    assert offered("tools", "fr") == ["fraud"]
    assert offered("call", "fraud", "") == ["score", "explain"]
    assert offered("call", "-n", "ml", "fraud", "s") == ["score"]
    assert offered("status", "--output", "") == ["text", "json"]
    assert offered("status", "--output=j") == ["--output=json"]
    assert offered("status", "--context", "s") == ["staging"]
    assert offered("completion", "f") == ["fish"]
    assert offered("adopt", "--dr") == ["--dry-run"]


def test_where_the_cluster_says_no_nothing_is_offered() -> None:
    assert offered("adopt", "") == []  # StatefulSets may not be listed
    assert offered("status", "--namespace", "") == []
    assert offered("status", "fraud", "more") == []


def test_the_answer_ends_with_a_directive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["__complete", "rel"]) == 0
    assert capsys.readouterr().out == "release\tgive a workload back as it was\n:4\n"
    assert main(["__complete", "inject", "-f", ""]) == 0
    assert capsys.readouterr().out == ":0\n"


def test_every_shell_has_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish", "kubectl"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "modelservice __complete" in script
        program = shutil.which("sh" if shell == "kubectl" else shell)
        if program is not None:
            subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=30)


def test_a_real_bash_completes(tmp_path: Path) -> None:
    program = tmp_path / "modelservice"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m modelservice_cli "$@"\n')
    program.chmod(0o755)
    script = (
        completion.BASH
        + 'COMP_WORDS=(modelservice call fraud ""); COMP_CWORD=3; _modelservice; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == ["score", "explain"]
