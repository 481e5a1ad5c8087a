"""Decisions of the operator, as functions of values.

Nothing here reads a clock, opens a socket or writes a log: time, identities and what the cluster holds come in as
arguments, what to write comes out as a plan. import-linter holds this border (`pyproject.toml`).
"""
