"""An old document for tests: Swagger 2.0 with everything that differs from OpenAPI 3, and one operation that is broken."""

from typing import Any

SWAGGER: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "old", "version": "1"},
    "host": "elsewhere.example:9",
    "basePath": "/api/v1/",
    "schemes": ["https"],
    "consumes": ["application/json"],
    "produces": ["application/json"],
    "parameters": {"limit": {"name": "limit", "in": "query", "type": "integer", "minimum": 0, "exclusiveMinimum": True}},
    "responses": {"Node": {"description": "ok", "schema": {"$ref": "#/definitions/Node"}}},
    "definitions": {
        "Node": {
            "type": "object",
            "required": ["value"],
            "properties": {
                "value": {"type": "number"},
                "label": {"type": "string", "x-nullable": True},
                "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}},
            },
        }
    },
    "paths": {
        "/tree/{id}": {
            "parameters": [{"name": "id", "in": "path", "type": "string", "required": True}],
            "post": {
                "operationId": "tree",
                "parameters": [
                    {"$ref": "#/parameters/limit"},
                    {"name": "node", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Node"}},
                ],
                "responses": {"200": {"$ref": "#/responses/Node"}},
            },
        },
        "/lists": {
            "get": {
                "operationId": "lists",
                "parameters": [
                    {"name": name, "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": name}
                    for name in ("csv", "ssv", "tsv", "pipes", "multi")
                ]
                + [{"name": "plain", "in": "query", "type": "array", "items": {"type": "string"}}]
                + [{"name": "X-H", "in": "header", "type": "array", "items": {"type": "string"}, "collectionFormat": "ssv"}],
                "responses": {"200": {"description": "ok"}},
            }
        },
        "/form": {
            "post": {
                "operationId": "form",
                "parameters": [
                    {"name": "text", "in": "formData", "type": "string", "required": True, "description": "What."},
                    {"name": "tags", "in": "formData", "type": "array", "items": {"type": "string"}},
                    {"name": "more", "in": "formData", "type": "array", "items": {"type": "string"},
                     "collectionFormat": "multi"},
                ],
            }
        },
        "/upload": {
            "post": {
                "operationId": "upload",
                "consumes": ["multipart/form-data"],
                "parameters": [
                    {"name": "file", "in": "formData", "type": "file", "required": True},
                    {"name": "note", "in": "formData", "type": "string"},
                ],
            }
        },
        "/picture": {
            "get": {
                "operationId": "picture",
                "produces": ["image/png"],
                "responses": {"200": {"description": "ok", "schema": {"type": "file"}}},
            }
        },
        "/xml": {
            "post": {
                "operationId": "xml",
                "consumes": ["application/xml"],
                "parameters": [{"name": "doc", "in": "body", "required": True, "schema": {"type": "object"}}],
            }
        },
        "/bad": {"post": {"operationId": "bad", "parameters": [{"in": "body"}, {"$ref": "#/parameters/none"}]}},
    },
}  # fmt: skip
