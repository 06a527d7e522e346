"""How are tools of MCP servers listed, approved and called? Needs the extra `mcp`.

`runner` implements the contract of `tools.base`. The library is imported only by `bridge`,
`stdio` and `connection`, which `loading` imports in a thread when they are first needed.
"""
