"""Which principal sends a token of an identity provider? JWTs of the issuers in the settings.

The signature is checked with a public key that the issuer lists, never with one from the token.
`iss`, `aud` and `exp` are required. Only asymmetric algorithms are known here, so a public key
cannot be used as a shared secret, and the key must be of the algorithm's own kind. Who somebody
is, is (`iss`, the user claim), never an e-mail address. A token is good until it expires; only
its project can be archived before that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from antiphon.accounts.principal import Principal, Role
from antiphon.protocol.errors import Unauthorized
from antiphon.server.jwks import KeySet, PublicKey, open_client
from antiphon.server.roles import NotAllowed
from antiphon.store.base.projects import Projects

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "IssuerSettings",
    "Issuers",
    "has_library",
    "looks_like_token",
]

Algorithm = Literal["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "EdDSA"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = (
    "RS256",
    "RS384",
    "RS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_KINDS: Final = {"RS": "RSA", "ES": "EC", "Ed": "OKP"}
_MAX_TOKEN: Final = 16 * 1024
_MAX_NAME: Final = 512
_LEEWAY_SECONDS: Final = 30


class IssuerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An identity provider whose tokens are taken: `[[auth.issuers]]`."""

    issuer: str
    """As `iss` in its tokens, to the letter."""
    audience: str
    """What `aud` must contain."""
    jwks_url: str | None = None
    """Where its keys are; found by OpenID discovery without it."""
    project: str | None = None
    project_claim: str | None = None
    """The project of all its users, or the claim that names it: one of the two."""
    user_claim: str = "sub"
    role_claim: str = "roles"
    roles: dict[str, Role] = {}
    """Roles by values of `role_claim`; the first that fits counts, and `user` without one."""
    algorithms: tuple[Algorithm, ...] = ALGORITHMS
    allow_private: bool = False
    """Whether its keys may be fetched from an address in a private network."""
    client_id: str | None = None
    """As which client the dashboard sends people there to log in; without it, it does not."""
    scopes: tuple[str, ...] = ("openid",)
    """What the dashboard asks for."""
    login_with: Literal["access_token", "id_token"] = "access_token"
    """Which of the tokens that it gets is sent to the gateway."""


def looks_like_token(token: str) -> bool:
    """Return whether this has the form of a JWT."""
    return token.count(".") == 2


def has_library() -> bool:
    """Return whether tokens can be checked."""
    try:
        import cryptography  # noqa: F401 - only whether it is there
        import jwt  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


class Issuers:
    """Finds the principal of a token. `clock` is monotonic seconds."""

    def __init__(
        self,
        settings: Sequence[IssuerSettings],
        projects: Projects,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._projects = projects
        self._clients = {flag: open_client(allow_private=flag) for flag in (False, True)}
        self.key_sets: dict[tuple[str, str | None], KeySet] = {}
        self._settings = tuple(settings)
        self._asking = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        for one in settings:
            client = self._clients[one.allow_private]
            key_set = KeySet(client, one.issuer, one.jwks_url, clock=clock)
            self.key_sets.setdefault((one.issuer, one.jwks_url), key_set)

    async def principal(self, token: str) -> Principal:
        """Return who sends this token.

        Raise Unauthorized if it is not good, NotAllowed if its project is not known, and
        IssuerUnavailable if that cannot be decided now.
        """
        self._asking += 1
        self._is_idle.clear()
        try:
            return await self._find(token)
        finally:
            self._asking -= 1
            if not self._asking:
                self._is_idle.set()

    async def _find(self, token: str) -> Principal:
        algorithm, kid = _read_head(token)
        issuer = _read_issuer(token)
        failure = Unauthorized("the token is of an issuer that is not known here")
        for one in self._settings:
            if one.issuer != issuer or algorithm not in one.algorithms:
                continue
            keys = await self.key_sets[one.issuer, one.jwks_url].find(kid)
            try:
                claims = _verify(token, one, algorithm, keys)
            except Unauthorized as error:
                failure = error
                continue
            return await self._principal_of(one, claims)
        raise failure

    async def close(self) -> None:
        """Close the connections to issuers, when nobody waits for their keys any more."""
        await self._is_idle.wait()
        for client in self._clients.values():
            await client.close()

    async def _principal_of(self, one: IssuerSettings, claims: Mapping[str, Any]) -> Principal:
        name = _text_claim(claims, one.user_claim)
        project_id = one.project or _text_claim(claims, one.project_claim or "")
        project = await self._projects.get(project_id)
        if project is None or project.archived_at is not None:
            raise NotAllowed("the project of this token is not known here, or is archived")
        return Principal(
            project.id,
            role=_role_of(one, claims),
            user=f"{one.issuer} {name}",
            never_store=project.never_store,
        )


def _read_head(token: str) -> tuple[str, str | None]:
    """Return the algorithm and the key id that a token names, if they can be."""
    import jwt

    if len(token) > _MAX_TOKEN:
        raise Unauthorized(f"the token is longer than {_MAX_TOKEN} characters")
    try:
        head = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
        raise Unauthorized("the token cannot be read") from error
    algorithm, kid = head.get("alg"), head.get("kid")
    if algorithm not in ALGORITHMS:
        raise Unauthorized("the token is not signed with an algorithm that is taken here")
    if "crit" in head:
        raise Unauthorized("the token has extensions that are not known here")
    if kid is not None and (not isinstance(kid, str) or len(kid) > _MAX_NAME):
        raise Unauthorized("the key id of the token is not a text")
    return algorithm, kid


def _read_issuer(token: str) -> str:
    """Return the issuer that a token claims to be of: only which keys are tried depends on it."""
    import jwt

    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
        raise Unauthorized("the token cannot be read") from error
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else ""


def _verify(
    token: str, one: IssuerSettings, algorithm: str, keys: Sequence[PublicKey]
) -> Mapping[str, Any]:
    """Return the claims of a token that is good. Raise Unauthorized."""
    import jwt

    fitting = [key for key in keys if _fits(key, algorithm)]
    if len(fitting) != 1:
        raise Unauthorized("the token is signed with a key that its issuer does not list")
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            jwt.PyJWK(dict(fitting[0].value), algorithm=algorithm),
            algorithms=[algorithm],
            audience=one.audience,
            issuer=one.issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["iss", "aud", "exp"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise Unauthorized("the token has expired") from error
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise Unauthorized(f"the token is not valid ({type(error).__name__})") from error
    return claims


def _fits(key: PublicKey, algorithm: str) -> bool:
    return key.kind == _KINDS[algorithm[:2]] and key.algorithm in (None, algorithm)


def _text_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value or len(value) > _MAX_NAME:
        raise Unauthorized(f"the claim {name} of the token is missing, or not a text")
    return value


def _role_of(one: IssuerSettings, claims: Mapping[str, Any]) -> Role:
    given = claims.get(one.role_claim)
    values = given if isinstance(given, list) else [given]
    for value, role in one.roles.items():
        if value in values:
            return role
    return "user"
