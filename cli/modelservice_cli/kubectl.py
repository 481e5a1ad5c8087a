"""The cluster through the user's own `kubectl`: its context, its credentials, its proxies.

Owns how kubectl is called and what its failures mean. Knows nothing of ModelServices. Every call is bounded in time.
"""

import json
import re
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

from modelservice_cli.outcome import NO, REFUSED, UNREACHABLE, CommandError

Object = Mapping[str, Any]

_TIMEOUT: Final = 60.0

_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_LOG_LINE: Final = re.compile(r"[EWI]\d{4} ")
"""What kubectl's libraries log before it says the same in its own words."""

_FAILURES: Final[Sequence[tuple[tuple[str, ...], int, str]]] = (
    (
        ("doesn't have a resource type", "no matches for kind", "could not find the requested resource"),
        UNREACHABLE,
        "The cluster does not know this kind; install the chart, or name another cluster with --context.",
    ),
    (("(NotFound)",), NO, ""),
    (("(AlreadyExists)",), REFUSED, ""),
    (
        ("(Forbidden)", "(Unauthorized)", "You must be logged in"),
        REFUSED,
        "Ask for that right, or use another account.",
    ),
    (
        ("(Conflict)", "conflict with", "conflicts with"),
        REFUSED,
        "Somebody else set these fields; agree on one of you.",
    ),
    (("(Invalid)", "is invalid", "strict decoding error", "(BadRequest)", "denied the request"), REFUSED, ""),
    (
        ("context was not found", "does not exist", "no context exists", "no such file", "error loading config"),
        UNREACHABLE,
        "Name a context with --context, or a file with --kubeconfig.",
    ),
    (
        (
            "connection refused",
            "was refused",
            "Unable to connect",
            "no such host",
            "timed out",
            "deadline exceeded",
            "EOF",
            "x509",
        ),
        UNREACHABLE,
        "Look at `kubectl cluster-info`, or name another cluster with --context.",
    ),
    (("current server API group list",), UNREACHABLE, "Look at `kubectl cluster-info`."),
)
"""(words of kubectl's message, exit code, what to do), in the order in which they are looked for."""


class KubectlError(CommandError):
    """kubectl said no."""

    def __init__(self, said: str) -> None:
        words = " ".join(line for line in said.strip().splitlines() if line and not _LOG_LINE.match(line))
        self.said = (words or " ".join(said.split()) or "kubectl said nothing").removeprefix("error: ")
        code, advice = next(
            ((code, advice) for marks, code, advice in _FAILURES if any(mark in said for mark in marks)), (NO, "")
        )
        text = self.said if self.said.endswith((".", "!", "?")) else f"{self.said}."
        super().__init__(f"{text} {advice}".strip(), code)

    @property
    def is_not_found(self) -> bool:
        """The object is not there; a kind that is not there is something else."""
        return "(NotFound)" in self.said

    @property
    def is_forbidden(self) -> bool:
        """The user may not do this."""
        return "(Forbidden)" in self.said


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """kubectl with the flags that say which cluster and namespace."""

    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""

    def run(self, *arguments: str, stdin: str = "", timeout: float = _TIMEOUT) -> str:
        """What kubectl printed.

        Raises:
            CommandError: kubectl is missing, does not answer, or said no (`KubectlError`).
        """
        done = self._call(arguments, stdin, timeout)
        if done.returncode != 0:
            raise KubectlError(done.stderr or done.stdout)
        return done.stdout

    def _call(self, arguments: Sequence[str], stdin: str, timeout: float) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603
                self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                f"kubectl {arguments[0]} did not answer within {timeout:.0f} s; look at `kubectl cluster-info`.",
                UNREACHABLE,
            ) from error
        except OSError as error:
            raise CommandError(f"kubectl cannot be started: {error.strerror}.", UNREACHABLE) from error

    def command(self, *arguments: str) -> list[str]:
        """The words of a call.

        Raises:
            CommandError: There is no kubectl.
        """
        program = shutil.which("kubectl")
        if program is None:
            raise CommandError(
                "There is no kubectl on PATH; install it (https://kubernetes.io/docs/tasks/tools/).", UNREACHABLE
            )
        flags = [
            f"--{name}={value}"
            for name, value in (
                ("kubeconfig", self.kubeconfig),
                ("context", self.context),
                ("namespace", self.namespace),
            )
            if value
        ]
        return [program, *flags, *arguments]

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object, with its managed fields.

        Raises:
            CommandError: It is not there, or may not be read.
        """
        found: dict[str, Any] = json.loads(self.run("get", kind, name, "--output=json", "--show-managed-fields"))
        return found

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """One object, None where there is none."""
        try:
            return self.get(kind, name)
        except KubectlError as error:
            if error.is_not_found:
                return None
            raise

    def list(self, kind: str, *flags: str) -> list[dict[str, Any]]:
        """All objects of a kind in the namespace, or as the flags say."""
        found: list[dict[str, Any]] = json.loads(self.run("get", kind, *flags, "--output=json"))["items"]
        return found

    def current_namespace(self) -> str:
        """The namespace that calls go to."""
        view = ["config", "view", "--minify", "--output=jsonpath={..namespace}"]
        return self.namespace or self.run(*view).strip() or "default"

    def can_i(self, verb: str, resource: str, account: str = "") -> bool:
        """Whether the user, or that account, may do this in the namespace.

        Raises:
            CommandError: The cluster does not say.
        """
        name, _, subresource = resource.partition("/")
        flags = [f"--subresource={subresource}"] if subresource else []
        if account:
            flags.append(f"--as={account}")
        done = self._call(["auth", "can-i", verb, name, *flags], "", _TIMEOUT)
        if done.stdout.strip().startswith(("yes", "no")):
            return done.stdout.strip().startswith("yes")
        raise KubectlError(done.stderr or done.stdout)

    def apply(self, document: Object, *, manager: str, dry_run: bool = False) -> dict[str, Any]:
        """A server-side apply; the object as the API server has it then."""
        flags = ["--dry-run=server"] if dry_run else []
        said = self.run(
            "apply",
            "--server-side",
            f"--field-manager={manager}",
            "--output=json",
            "--show-managed-fields",
            *flags,
            "--filename=-",
            stdin=json.dumps(document),
        )
        found: dict[str, Any] = json.loads(said)
        return found

    @contextmanager
    def started(self, *arguments: str) -> Iterator[IO[str]]:
        """kubectl as a process that goes on, such as `logs --follow`: what it says. It ends with the block."""
        with _ended_like_ctrl_c():
            # A group of its own: Ctrl+C reaches this command alone, which then ends it.
            process = subprocess.Popen(  # noqa: S603
                self.command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            try:
                yield process.stdout
            finally:
                _end(process)

    @contextmanager
    def forwarded(self, target: str, port: int, timeout: float = 30.0) -> Iterator[int]:
        """A local port that leads to a Service or pod for as long as the block lasts.

        Raises:
            CommandError: It cannot be reached, or not in time.
        """
        with self.started("port-forward", "--address=127.0.0.1", target, f":{port}") as said:
            ready, _, _ = select.select([said], [], [], timeout)
            line = said.readline() if ready else ""
            found = _FORWARDING.search(line)
            if found is None:
                if not ready:
                    raise CommandError(
                        f"kubectl port-forward to {target} is not up after {timeout:.0f} s.", UNREACHABLE
                    )
                raise KubectlError(line)
            yield int(found[1])


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """A terminal that is closed, or a kill, ends the block and does not leave its process behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
