"""OpenAI-compatible servers: which models they list, and the tools that follow from it.

Owns the reading of `GET /v1/models` and the schemas of `chat`, `complete` and `embed`. Pure. What stands in a model list is
not trusted: ids are taken as they are or not at all, since the server wants them back to the letter.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from modelservice_api.adapter_config import OpenAIConfig
from modelservice_sidecar.core import text
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.errors import DescribeError
from modelservice_sidecar.core.schema import Schema
from modelservice_sidecar.core.tensors import LARGE_TENSOR

Task = Literal["chat", "complete", "embed"]

PATHS: Final[dict[Task, str]] = {
    "chat": "/v1/chat/completions",
    "complete": "/v1/completions",
    "embed": "/v1/embeddings",
}
MODELS_PATH: Final = "/v1/models"

MAX_MODELS: Final = 256
"""More in one enumeration help no model that reads it."""
MAX_ID: Final = 256
MAX_OUTPUT_TOKENS: Final = 1_048_576
"""The bound of `max_tokens` where the server does not say how long its context is."""
MAX_MESSAGES: Final = 1024
MAX_INPUTS: Final = 2048
MAX_STOPS: Final = 4
"""These two are OpenAI's own bounds, which compatible servers keep or exceed."""
_MAX_EXACT: Final = 2**53 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One entry of the model list. `context` is its longest context in tokens, 0 where the server does not say."""

    id: str
    context: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelList:
    """The models that can be offered, in the server's order. `listed` counts the entries; notes say what was left out."""

    models: tuple[Model, ...]
    listed: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """How a tool is called: the binding of its `ToolSpec`."""

    task: Task
    path: str
    default_model: str


def read_models(document: object) -> ModelList:
    """The model list.

    Raises:
        DescribeError: this is no OpenAI model list; the text says what is missing.
    """
    data = document.get("data") if isinstance(document, dict) else None
    if data is None and isinstance(document, dict) and document.get("object") == "list":
        data = []  # Ollama writes null where it has no models
    if not isinstance(data, list):
        raise DescribeError("NotRecognised", f"{MODELS_PATH} answers JSON that is no model list.")
    entries = [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    # Other APIs, too, have lists with ids below such a path; OpenAI's say what they are.
    named = isinstance(document, dict) and document.get("object") == "list"
    if len(entries) < len(data) or not (named or (entries and all(e.get("object") == "model" for e in entries))):
        raise DescribeError("NotRecognised", f"{MODELS_PATH} answers a list of something else than models.")
    models: dict[str, Model] = {}
    notes: list[str] = []
    for entry in entries:
        identity = entry["id"]
        if not identity or text.clean(identity, MAX_ID) != identity:
            notes.append(f"The model {text.clean(identity, 64)!r} is left out: its id holds what cannot be shown.")
        elif len(models) == MAX_MODELS:
            notes.append(f"{MODELS_PATH} lists {len(entries)} models and the first {MAX_MODELS} are offered.")
            break
        else:
            models.setdefault(identity, Model(id=identity, context=_context(entry)))
    return ModelList(models=tuple(models.values()), listed=len(entries), notes=tuple(notes))


def choose(found: ModelList, config: OpenAIConfig) -> ModelList:
    """The models that the configuration wants; names that the server does not list are noted."""
    if not config.models:
        if found.models:
            return found
        return ModelList(models=(), listed=found.listed, notes=(*found.notes, f"{MODELS_PATH} lists no model."))
    known = {model.id for model in found.models}
    missing = [name for name in config.models if name not in known]
    notes = [f"openAI.models names {text.clean(name, 64)!r}, which the model server does not list." for name in missing]
    wanted = tuple(model for model in found.models if model.id in config.models)
    return ModelList(models=wanted, listed=found.listed, notes=(*found.notes, *notes))


def tools(models: Sequence[Model], offered: Collection[Task]) -> tuple[ToolSpec, ...]:
    """One tool for each task that the server offers; none where no model is left to ask."""
    if not models:
        return ()
    return tuple(_tool(task, models) for task in PATHS if task in offered)


def _tool(task: Task, models: Sequence[Model]) -> ToolSpec:
    properties, required = _INPUTS[task](models)
    model: Schema = {"type": "string", "enum": [model.id for model in models], "description": "Which model answers."}
    if len(models) == 1:
        model["default"] = models[0].id
    else:
        required = [*required, "model"]
    properties["model"] = model
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return ToolSpec(
        name=task,
        operation_id=task,
        description=_DESCRIPTIONS[task],
        input_schema=schema,
        output_schema=_EMBEDDED if task == "embed" else _GENERATED,
        annotations={"readOnlyHint": True},
        binding=Endpoint(task=task, path=PATHS[task], default_model=models[0].id),
    )


def _chat(models: Sequence[Model]) -> tuple[Schema, list[str]]:
    message: Schema = {
        "type": "object",
        "properties": {
            "role": {"type": "string", "enum": ["system", "user", "assistant"]},
            "content": {"type": "string"},
        },
        "required": ["role", "content"],
        "additionalProperties": False,
    }
    properties: Schema = {
        "messages": {
            "type": "array",
            "items": message,
            "minItems": 1,
            "maxItems": MAX_MESSAGES,
            "description": "The conversation so far, oldest first. Give either this or prompt.",
        },
        "prompt": {
            "type": "string",
            "minLength": 1,
            "description": "What the user says, where there is no conversation before it.",
        },
        "system": {"type": "string", "description": "Instructions to the model; only beside prompt."},
        **_sampling(models),
        "response_format": _RESPONSE_FORMAT,
    }
    return properties, []


def _complete(models: Sequence[Model]) -> tuple[Schema, list[str]]:
    prompt: Schema = {"type": "string", "minLength": 1, "description": "The text that the model continues."}
    return {"prompt": prompt, **_sampling(models)}, ["prompt"]


def _embed(_models: Sequence[Model]) -> tuple[Schema, list[str]]:
    one: Schema = {"type": "string", "minLength": 1}
    many: Schema = {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_INPUTS}
    return {"input": {"anyOf": [one, many], "description": "One text, or several: a vector for each."}}, ["input"]


def _sampling(models: Sequence[Model]) -> Schema:
    contexts = [model.context for model in models]
    longest = max(contexts) if all(contexts) else MAX_OUTPUT_TOKENS
    return {
        "max_tokens": {
            "type": "integer",
            "minimum": 1,
            "maximum": longest,
            "description": "The most tokens that the model may write.",
        },
        "temperature": {
            "type": "number",
            "minimum": 0,
            "maximum": 2,
            "description": "How freely it chooses; 0 takes the likeliest token.",
        },
        "top_p": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "Only the likeliest tokens of this probability are chosen from.",
        },
        "stop": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": MAX_STOPS,
            "description": "Texts at which the model stops writing.",
        },
        "seed": {
            "type": "integer",
            "minimum": 0,
            "maximum": _MAX_EXACT,
            "description": "The same seed asks for the same answer, as far as the model server can.",
        },
    }


def _context(entry: dict[str, Any]) -> int:
    """The longest context: vLLM and SGLang say `max_model_len`; others say nothing that is comparable."""
    value = entry.get("max_model_len")
    return value if type(value) is int and 0 < value <= MAX_OUTPUT_TOKENS else 0


_DESCRIPTIONS: Final[dict[Task, str]] = {
    "chat": "Ask a language model: give it a prompt or a whole conversation, and it answers with text.",
    "complete": "Let a language model continue a text.",
    "embed": "Turn texts into embedding vectors, one for each text.",
}

_RESPONSE_FORMAT: Final[Schema] = {
    "type": "object",
    "description": "Makes the answer JSON: any object, or one that fits a JSON Schema.",
    "properties": {
        "type": {"type": "string", "enum": ["text", "json_object", "json_schema"]},
        "json_schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                "description": {"type": "string"},
                "schema": {"type": "object"},
                "strict": {"type": "boolean"},
            },
            "required": ["name", "schema"],
            "additionalProperties": False,
        },
    },
    "required": ["type"],
    "additionalProperties": False,
}

_USAGE: Final[Schema] = {
    "type": "object",
    "description": "Tokens that were read and written, as the model server counts them.",
    "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
    },
}

_GENERATED: Final[Schema] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "finish_reason": {"type": "string", "description": "stop: it was done; length: max_tokens was reached."},
        "model": {"type": "string"},
        "usage": _USAGE,
    },
    "required": ["text"],
}

_EMBEDDED: Final[Schema] = {
    "type": "object",
    "properties": {
        "vectors": {
            "description": "A vector for each text, in the order given.",
            "anyOf": [
                {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                {"$ref": "#/$defs/LargeTensor"},
            ],
        },
        "dimensions": {"type": "integer"},
        "model": {"type": "string"},
        "usage": _USAGE,
    },
    "required": ["vectors", "dimensions"],
    "$defs": {"LargeTensor": LARGE_TENSOR},
}

_INPUTS: Final = {"chat": _chat, "complete": _complete, "embed": _embed}
