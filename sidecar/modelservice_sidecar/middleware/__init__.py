"""Layers of the MCP port, pure ASGI, one file each. They see bytes and headers and know nothing of tools."""
