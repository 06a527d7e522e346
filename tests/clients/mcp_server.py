"""A tiny MCP server on stdin and stdout, for clients that bring tools of their own.

    python mcp_server.py LOG [COUNT]

It offers `add`, and further tools up to COUNT in all; each call is written to LOG as one line of
JSON. It needs nothing but Python, so that a client can start it anywhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]

Json = dict[str, Any]

_ADD: Json = {
    "name": "add",
    "description": "Adds two whole numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def main(arguments: list[str]) -> None:
    """Serve until stdin ends."""
    log, count = Path(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            answer = {"jsonrpc": "2.0", "id": request["id"], **_answer(request, log, count)}
            print(json.dumps(answer), flush=True)


def _answer(request: Json, log: Path, count: int) -> Json:
    match request["method"]:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": request["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "desk", "version": "1"},
                }
            }
        case "tools/list":
            return {"result": {"tools": [_ADD, *map(_other, range(1, count))]}}
        case "tools/call":
            return {"result": _call(request["params"], log)}
        case "ping":
            return {"result": {}}
        case method:
            return {"error": {"code": -32601, "message": f"there is no {method}"}}


def _other(number: int) -> Json:
    return {
        "name": f"drawer_{number}",
        "description": f"Opens drawer number {number} of the desk and says what is in it.",
        "inputSchema": {"type": "object", "properties": {}},
    }


def _call(params: Json, log: Path) -> Json:
    given = params.get("arguments") or {}
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": params["name"], "arguments": given}) + "\n")
    text = str(given["a"] + given["b"]) if params["name"] == "add" else "a pencil"
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    main(sys.argv[1:])
