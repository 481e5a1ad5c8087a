"""Stages from other packages: found by entry point, made with their own configuration, put in their declared place.

Owns the seam for third parties. A stage that is asked for and cannot be had lets no call through: it may be the one that keeps
something out.

A package declares, in the entry point group `modelservice.pipeline_stages`, a factory under the name that
`spec.adapter.stages` asks for. The factory takes the configuration as it was written and gives a `Stage`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from modelservice_api.adapter_config import StageConfig
from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.errors import InternalError
from modelservice_sidecar.pipeline.call import Call, Handler

GROUP: Final = "modelservice.pipeline_stages"


class Stage(Protocol):
    """One stage of a third party. `before` is the name of one of ours: the stage stands right outside of it."""

    before: str

    def handle(self, call: Call, proceed: Handler) -> Awaitable[Answer]:
        """Answer the call, most often by `await proceed(call)`.

        Raises:
            CallError: the call failed, told to the caller as it is. Anything else is told as an internal error and logged.
        """
        ...


Factory = Callable[[Mapping[str, Any]], Stage]


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """A stage of another package, or what is wrong with it. `before` is empty where it has no place."""

    name: str
    before: str
    stage: Stage | None
    problem: str = ""

    def around(self, inner: Handler) -> Handler:
        """The stage as one of ours."""
        return _Extended(inner, self)


class _Extended:
    __slots__ = ("_extension", "_inner")

    def __init__(self, inner: Handler, extension: Extension) -> None:
        self._inner = inner
        self._extension = extension

    async def __call__(self, call: Call) -> Answer:
        stage = self._extension.stage
        if stage is None:
            raise InternalError(
                f"The stage {self._extension.name!r} of this adapter cannot be used; the adapter's log says why."
            )
        answer: object = await stage.handle(call, self._inner)
        if not isinstance(answer, Answer):
            raise TypeError(f"the stage {self._extension.name!r} gave {type(answer).__name__} instead of an Answer")
        return answer


def load(wanted: Sequence[StageConfig], places: Sequence[str]) -> tuple[Extension, ...]:
    """The stages in the order in which they are asked for. Runs code of other packages and never raises."""
    if not wanted:
        return ()
    from importlib import metadata  # two megabytes that only an adapter with such stages pays

    entry_points = {point.name: point for point in metadata.entry_points(group=GROUP)}
    found: list[Extension] = []
    for config in wanted:
        point = entry_points.get(config.name)
        if point is None:
            known = ", ".join(sorted(entry_points)) or "none"
            problem = f"no installed package has a stage {config.name!r} ({GROUP}); there are: {known}"
            found.append(Extension(name=config.name, before="", stage=None, problem=problem))
            continue
        try:
            factory: Factory = point.load()
            stage = factory(config.config)
            if stage.before not in places:
                raise ValueError(f"it stands before {stage.before!r}; there are {', '.join(places)}")
        except Exception as error:  # noqa: BLE001 - whatever the package does wrong is told, and closes the way
            problem = f"the stage {config.name!r} cannot be made: {type(error).__name__}: {error}"
            found.append(Extension(name=config.name, before="", stage=None, problem=problem))
        else:
            found.append(Extension(name=config.name, before=stage.before, stage=stage))
    return tuple(found)
