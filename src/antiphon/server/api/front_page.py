"""What the gateway answers at its root: a short page for a person, the same facts for a program."""

from __future__ import annotations

from typing import Final

from antiphon.version import __version__

__all__ = ["front_facts", "front_page"]

_PLACES: Final = {
    "responses": "/v1/responses",
    "conversations": "/v1/conversations",
    "models": "/v1/models",
    "openapi": "/openapi.json",
    "health": "/healthz",
    "readiness": "/readyz",
    "version": "/version",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>antiphon</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}
code, pre {{ background: #eee; padding: .1em .3em }}
pre {{ padding: 1em; overflow-x: auto }}
</style>
</head>
<body>
<h1>antiphon {version}</h1>
<p>The Responses gateway that never lies: any model behind the whole Responses API.</p>
<p>Point a client at <code>/v1</code> on this host, for example:</p>
<pre>curl -X POST <span id="root">http://127.0.0.1:4680</span>/v1/responses \\
  -H 'Content-Type: application/json' \\
  -d '{{"input": "Say hello."}}'</pre>
<ul>
<li><a href="/v1/models">Models</a></li>
<li><a href="/openapi.json">Description of the API (OpenAPI)</a></li>
<li><a href="/healthz">Is it alive?</a> <a href="/readyz">Is it ready?</a></li>
</ul>
<p><code>antiphon connect</code> prints the settings of Codex, VS Code and other clients;
<code>antiphon chat</code> starts a chat in the terminal.</p>
<script>document.getElementById("root").textContent = location.origin</script>
</body>
</html>
"""


def front_facts() -> dict[str, object]:
    """Return what this is, and where things are."""
    return {"name": "antiphon", "version": __version__, "paths": _PLACES}


def front_page() -> str:
    """Return the page for a browser."""
    return _PAGE.format(version=__version__)
