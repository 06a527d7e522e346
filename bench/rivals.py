"""Who is measured, and how each of them is started in front of the same upstream.

A target is found or it is not: programs are looked for on the PATH and in the directory of
peers, and who is missing says how to install it. Nobody is tuned, neither are we: each runs as
its manual says for one worker, with its telemetry off. nginx and the direct road pass chat
completions on as they are; the others speak the Responses API and translate, but for those in
front of a native upstream: `agentic` and `antiphon-native` ask it in the Responses API.
"""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from processes import HERE
from stamped import MODELS
from toolbox import make_tool

__all__ = ["DOORS", "TARGETS", "Launch", "Missing", "Place", "Target", "antiphon", "prepare"]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_CHAT: Final = "/v1/chat/completions"
DOORS: Final[Mapping[str, str]] = MappingProxyType({"chat": _CHAT, "messages": "/v1/messages"})
"""The paths of further APIs, for those who answer them beside Responses."""


class Launch(NamedTuple):
    """How to start one target."""

    command: list[str]
    environment: Mapping[str, str] = _NOTHING
    headers: Mapping[str, str] = _NOTHING


class Missing(Exception):
    """A target is not installed; the message says how to get it."""


class Place(NamedTuple):
    """Where a target is started."""

    peers: Path | None
    directory: Path
    port: int
    upstream: int


class Target(NamedTuple):
    """One road from the reader to the model."""

    name: str
    prepare: Callable[[Place], Launch] | None
    """None for the direct road, which has no server of its own."""
    path: str = "/v1/responses"
    prefix: str = ""
    """What it puts before the names of the upstream's models."""
    workers: int = 1
    is_ours: bool = False
    is_stream_only: bool = False
    has_doors: bool = False
    """Whether it answers the further APIs too."""
    store: bool | None = None
    """What its requests say about storing; None says nothing."""
    tools: int = 0
    """How many tools its requests offer, as an agent's do."""
    is_socket: bool = False
    """Whether it is asked over WebSockets."""

    def through(self, door: str, *, store: bool | None = None) -> Target:
        """Return the same target, asked in another language."""
        return self._replace(path=DOORS[door], is_ours=False, store=store)

    def body(self, model: str, *, is_stream: bool) -> dict[str, object]:
        """Return a request for that model of the upstream, in the language of this target."""
        body = self._asked(self.prefix + model)
        body |= {"type": "response.create"} if self.is_socket else {"stream": is_stream}
        if self.store is not None:
            body["store"] = self.store
        if self.tools:
            body["tools"] = [self._offer(make_tool(number)) for number in range(self.tools)]
        return body

    def _asked(self, model: str) -> dict[str, object]:
        prompt = "Tell me of the lighthouse and its keeper."
        body: dict[str, object] = {"model": model}
        if self.path.endswith("/responses"):
            parts = [{"type": "input_text", "text": prompt}]
            said = [{"type": "message", "role": "user", "content": parts}]
            return body | {"instructions": "You are brief.", "input": said}
        if self.path.endswith("/messages"):
            said = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
            return body | {"system": "You are brief.", "max_tokens": 1000, "messages": said}
        system = {"role": "system", "content": "You are brief."}
        return body | {"messages": [system, {"role": "user", "content": prompt}]}

    def _offer(self, tool: dict[str, object]) -> dict[str, object]:
        """Return a function of Responses as the API of this target writes it."""
        if self.path.endswith("/responses"):
            return tool
        named = {key: tool[key] for key in ("name", "description")}
        if self.path.endswith("/messages"):
            return named | {"input_schema": tool["parameters"]}
        function = named | {"parameters": tool["parameters"], "strict": tool["strict"]}
        return {"type": "function", "function": function}


def antiphon(
    workers: int, source: Path = HERE.parent / "src", *, wire: str = "chat"
) -> Callable[[Place], Launch]:
    """Return how to start a gateway of ours, from this source tree. `wire` asks the upstream."""

    def prepare(place: Place) -> Launch:
        url = f"http://127.0.0.1:{place.upstream}/v1"
        settings = place.directory / "antiphon.toml"
        settings.write_text(f'[providers.bench]\nwire_api = "{wire}"\nbase_url = "{url}"\n')
        flags = {
            "--port": place.port,
            "--store": f"sqlite:{place.directory / 'antiphon.db'}",
            "--config": settings,
            "--workers": workers,
            "--log-level": "warning",
        }
        words = [str(word) for pair in flags.items() for word in pair]
        return Launch(
            [sys.executable, "-m", "antiphon", "serve", *words], {"PYTHONPATH": str(source)}
        )

    return prepare


def _nginx(place: Place) -> Launch:
    program, environment = shutil.which("nginx"), {}
    if place.peers is not None and (root := place.peers / "debs" / "root").is_dir():
        program = shutil.which("nginx", path=str(root / "usr" / "sbin")) or program
        environment = {"LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}
    if program is None:
        raise Missing("apt-get install nginx")
    temporary = "".join(
        f"{kind}_temp_path {place.directory / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    settings = place.directory / "nginx.conf"
    settings.write_text(
        f"""daemon off;
worker_processes 1;
pid {place.directory / "nginx.pid"};
error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    {temporary}
    client_max_body_size 64m;
    client_body_buffer_size 64m;
    keepalive_requests 1000000000;
    upstream model {{
        server 127.0.0.1:{place.upstream};
        keepalive 2048;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{place.port} backlog=4096;
        location / {{
            proxy_pass http://model;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""
    )
    words = ["-c", str(settings), "-p", str(place.directory), "-e", "stderr"]
    return Launch([program, *words], environment)


def _program(place: Place, environment: str, name: str, how: str) -> str:
    path = None if place.peers is None else place.peers / environment / "bin" / name
    if path is None or not path.exists():
        raise Missing(
            f"python -m venv DIR/{environment} && DIR/{environment}/bin/pip install {how}"
        )
    return str(path)


def _litellm(place: Place) -> Launch:
    program = _program(place, "venv-litellm", "litellm", "'litellm[proxy]'")
    key = "sk-" + secrets.token_hex(32)  # it does not start without one
    models = "".join(
        f"""
  - model_name: {model}
    litellm_params:
      model: custom_openai/{model}
      api_base: http://127.0.0.1:{place.upstream}/v1
      api_key: none"""
        for model in MODELS
    )
    settings = place.directory / "litellm.yaml"
    settings.write_text(
        f"model_list:{models}\n"
        "litellm_settings:\n  num_retries: 0\n  request_timeout: 120\n  telemetry: false\n"
    )
    flags = {"--config": settings, "--host": "127.0.0.1", "--port": place.port, "--num_workers": 1}
    environment = {
        "LITELLM_MASTER_KEY": key,
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
    }
    words = [str(word) for pair in flags.items() for word in pair]
    return Launch([program, *words], environment, {"Authorization": f"Bearer {key}"})


def _ogx(place: Place) -> Launch:
    program = _program(place, "venv-ogx", "ogx", "ogx  (Python 3.12)")
    home = place.directory
    queue = "max_write_queue_size: 10000, num_writers: 4"
    settings = home / "ogx.yaml"
    settings.write_text(
        f"""version: 2
distro_name: bench
apis: [inference, responses, tool_runtime, files, vector_io]
providers:
  inference:
  - provider_id: vllm
    provider_type: remote::vllm
    config: {{base_url: "http://127.0.0.1:{place.upstream}/v1", api_token: none}}
  files:
  - provider_id: files
    provider_type: inline::localfs
    config:
      storage_dir: {home / "files"}
      metadata_store: {{table_name: files_metadata, backend: sql}}
  tool_runtime:
  - {{provider_id: mcp, provider_type: "remote::model-context-protocol"}}
  vector_io: []
  responses:
  - provider_id: builtin
    provider_type: inline::builtin
    config: {{persistence: {{responses: {{table_name: responses, backend: sql, {queue}}}}}}}
storage:
  backends:
    kv: {{type: kv_sqlite, db_path: {home / "kv.db"}}}
    sql: {{type: sql_sqlite, db_path: {home / "sql.db"}}}
  stores:
    metadata: {{namespace: registry, backend: kv}}
    inference: {{table_name: inference, backend: sql, {queue}, enabled: true}}
    conversations: {{table_name: conversations, backend: sql}}
    prompts: {{table_name: prompts, backend: sql}}
    connectors: {{table_name: connectors, backend: sql}}
registered_resources: {{models: []}}
server: {{port: {place.port}, host: 127.0.0.1}}
"""
    )
    # Plain HTTP, which is what everybody here speaks on loopback, has to be asked for.
    return Launch([program, "run", str(settings), "--port", str(place.port), "--insecure"])


def _open_responses_server(place: Place) -> Launch:
    program = _program(place, "venv-ors", "python", "open-responses-server")
    # Its own command starts it with a watcher that reloads the code.
    code = (
        "import uvicorn; from open_responses_server.api_controller import app;"
        f" uvicorn.run(app, host='127.0.0.1', port={place.port}, log_level='warning')"
    )
    environment = {
        "OPENAI_BASE_URL_INTERNAL": f"http://127.0.0.1:{place.upstream}",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{place.port}",
        "API_ADAPTER_HOST": "127.0.0.1",
        "API_ADAPTER_PORT": str(place.port),
        "OPENAI_API_KEY": "none",
        "LOG_LEVEL": "ERROR",
    }
    return Launch([program, "-c", code], environment)


def _agentic(place: Place) -> Launch:
    program = _program(place, "venv-agentic", "agentic-server", "agentic-api")
    flags = {
        "--llm-api-base": f"http://127.0.0.1:{place.upstream}",
        "--gateway-host": "127.0.0.1",
        "--gateway-port": place.port,
        "--db-url": f"sqlite://{place.directory / 'agentic.db'}?mode=rwc",
    }
    words = [str(word) for pair in flags.items() for word in pair]
    return Launch([program, *words], {"HOME": str(place.directory), "RUST_LOG": "error"})


TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        Target("direct", None, path=_CHAT),
        Target("nginx", _nginx, path=_CHAT),
        Target("antiphon", antiphon(1), is_ours=True, has_doors=True, store=True),
        Target("antiphon-2", antiphon(2), is_ours=True, workers=2, has_doors=True, store=True),
        Target("litellm", _litellm, has_doors=True),
        Target("ogx", _ogx, prefix="vllm/"),
        Target("antiphon-native", antiphon(1, wire="responses"), is_ours=True, store=True),
        Target("agentic", _agentic),
        Target("ors", _open_responses_server, path="/responses", is_stream_only=True),
    )
}


def prepare(
    target: Target, *, peers: Path | None, directory: Path, port: int, upstream: int
) -> Launch:
    """Return how to start a target; its settings are written to `directory`. Raise Missing."""
    assert target.prepare is not None
    return target.prepare(Place(peers, directory, port, upstream))
