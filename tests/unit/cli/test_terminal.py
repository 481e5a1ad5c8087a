"""What is for terminals only: colour, progress and questions, on a real pseudo-terminal; and how the command is interrupted."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SERVICE = '{"metadata": {"name": "fraud", "namespace": "ml"}, "spec": {"workloadRef": {"name": "fraud"}}}'


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A kubectl that knows one ModelService that nobody has looked at; it follows logs until it is ended."""
    program = tmp_path / "kubectl"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1" in\n  logs) echo $$ >{tmp_path}/pid; echo following; exec sleep 60;;\n'
        f"  delete) touch {tmp_path}/deleted;;\n  *) echo '{SERVICE}';;\nesac\n"
    )
    program.chmod(0o755)
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    return {**inherited, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TERM": "xterm"}


def on_a_terminal(environment: dict[str, str], *arguments: str, typed: str = "") -> tuple[int, str]:
    """The exit code, and what the terminal showed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "modelservice_cli", *arguments]
    process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    try:
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other side has closed
                break
            if not piece:
                break
            shown += piece
    finally:
        os.close(ours)
    return process.wait(timeout=30), shown.decode()


def test_colour_is_for_terminals_and_only_for_who_wants_it(environment: dict[str, str]) -> None:
    code, shown = on_a_terminal(environment, "status", "fraud")
    assert code == 1
    assert "\x1b[1mfraud\x1b[0m is not ready:" in shown
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        _, shown = on_a_terminal({**environment, **unwanted}, "status", "fraud")
        assert "fraud is not ready:" in shown
        assert "\x1b" not in shown
    piped = subprocess.run(
        [sys.executable, "-m", "modelservice_cli", "status", "fraud"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert "\x1b" not in piped.stdout + piped.stderr


@pytest.mark.parametrize("typed", ["n\n", "\n", "maybe\n"])
def test_a_release_is_asked_about_and_anything_but_yes_is_no(
    environment: dict[str, str], tmp_path: Path, typed: str
) -> None:
    code, shown = on_a_terminal(environment, "release", "fraud", typed=typed)
    assert "Release Deployment fraud? Its pods are replaced once, and MCP clients lose fraud. [y/N]" in shown
    assert "Nothing was changed." in shown
    assert code == 1
    assert not (tmp_path / "deleted").exists()


def test_a_release_that_is_agreed_to_tells_how_far_it_is(environment: dict[str, str], tmp_path: Path) -> None:
    code, shown = on_a_terminal(environment, "release", "fraud", "--timeout=1", typed="y\n")
    assert (tmp_path / "deleted").exists()
    assert "\r\x1b[Kfraud: ModelService fraud waits for the operator to release the workload." in shown
    assert code == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_interrupts_the_command_leaves_no_kubectl_behind(
    environment: dict[str, str], tmp_path: Path, how: signal.Signals
) -> None:
    os.mkfifo(tmp_path / "pid")
    process = subprocess.Popen(
        # Whoever runs the tests in the background of a shell has made them deaf to SIGINT.
        ["env", "--default-signal", sys.executable, "-m", "modelservice_cli", "logs", "fraud", "--follow"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    kubectl = int((tmp_path / "pid").read_text())  # kubectl has started when it says its number
    process.send_signal(how)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
    with pytest.raises(ProcessLookupError):
        os.kill(kubectl, 0)


def test_whoever_stops_reading_gets_no_traceback(environment: dict[str, str]) -> None:
    script = f"{sys.executable} -m modelservice_cli --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    assert "Traceback" not in done.stderr
