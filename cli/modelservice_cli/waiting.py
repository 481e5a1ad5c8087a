"""Waiting for a ModelService to be ready or to be gone, with a line that tells how far it is.

Owns the two waits and their ends: the answer, a state that waiting cannot mend, or the time limit.
"""

import time
from typing import Any, Final

from modelservice_cli import observing, standing, terminal
from modelservice_cli.kubectl import Kubectl
from modelservice_cli.outcome import NO, OK, REFUSED, CommandError
from modelservice_cli.standing import Standing
from modelservice_operator.core import workload

_PAUSE: Final = 0.5


def until_ready(kubectl: Kubectl, name: str, seconds: float, output: str) -> int:
    """The exit code, after what is known of the ModelService was printed.

    Raises:
        CommandError: It was deleted meanwhile, or cannot be read.
    """
    progress = terminal.Progress()
    ends = time.monotonic() + seconds
    try:
        while True:
            found = kubectl.find(observing.MODEL_SERVICES, name)
            if found is None:
                raise CommandError(f"ModelService {name} was deleted while it was waited for.", NO)
            now = standing.read(found)
            if now.current and (now.ready or now.refused or now.held_back):
                break
            if time.monotonic() >= ends:
                break
            progress.tell(f"{name}: {now.reason}: {now.message}")
            time.sleep(_PAUSE)
    finally:
        progress.end()
    return _tell(now, seconds, output)


def until_released(kubectl: Kubectl, name: str, target: tuple[str, str, str], seconds: float) -> None:
    """Until the ModelService is gone and every pod of its workload is one without the adapter.

    Raises:
        CommandError: Not in time; the text says what is missing.
    """
    progress = terminal.Progress()
    ends = time.monotonic() + seconds
    try:
        while (missing := _missing(kubectl, name, target)) and time.monotonic() < ends:
            progress.tell(f"{name}: {missing}")
            time.sleep(_PAUSE)
    finally:
        progress.end()
    if missing:
        raise CommandError(
            f"Not released within {seconds:.0f} s: {missing} Run `kubectl modelservice doctor`, and look at "
            f"`kubectl describe {target[1].lower()} {target[2]}`.",
            NO,
        )


def _missing(kubectl: Kubectl, name: str, target: tuple[str, str, str]) -> str:
    if kubectl.find(observing.MODEL_SERVICES, name) is not None:
        return f"ModelService {name} waits for the operator to release the workload."
    api_version, kind, workload_name = target
    named: dict[str, Any] = {"spec": {"workloadRef": {"apiVersion": api_version, "kind": kind, "name": workload_name}}}
    found = observing.find_workload(kubectl, named)
    progress = workload.progress(found) if found is not None else None
    if progress is None or progress.complete or progress.paused:
        return ""
    return f"{kind} {workload_name} is replacing its pods: {progress.text}."


def _tell(now: Standing, seconds: float, output: str) -> int:
    if output == "json":
        terminal.print_json(as_document(now))
    elif now.ready and now.current:
        print(f"ModelService {now.name} is ready: {now.tool_count} tools at {now.url}")
    else:
        late = "" if now.refused or now.held_back else f" within {seconds:.0f} s"
        print(f"ModelService {now.name} is not ready{late}.")
        print("\n".join(problem_lines(now)))
    if now.ready and now.current:
        return OK
    return REFUSED if now.refused else NO


def problem_lines(now: Standing) -> list[str]:
    """Why it is not ready and what to do, indented."""
    lines = []
    for problem in now.problems:
        lines.append(f"  {terminal.painted(problem.reason, 'yellow')} ({problem.condition}): {problem.message}")
        if problem.advice:
            lines.append(f"    {problem.advice}")
    return lines


def as_document(now: Standing) -> dict[str, Any]:
    """The same for programs."""
    return {
        "namespace": now.namespace,
        "name": now.name,
        "ready": now.ready,
        "reason": now.reason,
        "message": now.message,
        "tools": now.tool_count,
        "backend": now.backend,
        "url": now.url,
        "problems": [
            {name: getattr(problem, name) for name in ("condition", "reason", "message", "advice")}
            for problem in now.problems
        ],
    }
