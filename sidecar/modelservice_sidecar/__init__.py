"""The adapter: stands beside a model server, speaks MCP to the outside and the server's own protocol on loopback.

`core` decides on plain values; everything beside it does the I/O. Never imports the operator, the MCP SDK, a web framework or
an HTTP client library (import-linter holds it).
"""
