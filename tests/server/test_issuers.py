"""Tokens of identity providers: a real issuer on loopback, and every wrong kind of token."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.issuers import Issuers, IssuerSettings
from antiphon.server.jwks import KeySet, open_client
from antiphon.store.base import Project, ProjectChange
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, request
from tests.server.keyed import bearer, make_key

Json = dict[str, Any]
AUDIENCE = "antiphon"
_KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
_OTHER = rsa.generate_private_key(65537, 2048)


def public(algorithm: str, kid: str | None = None, **more: object) -> Json:
    """Return a key as an issuer lists it."""
    writer = jwt.get_algorithm_by_name(algorithm)
    key: Json = json.loads(writer.to_jwk(_KEYS[algorithm].public_key()))
    return key | ({} if kid is None else {"kid": kid}) | more


class Issuer:
    """An identity provider with a real socket. `keys` is what it lists."""

    def __init__(self) -> None:
        self.url = ""
        self.keys = [public("RS256", "r1"), public("ES256", "e1"), public("EdDSA", "d1")]
        self.fetches = 0
        self.status = 200
        self.named: str | None = None
        self.more: Json = {}
        """What else its configuration states, or states otherwise."""
        self.asked: Json = {}
        """What the last person was sent here with."""
        self.codes: dict[str, Json] = {}
        self.refuses = False

    async def configuration(self, _: web.Request) -> web.Response:
        body = {
            "issuer": self.named or self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
        }
        return web.json_response(body | self.more)

    async def list_keys(self, _: web.Request) -> web.Response:
        self.fetches += 1
        return web.json_response({"keys": self.keys}, status=self.status)

    async def authorize(self, request: web.Request) -> web.Response:
        """Send a person back at once, with a code that is bound to the challenge."""
        asked = dict(request.query)
        self.asked = asked
        if self.refuses:
            back = {"error": "access_denied", "state": asked["state"]}
        else:
            back = {"code": f"code-{len(self.codes)}", "state": asked["state"], "iss": self.url}
            self.codes[back["code"]] = asked
        raise web.HTTPFound(f"{asked['redirect_uri']}?{urlencode(back)}")

    async def give_token(self, request: web.Request) -> web.Response:
        """Exchange a code once, for whoever has the verifier of its challenge."""
        form = await request.post()
        open_to_pages = {"Access-Control-Allow-Origin": "*"}
        asked = self.codes.pop(str(form["code"]), None)
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge:
            body: Json = {"error": "invalid_grant"}
            return web.json_response(body, status=400, headers=open_to_pages)
        body = {"access_token": self.token(), "token_type": "Bearer", "expires_in": 600}
        body["id_token"] = self.token(aud=asked["client_id"], nonce=asked["nonce"])
        return web.json_response(body, headers=open_to_pages)

    def claims(self, **more: object) -> Json:
        now = int(time.time())
        own = {"iss": self.url, "aud": AUDIENCE, "sub": "ann-1", "exp": now + 600, "team": "lab"}
        return {name: value for name, value in (own | more).items() if value is not None}

    def token(self, algorithm: str = "RS256", kid: str | None = "r1", **more: object) -> str:
        head = {} if kid is None else {"kid": kid}
        return jwt.encode(self.claims(**more), _KEYS[algorithm], algorithm, headers=head)

    def settings(self, **more: Any) -> IssuerSettings:
        own: Json = {"issuer": self.url, "audience": AUDIENCE, "project_claim": "team"}
        return IssuerSettings(**(own | {"allow_private": True} | more))


@asynccontextmanager
async def run_issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.configuration)
    app.router.add_get("/keys", issuer.list_keys)
    app.router.add_get("/authorize", issuer.authorize)
    app.router.add_post("/token", issuer.give_token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        await runner.cleanup()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with run_issuer() as made:
        yield made


@asynccontextmanager
async def serve_with(*issuers: IssuerSettings) -> AsyncIterator[Gateway]:
    store = MemoryStore()
    await store.projects.create(Project("lab", "Lab", 1))
    settings = ServerSettings(require_keys=True, issuers=issuers)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        yield gateway
    await store.close()


async def status_of(gateway: Gateway, token: str) -> tuple[int, str]:
    answer = await ask(gateway, bearer(token))
    return answer.status, "" if answer.status == 200 else answer.error["code"]


@pytest.mark.parametrize(("algorithm", "kid"), [("RS256", "r1"), ("ES256", "e1"), ("EdDSA", "d1")])
async def test_a_token_of_each_algorithm_is_taken(issuer: Issuer, algorithm: str, kid: str) -> None:
    async with serve_with(issuer.settings()) as gateway:
        assert await status_of(gateway, issuer.token(algorithm, kid)) == (200, "")


async def test_a_token_belongs_to_its_project_and_its_person(issuer: Issuer) -> None:
    async with serve_with(issuer.settings()) as gateway:
        made = (await ask(gateway, bearer(issuer.token()))).json["id"]
        key = await make_key(gateway.store, "lab")
        stranger = await make_key(gateway.store, "other")
        assert (await request(gateway, "GET", f"/responses/{made}", headers=key)).status == 200
        assert (await request(gateway, "GET", f"/responses/{made}", headers=stranger)).status == 404
    issuers = Issuers([issuer.settings()], gateway_projects := MemoryStore().projects)
    await gateway_projects.create(Project("lab", "Lab", 1, never_store=True))
    found = await issuers.principal(issuer.token(email="root@example.test"))
    assert found.user == f"{issuer.url} ann-1"
    assert (found.owner, found.role, found.key_id, found.never_store) == ("lab", "user", None, True)
    await issuers.close()


async def test_a_project_of_the_settings_and_another_user_claim(issuer: Issuer) -> None:
    store = MemoryStore()
    await store.projects.create(Project("fixed", "Fixed", 1))
    settings = issuer.settings(project="fixed", project_claim=None, user_claim="oid")
    issuers = Issuers([settings], store.projects)
    found = await issuers.principal(issuer.token(oid="o-1", team=None))
    assert (found.owner, found.user) == ("fixed", f"{issuer.url} o-1")
    await issuers.close()


@pytest.mark.parametrize(
    ("given", "role"),
    [(None, "user"), ("ops", "metrics"), (["x", "boss"], "admin"), (["boss", "ops"], "admin")],
)
async def test_roles_come_from_a_claim(issuer: Issuer, given: object, role: str) -> None:
    store = MemoryStore()
    await store.projects.create(Project("lab", "Lab", 1))
    settings = issuer.settings(role_claim="groups", roles={"boss": "admin", "ops": "metrics"})
    issuers = Issuers([settings], store.projects)
    assert (await issuers.principal(issuer.token(groups=given))).role == role
    await issuers.close()


def _raw(head: Json, claims: Json, sign: Any) -> str:
    """Return a token that no library would write."""

    def part(value: Json) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    text = part(head) + b"." + part(claims)
    return (text + b"." + base64.urlsafe_b64encode(sign(text)).rstrip(b"=")).decode()


def _hmac_with_public_key(issuer: Issuer) -> str:
    key = _KEYS["RS256"].public_key()
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head = {"alg": "HS256", "kid": "r1"}
    return _raw(head, issuer.claims(), lambda text: hmac.digest(pem, text, hashlib.sha256))


def _own_key_inside(issuer: Issuer) -> str:
    own = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(_OTHER.public_key()))
    head = {"kid": "r1", "jwk": own, "jku": "http://127.0.0.1:1/keys"}
    return jwt.encode(issuer.claims(), _OTHER, "RS256", headers=head)


def _cut(issuer: Issuer) -> str:
    head, body, signature = issuer.token().split(".")
    return f"{head}.{body}.{signature[:-4]}"


def _other_claims(issuer: Issuer) -> str:
    head, _, signature = issuer.token().split(".")
    body = base64.urlsafe_b64encode(json.dumps(issuer.claims(team="x")).encode()).rstrip(b"=")
    return f"{head}.{body.decode()}.{signature}"


WRONG: dict[str, Any] = {
    "none": lambda i: _raw({"alg": "none"}, i.claims(), lambda _: b""),
    "None in capitals": lambda i: _raw({"alg": "NoNe", "kid": "r1"}, i.claims(), lambda _: b"x"),
    "HS256 with the public key": _hmac_with_public_key,
    "another key": lambda i: jwt.encode(i.claims(), _OTHER, "RS256", headers={"kid": "r1"}),
    "a key of another kind": lambda i: i.token("ES256", "r1"),
    "RS256 with the id of an EC key": lambda i: i.token("RS256", "e1"),
    "PS256": lambda i: jwt.encode(i.claims(), _KEYS["RS256"], "PS256", headers={"kid": "r1"}),
    "a key inside the token": _own_key_inside,
    "unknown kid": lambda i: i.token(kid="r9"),
    "kid with a path": lambda i: i.token(kid="../../etc/passwd"),
    "kid with a URL": lambda i: i.token(kid="http://127.0.0.1:1/'; DROP TABLE keys"),
    "kid of 1 kB": lambda i: i.token(kid="k" * 1024),
    "kid that is a number": lambda i: _raw({"alg": "RS256", "kid": 7}, i.claims(), lambda _: b"x"),
    "critical extension": lambda i: jwt.encode(
        i.claims(), _KEYS["RS256"], "RS256", headers={"kid": "r1", "crit": ["x"], "x": 1}
    ),
    "wrong iss": lambda i: i.token(iss="https://other.example"),
    "iss with a slash": lambda i: i.token(iss=i.url + "/"),
    "iss that is a list": lambda i: _raw(
        {"alg": "RS256", "kid": "r1"}, i.claims() | {"iss": [i.url]}, lambda _: b"x"
    ),
    "no iss": lambda i: i.token(iss=None),
    "wrong aud": lambda i: i.token(aud="other"),
    "no aud": lambda i: i.token(aud=None),
    "expired": lambda i: i.token(exp=int(time.time()) - 3600),
    "no exp": lambda i: i.token(exp=None),
    "exp that is a text": lambda i: i.token(exp="tomorrow"),
    "not yet": lambda i: i.token(nbf=int(time.time()) + 3600),
    "issued in the future": lambda i: i.token(iat=int(time.time()) + 3600),
    "no sub": lambda i: i.token(sub=None),
    "empty sub": lambda i: i.token(sub=""),
    "no project claim": lambda i: i.token(team=None),
    "project that is a list": lambda i: i.token(team=["lab"]),
    "oversized": lambda i: i.token(filler="x" * 20_000),
    "cut signature": _cut,
    "other claims": _other_claims,
    "two points": lambda _: "..",
    "no base64": lambda _: "!!.!!.!!",
    "an array": lambda _: "W10.W10.W10",
    "not UTF-8": lambda _: "gICA.gICA.gICA",
}


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_every_wrong_token_is_refused(issuer: Issuer, wrong: str) -> None:
    async with serve_with(issuer.settings()) as gateway:
        assert await status_of(gateway, WRONG[wrong](issuer)) == (401, "invalid_api_key")
        assert await status_of(gateway, issuer.token()) == (200, "")


async def test_an_algorithm_that_the_settings_leave_out_is_refused(issuer: Issuer) -> None:
    async with serve_with(issuer.settings(algorithms=("ES256",))) as gateway:
        assert await status_of(gateway, issuer.token()) == (401, "invalid_api_key")
        assert await status_of(gateway, issuer.token("ES256", "e1")) == (200, "")


async def test_a_key_that_is_listed_for_another_algorithm_or_use_is_not_used(
    issuer: Issuer,
) -> None:
    issuer.keys = [public("RS256", "r1", alg="RS512"), public("RS256", "r2", use="enc")]
    async with serve_with(issuer.settings()) as gateway:
        for kid in ("r1", "r2"):
            assert await status_of(gateway, issuer.token(kid=kid)) == (401, "invalid_api_key")


async def test_a_token_without_a_key_id_needs_one_key_that_fits(issuer: Issuer) -> None:
    issuer.keys = [public("RS256"), public("ES256")]
    async with serve_with(issuer.settings()) as gateway:
        assert await status_of(gateway, issuer.token(kid=None)) == (200, "")
    issuer.keys = [public("RS256", "r1"), public("RS256", "r2")]
    async with serve_with(issuer.settings()) as gateway:
        assert await status_of(gateway, issuer.token(kid=None)) == (401, "invalid_api_key")


@pytest.mark.parametrize("way", ["unknown", "archived"])
async def test_a_project_that_is_not_known_is_forbidden(issuer: Issuer, way: str) -> None:
    async with serve_with(issuer.settings()) as gateway:
        if way == "archived":
            await gateway.store.projects.archive("lab", 9)
        token = issuer.token(team="lab" if way == "archived" else "nobody")
        assert await status_of(gateway, token) == (403, "insufficient_permissions")


async def test_what_a_project_never_stores_is_not_stored_for_a_token(issuer: Issuer) -> None:
    async with serve_with(issuer.settings()) as gateway:
        await gateway.store.projects.update("lab", ProjectChange(never_store=True))
        answer = await ask(gateway, bearer(issuer.token()))
    assert answer.json["store"] is False


async def test_keys_are_taken_beside_tokens_and_admins_by_role(issuer: Issuer) -> None:
    async with serve_with(issuer.settings(roles={"boss": "admin"})) as gateway:
        key = await make_key(gateway.store, "lab")
        assert (await ask(gateway, key)).status == 200
        boss = bearer(issuer.token(roles="boss"))
        assert (await request(gateway, "GET", "/../metrics", headers=boss)).status == 200
        assert (await ask(gateway, boss)).status == 403


async def test_on_loopback_without_keys_a_token_still_counts(issuer: Issuer) -> None:
    store = MemoryStore()
    await store.projects.create(Project("lab", "Lab", 1))
    settings = ServerSettings(issuers=(issuer.settings(),))
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        made = (await ask(gateway, bearer(issuer.token()))).json["id"]
        assert await store.get("lab", made) is not None
        assert (await ask(gateway, bearer("sk-placeholder"))).status == 200
        assert (await ask(gateway, bearer(issuer.token(aud="x")))).status == 401


async def test_two_audiences_of_one_issuer(issuer: Issuer) -> None:
    other = issuer.settings(audience="other", project="local", project_claim=None)
    async with serve_with(issuer.settings(), other) as gateway:
        for token in (issuer.token(), issuer.token(aud=["other", "x"], team=None)):
            assert (await status_of(gateway, token))[0] == 200
    assert issuer.fetches == 1


async def test_a_document_of_another_issuer_gives_no_keys(issuer: Issuer) -> None:
    issuer.named = "https://other.example"
    async with serve_with(issuer.settings()) as gateway:
        assert await status_of(gateway, issuer.token()) == (503, "issuer_unavailable")
    assert issuer.fetches == 0


async def test_keys_in_a_private_network_are_not_fetched_unless_allowed(issuer: Issuer) -> None:
    settings = issuer.settings(allow_private=False, jwks_url=f"{issuer.url}/keys")
    async with serve_with(settings) as gateway:
        assert await status_of(gateway, issuer.token()) == (503, "issuer_unavailable")
    assert issuer.fetches == 0


# The keys of an issuer over time.


class Watch:
    """A key set with a clock that tests set."""

    def __init__(self, issuer: Issuer) -> None:
        self.now = 1_000.0
        self.client = open_client(allow_private=True)
        url = f"{issuer.url}/keys"
        self.keys = KeySet(self.client, issuer.url, url, clock=lambda: self.now)

    async def has(self, kid: str) -> bool:
        return bool(await self.keys.find(kid))


@pytest.fixture
async def watch(issuer: Issuer) -> AsyncIterator[Watch]:
    made = Watch(issuer)
    yield made
    await made.client.close()


async def test_an_unknown_key_id_causes_one_fetch_and_then_none(
    issuer: Issuer, watch: Watch
) -> None:
    assert await watch.has("r1")
    for number in range(50):
        assert not await watch.has(f"invented-{number}")
    assert issuer.fetches == 1  # the list is new: the cool-down has begun with it
    watch.now += 61
    found = await asyncio.gather(*(watch.has(f"more-{number}") for number in range(50)))
    assert not any(found)
    assert issuer.fetches == 2


async def test_a_new_key_of_the_issuer_is_taken_and_an_old_one_ends(
    issuer: Issuer, watch: Watch
) -> None:
    assert await watch.has("r1")
    issuer.keys = [public("RS256", "r2")]
    watch.now += 61
    assert await watch.has("r2")
    assert not await watch.has("r1")


async def test_keys_are_fetched_again_after_an_hour(issuer: Issuer, watch: Watch) -> None:
    assert await watch.has("r1")
    watch.now += 3_500
    assert await watch.has("r1")
    assert issuer.fetches == 1
    watch.now += 200
    issuer.keys = []
    assert not await watch.has("r1")
    assert issuer.fetches == 2


async def test_known_keys_outlive_an_issuer_that_is_down_for_a_day(
    issuer: Issuer, watch: Watch
) -> None:
    assert await watch.has("r1")
    issuer.status = 500
    watch.now += 7_200
    assert await watch.has("r1")
    fetched = issuer.fetches
    assert await watch.has("r1")
    assert issuer.fetches == fetched  # not again within the cool-down
    watch.now += 24 * 3600
    with pytest.raises(Exception, match="cannot be fetched now"):
        await watch.has("r1")


async def test_roll_over_through_the_gateway(issuer: Issuer) -> None:
    issuer.keys = [public("RS256", "r1")]
    async with serve_with(issuer.settings()) as gateway:
        assert (await status_of(gateway, issuer.token()))[0] == 200
        issuer.keys = [public("RS256", "r1"), public("ES256", "e2")]
        # A gateway that has not seen the new key yet learns it from its list, an hour old at most.
        auth = gateway.app._auth
        assert auth.issuers is not None
        (keys,) = auth.issuers.key_sets.values()
        keys._next_fetch = 0.0
        assert (await status_of(gateway, issuer.token("ES256", "e2")))[0] == 200
        assert (await status_of(gateway, issuer.token()))[0] == 200
