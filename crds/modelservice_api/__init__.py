"""The API of modelservice: the types users write, the documents its parts exchange, and the names they agree on.

Owns the `ModelService` types and the CRD generated from them, the conditions and reasons users read, the adapter's
config document and report, and every well-known label, annotation and name. Needs pydantic and nothing else; it imports
neither the operator nor the adapter, so either can be installed alone.
"""
