"""Settings: who wins, what is refused, and that the reference tells all of them."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from antiphon.gateway.checks import check_issuers
from antiphon.gateway.config import SCALARS, TABLES, ModelOverrides, Settings, load, variable
from antiphon.gateway.endpoints import read_endpoints
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.providers import read_sources
from antiphon.server.issuers import IssuerSettings
from antiphon.server.limits import ServerLimits
from antiphon.tools.mcp.settings import McpServer
from antiphon.transport.http import Limits

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"
_WHOLE_FILE = _REFERENCE.with_name("antiphon.toml")


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "antiphon.toml"
    path.write_text(text)
    return path


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    _file(tmp_path, 'port = 1\nhost = "file"\nstore = "file"\ndialect = "open-responses"')
    environ = {"ANTIPHON_PORT": "2", "ANTIPHON_HOST": "environment"}
    settings = load({"port": 3, "host": None}, environ, tmp_path).settings
    assert (settings.port, settings.host, settings.store) == (3, "environment", "file")
    assert settings.dialect == "open-responses"


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings, path = load({}, {}, tmp_path)
    assert path is None
    assert settings == Settings()
    assert (settings.host, settings.port, settings.store) == ("127.0.0.1", 4680, None)


def test_a_flag_that_says_no_wins_over_a_file_that_says_yes(tmp_path: Path) -> None:
    _file(tmp_path, "strict = true")
    assert load({}, {}, tmp_path).settings.strict is True
    assert load({"strict": False}, {}, tmp_path).settings.strict is False


def test_the_named_file_wins_over_the_one_that_lies_around(tmp_path: Path) -> None:
    _file(tmp_path, "port = 1")
    named, other = tmp_path / "named.toml", tmp_path / "other.toml"
    named.write_text("port = 2")
    other.write_text("port = 3")
    environ = {"ANTIPHON_CONFIG": str(other)}
    assert load({}, environ, tmp_path).settings.port == 3
    assert load({"config": str(named)}, environ, tmp_path) == (Settings(port=2), named)


def test_tables_become_limits_and_providers(tmp_path: Path) -> None:
    _file(
        tmp_path,
        "[limits]\nturns = 7\n[upstream_limits]\nidle = 1\n"
        '[providers.a]\nbase_url = "http://x/v1"\nkey_env = "A_KEY"\nprofile = "vllm"\n'
        '[providers.b]\nwire_api = "local"\nthreads = 1\ncontext = 2048\npath = "x.gguf"\n',
    )
    settings = load({}, {}, tmp_path).settings
    assert settings.limits == ServerLimits(turns=7)
    assert settings.upstream_limits.idle == 1.0
    assert settings.upstream_limits.connect == Limits().connect
    assert list(settings.providers) == ["a", "b"]
    assert settings.providers["b"].threads == 1
    assert settings.providers["a"].key_env == "A_KEY"


def test_the_old_name_of_a_providers_key_variable_is_accepted(tmp_path: Path) -> None:
    _file(tmp_path, '[providers.a]\nbase_url = "http://x/v1"\nenv_key = "A_KEY"\n')
    assert load({}, {}, tmp_path).settings.providers["a"].key_env == "A_KEY"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1", "there is no key 'prot'; did you mean port? the keys are host, port,"),
        ("[doors]\nchats = true", "[doors]: there is no key 'chats'; did you mean chat?"),
        ("[doors]\nchat = 1", "[doors]: chat must be true or false, not 1"),
        ("[limits]\nturn = 1", "[limits]: there is no key 'turn'; did you mean turns?"),
        ("[upstream_limits]\nx = 1", "[upstream_limits]: there is no key 'x'; the keys are con"),
        ("[providers.a]\nbaseurl = 'x'", "[providers.a]: there is no key 'baseurl'; did you mean"),
        (
            "[providers.a]\nwire_api = 'x'",
            "wire_api must be one of chat, responses, messages, gemini",
        ),
        ("[providers.a]\nauth = 'x'", "[providers.a]: auth must be a table"),
        ("[providers.a]\nauth = {}", "[providers.a]: auth: command is missing"),
        ("[providers.a.auth]\ncommand = []", "auth: command must be a list of words, not []"),
        (
            "[providers.a.auth]\ncommand = ['x']\nrefresh_seconds = 0",
            "auth: refresh_seconds must be a number > 0.0, not 0",
        ),
        ("[providers.a.auth]\ncommands = ['x']", "auth: there is no key 'commands'; did you mean"),
        ("port = 'x'", "port must be a whole number, not 'x'"),
        ("port = 70000", "port must be a whole number <= 65535, not 70000"),
        ("workers = 0", "workers must be a whole number >= 1, not 0"),
        ("strict = 'yes'", "strict must be true or false, not 'yes'"),
        ("dialect = 'latin'", "dialect must be one of openai, open-responses, not 'latin'"),
        ("store = 1", "store must be text, not 1"),
        ("allowed_origins = 'x'", "allowed_origins must be a list of words, not 'x'"),
        ("[limits]\nturns = 0", "[limits]: turns must be above 0, not 0"),
        ("[upstream_limits]\nidle = nan", "idle must be above 0, not nan"),
        (
            "[providers.a]\nkey_env = 'A'\nenv_key = 'A'",
            "[providers.a]: env_key is the old name of key_env; set only key_env",
        ),
        ("[providers]\na = 1", "[providers.a] must be a table"),
        ("limits = 1", "[limits] must be a table"),
        ("providers = 1", "[providers] must be a table"),
        ("models = 1", "[models] must be a table"),
        ("[models]\nx = 1", '[models."x"] must be a table'),
        (
            "[models.'a/b:7b']\nctx = 1",
            """[models."a/b:7b"]: there is no key 'ctx'; the keys are""",
        ),
        ("[models.m]\ncontext_len = 1", "did you mean context_length?"),
        ("[models.m]\ncontext_length = 0", "context_length must be a whole number >= 1, not 0"),
        ("[models.m]\ncontext_length = '8k'", "context_length must be a whole number, not '8k'"),
        ("[models.m]\nmodalities = ['pictures']", "must be a list of text, image, audio, video, f"),
        ("[models.m]\nreasoning_levels = 'low'", "reasoning_levels must be a list of words, not"),
        ("[models.m]\nsupports_tools = 'no'", "supports_tools must be true or false, not 'no'"),
        ("port =", "is not TOML"),
        ("webhooks = 1", "[[webhooks]] must be tables, each with its own heading"),
        ("[webhooks]\nurl = 'x'", "[[webhooks]] must be tables, each with its own heading"),
        ("webhooks = [1]", "[[webhooks]] must be tables, each with its own heading"),
        (
            "[routes.a]\ndeployments = ['b/m']",
            'deployments must be tables, { provider = "…", model = "…" }',
        ),
        ("[[webhooks]]\nurl = 'x'", "[[webhooks]]: secret_env is missing"),
        ("[[webhooks]]\nsecret = 'x'", "there is no key 'secret'; did you mean secret_env?"),
        ("[[webhooks]]\nevents = ['x']", "events must be a list of response.completed, respons"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(tmp_path: Path, text: str, complaint: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(BadSettings) as caught:
        load({}, {}, tmp_path)
    assert caught.value.message.startswith(str(path))
    assert complaint in caught.value.message
    assert "\n" not in caught.value.message


def test_models_are_told_of_by_name(tmp_path: Path) -> None:
    _file(
        tmp_path,
        '[models."qwen3:8b"]\ncontext_length = 40960\nmodalities = ["text", "image"]\n'
        '[models."up/m"]\nreasoning_levels = []\nsupports_tools = false\ndisplay_name = "M"\n',
    )
    models = load({}, {}, tmp_path).settings.models
    assert models["qwen3:8b"] == ModelOverrides(context_length=40960, modalities=("text", "image"))
    assert models["up/m"] == ModelOverrides(
        reasoning_levels=(), supports_tools=False, display_name="M"
    )


def test_webhooks_come_one_after_the_other(tmp_path: Path) -> None:
    first = '[[webhooks]]\nurl = "https://a.example/"\nsecret_env = "A"\n'
    _file(tmp_path, f'{first}{first}events = ["response.failed"]\nallow_private = true')
    one, two = load({}, {}, tmp_path).settings.webhooks
    assert (len(one.events), one.allow_private) == (5, False)
    assert (two.events, two.allow_private) == (("response.failed",), True)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read: no such file"):
        load({"config": str(tmp_path / "gone.toml")}, {}, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("ANTIPHON_PORT", "x", "ANTIPHON_PORT must be a whole number, not 'x'"),
        ("ANTIPHON_STRICT", "perhaps", "ANTIPHON_STRICT must be true or false, not 'perhaps'"),
        ("ANTIPHON_LOG_LEVEL", "loud", "ANTIPHON_LOG_LEVEL must be one of debug, info,"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    with pytest.raises(BadSettings, match=re.escape(complaint)):
        load({}, {name: text}, tmp_path)


def test_an_empty_variable_sets_nothing(tmp_path: Path) -> None:
    assert load({}, {"ANTIPHON_PORT": ""}, tmp_path).settings == Settings()


def test_the_reference_lists_exactly_the_keys_there_are() -> None:
    text = _REFERENCE.read_text()
    listed = {
        title: re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)
        for title, body in re.findall(
            r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
    }
    assert listed["Top level"] == list(SCALARS)
    assert listed["`[telemetry]`"] == list(TABLES["telemetry"].__struct_fields__)
    assert listed["`[limits]`"] == list(TABLES["limits"].__struct_fields__)
    assert listed["`[upstream_limits]`"] == list(TABLES["upstream_limits"].__struct_fields__)
    assert listed["`[providers.NAME]`"] == list(TABLES["providers"].__struct_fields__)
    assert listed["`[mcp]`"] == list(TABLES["mcp"].__struct_fields__)
    assert listed["`[mcp.servers.LABEL]`"] == list(McpServer.__struct_fields__)
    assert listed['`[models."NAME"]`'] == list(TABLES["models"].__struct_fields__)
    assert listed["`[web_search]`"] == list(TABLES["web_search"].__struct_fields__)
    assert listed["`[input_files]`"] == list(TABLES["input_files"].__struct_fields__)
    assert listed["`[documents]`"] == list(TABLES["documents"].__struct_fields__)
    assert listed["`[images]`"] == list(TABLES["images"].__struct_fields__)
    for name in ("code_interpreter", "shell", "containers"):
        assert listed[f"`[{name}]`"] == list(TABLES[name].__struct_fields__)
    assert listed["`[sandbox]`"] == list(TABLES["sandbox"].__struct_fields__)
    assert listed["`[[webhooks]]`"] == list(TABLES["webhooks"].__struct_fields__)


def test_a_list_is_written_with_commas_in_the_environment(tmp_path: Path) -> None:
    _file(tmp_path, 'allowed_origins = ["http://a.example"]')
    environ = {"ANTIPHON_ALLOWED_ORIGINS": "http://localhost:3000, https://b.example"}
    assert load({}, {}, tmp_path).settings.allowed_origins == ("http://a.example",)
    listed = load({}, environ, tmp_path).settings.allowed_origins
    assert listed == ("http://localhost:3000", "https://b.example")


@pytest.mark.parametrize("key", SCALARS)
def test_the_reference_names_the_variable_of_each_key(key: str) -> None:
    assert f"`{variable(key)}`" in _REFERENCE.read_text()


def test_the_mark_of_ids_is_set_and_checked(tmp_path: Path) -> None:
    assert load({}, {"ANTIPHON_ID_MARK": "eu-1"}, tmp_path).settings.id_mark == "eu-1"
    with pytest.raises(BadSettings, match="id_mark must be 1 to 8 letters, digits or hyphens"):
        load({}, {}, _file(tmp_path, 'id_mark = "two_words"').parent)


def test_variables_of_other_tools_set_nothing_by_themselves(tmp_path: Path) -> None:
    table = _REFERENCE.read_text().partition("## Names that other tools use")[2]
    elsewhere = set(re.findall(r"`([A-Z_]+)`", "".join(re.findall(r"^\|(.+?)\|", table, re.M))))
    assert {"OPENAI_API_KEY", "DATABASE_URL", "PORT", "HTTPS_PROXY"} <= elsewhere
    assert load({}, dict.fromkeys(elsewhere, "1"), tmp_path).settings == Settings()


def test_the_file_for_those_who_come_from_litellm_reaches_its_upstreams(tmp_path: Path) -> None:
    page = _REFERENCE.parents[1] / "howto" / "from-litellm.md"
    (text,) = re.findall(r"```toml\n(.+?)```", page.read_text(), re.S)
    (upstreams,) = re.findall(r"```yaml\n(.+?)```", page.read_text(), re.S)
    settings = load({"config": str(_file(tmp_path, text))}, {}, tmp_path).settings
    sources = read_sources(settings, {"VENDOR_KEY": "secret"})
    assert [source.name for source in sources] == ["house", "vendor"]
    reached = {provider["base_url"] for provider in tomllib.loads(text)["providers"].values()}
    assert reached == set(re.findall(r"api_base: (\S+)", upstreams))


def test_the_whole_file_of_the_reference_sets_the_defaults(tmp_path: Path) -> None:
    settings = load({"config": str(_WHOLE_FILE)}, {}, tmp_path).settings
    assert settings == Settings()
    assert set(tomllib.loads(_WHOLE_FILE.read_text())) >= {"host", "limits", "upstream_limits"}


def test_the_whole_file_of_the_reference_has_every_key_there_is() -> None:
    table = tomllib.loads(_uncommented())
    assert set(table) == {*SCALARS, *TABLES}
    found = {
        "auth": set(table["auth"]),
        "doors": set(table["doors"]),
        "telemetry": set(table["telemetry"]),
        "limits": set(table["limits"]),
        "upstream_limits": set(table["upstream_limits"]),
        "mcp": set(table["mcp"]),
        "providers": _keys_in(table["providers"]),
        "models": _keys_in(table["models"]),
        "routes": _keys_in(table["routes"]),
        "prompts": _keys_in(table["prompts"]),
        "tools": set(table["tools"]),
        "web_search": set(table["web_search"]),
        "file_search": set(table["file_search"]),
        "files": set(table["files"]),
        "images": set(table["images"]),
        "input_files": set(table["input_files"]),
        "documents": set(table["documents"]),
        "code_interpreter": set(table["code_interpreter"]),
        "shell": set(table["shell"]),
        "programs": set(table["programs"]),
        "containers": set(table["containers"]),
        "sandbox": set(table["sandbox"]),
        "webhooks": set(table["webhooks"][0]),
    }
    assert found == {name: set(struct.__struct_fields__) for name, struct in TABLES.items()}
    assert _keys_in(table["mcp"]["servers"]) == set(McpServer.__struct_fields__)
    assert set(table["auth"]["issuers"][0]) == set(IssuerSettings.__struct_fields__)


def test_a_file_with_every_key_set_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())  # the extra `local`
    monkeypatch.chdir(tmp_path)
    Path("model.gguf").touch()
    _file(tmp_path, _uncommented())
    keys = ("UPSTREAM_KEY", "VENDOR_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
    environ = {**dict.fromkeys(keys, "k"), "WEBHOOK_SECRET": f"whsec_{'A' * 32}"}
    settings = load({}, environ, tmp_path).settings
    names = [source.name for source in read_sources(settings, environ)]
    assert names == [
        "upstream",
        "local",
        "vendor",
        "expiring",
        "claude",
        "gemini",
        "editor",
        "small",
    ]
    assert len(read_endpoints(settings, environ)) == 1


def _uncommented() -> str:
    """Return the whole file with the settings that have no default."""
    return re.sub(r"^#(?=\S)", "", _WHOLE_FILE.read_text(), flags=re.MULTILINE)


def _keys_in(tables: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {key for table in tables.values() for key in table}


ISSUER = '[[auth.issuers]]\nissuer = "https://login.example.com/"\naudience = "a"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[auth]\nissuers = 'x'", "[[auth.issuers]] must be tables"),
        ('[[auth.issuers]]\nissuer = "https://x"', "[[auth.issuers]]: audience is missing"),
        (ISSUER + 'algorithms = ["HS256"]', "algorithms must be a list of RS256"),
        (ISSUER + 'algorithms = ["none"]', "algorithms must be a list of RS256"),
        (ISSUER + 'roles = { a = "root" }', "roles must be"),
        (ISSUER + 'secret = "x"', "there is no key 'secret'"),
    ],
)
def test_a_mistake_in_an_issuer_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    _file(tmp_path, text)
    with pytest.raises(BadSettings) as raised:
        load({}, {}, tmp_path)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ISSUER, "set project or project_claim"),
        (ISSUER + 'project = "a"\nproject_claim = "b"', "and not both"),
        (ISSUER.replace("https", "http") + 'project = "a"', "must be an https URL"),
        (ISSUER + 'project = "a"\njwks_url = "http://x"', "must be an https URL"),
        (ISSUER + 'project = "a"\nalgorithms = []', "must not be empty"),
    ],
)
def test_an_issuer_that_could_not_be_used_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    _file(tmp_path, text)
    settings = load({}, {}, tmp_path).settings
    with pytest.raises(BadSettings) as raised:
        check_issuers(settings)
    assert sentence in str(raised.value)


def test_an_issuer_in_a_private_network_may_be_reached_without_tls(tmp_path: Path) -> None:
    _file(tmp_path, ISSUER.replace("https", "http") + 'project = "a"\nallow_private = true')
    check_issuers(load({}, {}, tmp_path).settings)
