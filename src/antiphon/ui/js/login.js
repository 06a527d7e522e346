// Who asks? A key, or an identity provider: authorization code with PKCE, in this page alone.
//
// What is needed until the provider sends the person back, and the token after that, is kept in
// the storage of this tab. The gateway checks the token with every request.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { ApiError, getJson, setKey } from "./api.js";
import { Fault, go } from "./shell.js";

const FLOW = "antiphon.login";
const BACK = "/ui/login";

/** @param {Uint8Array} bytes */
const inBase64 = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => inBase64(crypto.getRandomValues(new Uint8Array(32)));

/** Send the person to an issuer. @param {any} issuer */
async function leave(issuer) {
  if (!crypto.subtle) throw new Error("This page was not loaded over https: a browser does not log in from there.");
  const flow = { issuer: issuer.issuer, verifier: random(), state: random(), nonce: random(), from: location.pathname + location.search };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(flow.verifier));
  sessionStorage.setItem(FLOW, JSON.stringify(flow));
  const target = new URL(issuer.authorization_endpoint);
  const wanted = { response_type: "code", client_id: issuer.client_id, redirect_uri: location.origin + BACK, scope: issuer.scopes.join(" "), state: flow.state, nonce: flow.nonce,
    code_challenge: inBase64(new Uint8Array(digest)), code_challenge_method: "S256" };
  for (const [name, value] of Object.entries(wanted)) target.searchParams.set(name, value);
  location.assign(target.href);
}

/** The claims of a token that is only looked at: the gateway checks its signature. */
const claimsOf = (token) => JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0))));

/** Exchange the code that the issuer sent for a token. @param {any[]} issuers @param {URLSearchParams} search @returns {Promise<string>} Where the person came from. */
async function comeBack(issuers, search) {
  const flow = JSON.parse(sessionStorage.getItem(FLOW) || "null");
  sessionStorage.removeItem(FLOW);
  if (search.get("error")) throw new Error(`The identity provider refused: ${search.get("error_description") || search.get("error")}`);
  if (!flow || flow.state !== search.get("state")) throw new Error("This login was not begun in this tab. Begin again.");
  const issuer = issuers.find((one) => one.issuer === flow.issuer);
  if (!issuer || (search.get("iss") && search.get("iss") !== flow.issuer)) throw new Error("The answer is of another identity provider. Begin again.");
  const body = new URLSearchParams({ grant_type: "authorization_code", code: search.get("code") || "", redirect_uri: location.origin + BACK, client_id: issuer.client_id, code_verifier: flow.verifier });
  const answer = await fetch(issuer.token_endpoint, { method: "POST", body, credentials: "omit", referrerPolicy: "no-referrer" });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(`The identity provider gave no token: ${found.error_description || found.error || `HTTP ${answer.status}`}`);
  if (found.id_token && claimsOf(found.id_token).nonce !== flow.nonce) throw new Error("The token was made for another login. Begin again.");
  const token = found[issuer.token];
  if (typeof token !== "string" || !token) throw new Error(`The identity provider gave no ${issuer.token}.`);
  setKey(token);
  return flow.from.startsWith("/ui") && !flow.from.startsWith(BACK) ? flow.from : "/ui";
}

/** @param {{onDone: () => Promise<void>}} props */
export function Login({ onDone }) {
  const [fault, setFault] = useState(null);
  const [issuers, setIssuers] = useState([]);
  const [missing, setMissing] = useState([]);
  const [isReturning, setReturning] = useState(location.pathname === BACK);
  const check = async (path) => {
    try {
      await getJson("/v1/antiphon/me");
    } catch (error) {
      setKey("");
      throw error instanceof ApiError ? error : new Error("The gateway does not answer.");
    }
    if (path) go(path);
    await onDone();
  };
  useEffect(() => {
    (async () => {
      const found = await getJson("/v1/antiphon/login");
      setIssuers(found.issuers);
      setMissing(found.unavailable);
      if (!isReturning) return;
      const search = new URLSearchParams(location.search);
      history.replaceState(null, "", "/ui"); // The code is used once, and is not left in the history.
      await check(await comeBack(found.issuers, search));
    })().catch((error) => {
      setFault(error);
      setReturning(false);
    });
  }, []);
  const enter = async (event) => {
    event.preventDefault();
    setKey(new FormData(event.target).get("key").trim());
    await check("").catch(setFault);
  };
  if (isReturning) return html`<main class="login"><h1>antiphon</h1><p role="status">Logging in…</p></main>`;
  return html`<main class="login"><h1>antiphon</h1>
    ${issuers.map((one) => html`<p><button type="button" class="mg-wide" onClick=${() => leave(one).catch(setFault)}>Log in with ${new URL(one.issuer).host}</button></p>`)}
    ${missing.map((one) => html`<p class="note">${one} cannot be reached now.</p>`)}
    <form onSubmit=${enter}><label>API key <input name="key" type="password" autocomplete="off" required autofocus /></label>
    <button type="submit">Log in</button>
    <p class="note">A key of the role user shows the playground and files of its project, viewer also its figures and replays; admin shows the figures, keys and budgets of all projects, and no content. It is kept until this tab is closed.</p></form>
    <div aria-live="assertive"><${Fault} error=${fault} /></div></main>`;
}
