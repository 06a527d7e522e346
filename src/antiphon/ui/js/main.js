// The frame: which screen belongs to this address, who asks, and which keys there are.
import { html, render, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { getJson, getKey, setKey } from "./api.js";
import { ConversationScreen, Conversations } from "./conversation.js";
import { Login } from "./login.js";
import { MORE_SCREENS, moreScreen } from "./more.js";
import { Overview } from "./overview.js";
import { Requests } from "./requests.js";
import { ResponseScreen } from "./response.js";
import { Fault, Link, go, useKeys } from "./shell.js";

const FIGURES = ["local", "viewer", "admin"];
const SCREENS = [["/ui", "Overview", FIGURES], ["/ui/requests", "Requests", FIGURES],
  ["/ui/conversations", "Conversations", ["local", "user", "viewer"]], ...MORE_SCREENS];
const KEYS = [["j, k", "next and previous row"], ["Enter", "open the row"], ["/", "to the filters"], ["Space", "play or pause a replay"],
  ["← →", "one event back or on"], ["Home, End", "to the first or the last event"], ["o, r, p", "to the overview, the requests, the playground"], ["Ctrl+Enter", "send the message of the playground"], ["?", "this list"]];

function Help({ onClose }) {
  const box = useRef(null);
  useEffect(() => box.current.showModal(), []);
  return html`<dialog ref=${box} aria-labelledby="help" onClose=${onClose}><h2 id="help">Keys</h2>
    <dl class="keys">${KEYS.map(([name, what]) => html`<dt><kbd>${name}</kbd></dt><dd>${what}</dd>`)}</dl>
    <form method="dialog"><button onClick=${() => box.current.close()} type="button">Close</button></form></dialog>`;
}

function Screen({ path, search, me }) {
  const response = /^\/ui\/responses\/([^/]+)$/.exec(path);
  if (response) return html`<${ResponseScreen} id=${decodeURIComponent(response[1])} />`;
  const tree = /^\/ui\/(conversations|responses)\/([^/]+?)(\/tree)?$/.exec(path);
  if (tree) return html`<${ConversationScreen} id=${decodeURIComponent(tree[2])} kind=${tree[1]} search=${search} />`;
  if (path === "/ui/conversations") return html`<${Conversations} />`;
  if (path === "/ui/requests") return html`<${Requests} search=${search} me=${me} />`;
  if (path === "/ui" || path === "/ui/") return html`<${Overview} search=${search} me=${me} />`;
  const more = moreScreen(path, search, me);
  if (more) return more;
  return html`<h1>Not found</h1><p>There is no screen at this address.</p>`;
}

function App() {
  const [place, setPlace] = useState({ path: location.pathname, search: location.search });
  const [hasHelp, setHelp] = useState(false);
  const [me, setMe] = useState(null);
  const [isKnown, setKnown] = useState(null);
  const main = useRef(null);
  const path = useRef(place.path);
  useEffect(() => {
    const moved = () => setPlace({ path: location.pathname, search: location.search });
    addEventListener("antiphon-moved", moved);
    addEventListener("popstate", moved);
  }, []);
  const [fault, setFault] = useState(null);
  const identify = async () => {
    try {
      const found = await getJson("/v1/antiphon/me");
      if (found.role === "user" && /^\/ui\/?$/.test(location.pathname)) go("/ui/playground");
      setMe(found);
      setKnown(true);
    } catch (error) {
      if (error.status === 401) setKnown(false);
      else setFault(error);
    }
  };
  useEffect(() => void identify(), []);
  useEffect(() => {
    document.title = `${main.current?.querySelector("h1")?.textContent || "antiphon"} · antiphon`;
    if (path.current !== place.path) main.current?.focus();
    path.current = place.path;
  });
  useKeys({ "?": () => setHelp(true), o: () => go("/ui"), r: () => go("/ui/requests"), p: () => go("/ui/playground") });
  if (fault) return html`<main><h1>antiphon</h1><${Fault} error=${fault} /></main>`;
  if (isKnown === null) return html`<p role="status">Loading…</p>`;
  if (!isKnown) return html`<${Login} onDone=${identify} />`;
  return html`<header><strong>antiphon</strong><nav aria-label="Screens">${SCREENS.filter(([, , roles]) => roles.includes(me.role)).map(([to, name]) => html`<${Link} to=${to} current=${place.path === to}>${name}</${Link}>`)}</nav>
      <button type="button" onClick=${() => setHelp(true)}>Keys (?)</button>
      ${getKey() && html`<button type="button" onClick=${() => { setKey(""); location.reload(); }}>Log out</button>`}</header>
    <main ref=${main} tabindex="-1"><${Screen} path=${place.path} search=${new URLSearchParams(place.search)} me=${me} /></main>
    ${hasHelp && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

render(html`<${App} />`, document.getElementById("app"));
