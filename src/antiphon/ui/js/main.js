// The frame: which screen belongs to this address, who asks, and which keys there are.
import { html, render, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { ApiError, getJson, getKey, setKey } from "./api.js";
import { ConversationScreen, Conversations } from "./conversation.js";
import { Overview } from "./overview.js";
import { Requests } from "./requests.js";
import { ResponseScreen } from "./response.js";
import { Link, go, useKeys } from "./shell.js";

const SCREENS = [["/ui", "Overview"], ["/ui/requests", "Requests"], ["/ui/conversations", "Conversations", ["local", "user", "viewer"]]];
const KEYS = [["j, k", "next and previous row"], ["Enter", "open the row"], ["/", "to the filters"], ["Space", "play or pause a replay"],
  ["← →", "one event back or on"], ["Home, End", "to the first or the last event"], ["o, r", "to the overview, to the requests"], ["?", "this list"]];

function Login({ onDone }) {
  const [fault, setFault] = useState("");
  const enter = async (event) => {
    event.preventDefault();
    setKey(new FormData(event.target).get("key").trim());
    try {
      await getJson("/v1/organization/antiphon/requests?limit=1");
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401) {
        setKey("");
        setFault(error.message);
        return;
      }
    }
    onDone();
  };
  return html`<main class="login"><h1>antiphon</h1><form onSubmit=${enter}>
    <label>API key <input name="key" type="password" autocomplete="off" required autofocus /></label>
    <button type="submit">Log in</button>
    <p class="note">A key of the role viewer shows the figures of its project and replays its responses; admin shows the figures of all projects, and no content. It is kept until this tab is closed.</p>
    <p role="alert" class=${fault ? "fault" : ""}>${fault}</p></form></main>`;
}

function Help({ onClose }) {
  const box = useRef(null);
  useEffect(() => box.current.showModal(), []);
  return html`<dialog ref=${box} aria-labelledby="help" onClose=${onClose}><h2 id="help">Keys</h2>
    <dl class="keys">${KEYS.map(([name, what]) => html`<dt><kbd>${name}</kbd></dt><dd>${what}</dd>`)}</dl>
    <form method="dialog"><button onClick=${() => box.current.close()} type="button">Close</button></form></dialog>`;
}

function Screen({ path, search }) {
  const response = /^\/ui\/responses\/([^/]+)$/.exec(path);
  if (response) return html`<${ResponseScreen} id=${decodeURIComponent(response[1])} />`;
  const tree = /^\/ui\/(conversations|responses)\/([^/]+?)(\/tree)?$/.exec(path);
  if (tree) return html`<${ConversationScreen} id=${decodeURIComponent(tree[2])} kind=${tree[1]} search=${search} />`;
  if (path === "/ui/conversations") return html`<${Conversations} />`;
  if (path === "/ui/requests") return html`<${Requests} search=${search} />`;
  if (path === "/ui" || path === "/ui/") return html`<${Overview} search=${search} go=${go} />`;
  return html`<h1>Not found</h1><p>There is no screen at this address.</p>`;
}

function App() {
  const [place, setPlace] = useState({ path: location.pathname, search: location.search });
  const [hasHelp, setHelp] = useState(false);
  const [who, setWho] = useState("asking");
  const main = useRef(null);
  const path = useRef(place.path);
  useEffect(() => {
    const moved = () => setPlace({ path: location.pathname, search: location.search });
    addEventListener("antiphon-moved", moved);
    addEventListener("popstate", moved);
    getJson("/v1/organization/antiphon/requests?limit=1").then(() => setWho("known"), (error) => setWho(error.status === 401 ? "nobody" : "known"));
  }, []);
  useEffect(() => {
    document.title = `${main.current?.querySelector("h1")?.textContent || "antiphon"} · antiphon`;
    if (path.current !== place.path) main.current?.focus();
    path.current = place.path;
  });
  useKeys({ "?": () => setHelp(true), o: () => go("/ui"), r: () => go("/ui/requests") });
  if (who === "asking") return html`<p role="status">Loading…</p>`;
  if (who === "nobody") return html`<${Login} onDone=${() => setWho("known")} />`;
  return html`<header><strong>antiphon</strong><nav aria-label="Screens">${SCREENS.map(([to, name]) => html`<${Link} to=${to} current=${place.path === to}>${name}</${Link}>`)}</nav>
      <button type="button" onClick=${() => setHelp(true)}>Keys (?)</button>
      ${getKey() && html`<button type="button" onClick=${() => { setKey(""); location.reload(); }}>Log out</button>`}</header>
    <main ref=${main} tabindex="-1"><${Screen} path=${place.path} search=${new URLSearchParams(place.search)} /></main>
    ${hasHelp && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

render(html`<${App} />`, document.getElementById("app"));
