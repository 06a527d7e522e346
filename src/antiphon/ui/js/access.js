// Screens: who may ask, with which key, for how much. The organization, and one project.
import { html, useState } from "../vendor/preact-htm.js";
import { getJson, query, sendJson } from "./api.js";
import { Budgets, RateLimits } from "./budgets.js";
import { Confirm, Secret, Table, fieldsOf, readAll, useChange, useRead } from "./forms.js";
import { clock, dollars, some } from "./format.js";
import { Fault, Link, go } from "./shell.js";

const ROOT = "/v1/organization";
const DAY = 86_400;
const OVERLAPS = { 0: "at once", 3600: "after an hour", [DAY]: "after a day", [7 * DAY]: "after 7 days" };
const projectPath = (id) => `${ROOT}/projects/${encodeURIComponent(id)}`;
const linkTo = (id) => `/ui/access/${encodeURIComponent(id)}`;

/** What each key of a project came to in 30 days. */
async function spendByKey(id) {
  const start = (Math.floor(Date.now() / 1000 / DAY) - 29) * DAY;
  const page = await getJson(`${ROOT}/usage/completions?${query({ start_time: start, bucket_width: "1d", limit: 31, group_by: "api_key_id", project_ids: id })}`);
  const found = new Map();
  for (const one of page.data.flatMap((bucket) => bucket.results)) {
    const before = found.get(one.api_key_id) || { cost: null, calls: 0 };
    const cost = one.antiphon.cost_usd === null ? before.cost : (before.cost ?? 0) + Number(one.antiphon.cost_usd);
    found.set(one.api_key_id, { cost, calls: before.calls + one.num_model_requests });
  }
  return found;
}

/** What somebody sees who does not manage the organization. */
function OwnAccess({ me }) {
  const facts = [["Role", me.role], ["Project", me.project_id], ["Key", me.api_key_id || "none"], ["User", me.user_id || "not named"],
    ["Models", me.models ? me.models.join(", ") : "all"], ["What is asked", me.never_store ? "is never stored" : "is stored unless a request says otherwise"]];
  return html`<h1>Keys and budgets</h1><p>This is what your credential allows. Keys, budgets and limits are managed with a key of the role admin.</p>
    <dl class="keys mg-facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    ${me.role === "viewer" && html`<p><${Link} to="/ui?range=30d">What your project has used in 30 days</${Link}></p>`}`;
}

function AdminKeys() {
  const { value, fault, reload } = useRead(() => readAll(`${ROOT}/admin_api_keys`), []);
  const [made, setMade] = useState(null);
  const [doomed, setDoomed] = useState(null);
  const change = useChange();
  const create = (event) => {
    const { name } = fieldsOf(event);
    const form = event.target;
    change.run(async () => {
      setMade(await sendJson("POST", `${ROOT}/admin_api_keys`, { name }));
      form.reset();
      reload();
    });
  };
  return html`<h2>Keys of administrators</h2><${Fault} error=${fault || change.fault} />
    ${value && html`<${Table} label="Keys of administrators" columns=${["Name", "Key", "Made", "Last used", "Actions"]} empty="There is none."
      rows=${value.map((one) => [one.name || "–", html`<code>${one.redacted_value}</code>`, clock(one.created_at), one.last_used_at ? clock(one.last_used_at) : "never", html`<button type="button" aria-label=${`Revoke ${one.name || one.id}`} onClick=${() => setDoomed(one)}>Revoke</button>`])} />`}
    <details class="mg-form"><summary>New key of an administrator</summary><form class="filters" aria-label="New key of an administrator" onSubmit=${create}><label>Name <input name="name" required maxlength="256" /></label><button type="submit" disabled=${change.isBusy}>Create the key</button></form>
      <p class="mg-words">It may manage the organization, and may ask no model.</p></details>
    ${made && html`<${Secret} name=${made.name} value=${made.value} onClose=${() => setMade(null)} />`}
    ${doomed && html`<${Confirm} title="Revoke this key?" text=${`${doomed.name || doomed.id} is refused within a second.`} action="Revoke" onYes=${async () => { await sendJson("DELETE", `${ROOT}/admin_api_keys/${encodeURIComponent(doomed.id)}`); reload(); }} onClose=${() => setDoomed(null)} />`}`;
}

function Organization() {
  const { value, fault, reload } = useRead(async () => ({ projects: await readAll(`${ROOT}/projects?include_archived=true`), budgets: await readAll(`${ROOT}/antiphon/budgets`) }), []);
  const change = useChange();
  const create = (event) => {
    const given = fieldsOf(event);
    change.run(async () => {
      const made = await sendJson("POST", `${ROOT}/projects`, { name: given.name, antiphon: { ...(given.id && { id: given.id }), ...(given.never_store && { never_store: true }) } });
      go(linkTo(made.id));
    });
  };
  return html`<h1>Keys and budgets</h1><${Fault} error=${fault} />
    ${value && html`<h2>Projects</h2><p class="note">A project owns what its keys ask and store, and pays for it.</p>
      <${Table} label="Projects" columns=${["Project", "Name", "State", "Made", "Content"]} empty="There is no project yet."
        rows=${value.projects.map((one) => [html`<${Link} to=${linkTo(one.id)}>${one.id}</${Link}>`, one.name, html`<span class=${`status ${one.status === "active" ? "completed" : "cancelled"}`}>${one.status}</span>`, one.created_at ? clock(one.created_at) : "–", one.antiphon.never_store ? "never stored" : "stored"])} />
      <details class="mg-form"><summary>New project</summary><form class="filters" aria-label="New project" onSubmit=${create}>
        <label>Name <input name="name" required maxlength="256" /></label><label>Id <input name="id" placeholder="made for you" pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*" maxlength="64" /></label>
        <label class="check"><input type="checkbox" name="never_store" value="yes" /> Never store content</label><button type="submit" disabled=${change.isBusy}>Create the project</button></form><${Fault} error=${change.fault} /></details>
      <${Budgets} budgets=${value.budgets.filter((one) => one.scope === "organization")} reload=${reload} />
      <${AdminKeys} />`}`;
}

function Keys({ project, keys, spend, reload }) {
  const [made, setMade] = useState(null);
  const [doomed, setDoomed] = useState(null);
  const [turned, setTurned] = useState(null);
  const [overlap, setOverlap] = useState(DAY);
  const change = useChange();
  const path = (id) => `${projectPath(project)}/api_keys/${encodeURIComponent(id)}`;
  const create = (event) => {
    const given = fieldsOf(event);
    const form = event.target;
    const models = (given.models || "").split(",").map((one) => one.trim()).filter(Boolean);
    change.run(async () => {
      const account = await sendJson("POST", `${projectPath(project)}/service_accounts`, {
        name: given.name,
        ...(given.days && { expires_in_seconds: Number(given.days) * DAY }),
        antiphon: { role: given.role, ...(models.length && { models }), ...(given.never_store && { never_store: true }) },
      });
      setMade(account.api_key);
      form.reset();
      reload();
    });
  };
  const rotate = async () => {
    const rotated = await sendJson("POST", `${path(turned.id)}/antiphon/rotate`, { overlap_seconds: overlap });
    setMade(rotated);
    reload();
  };
  const setRole = (one, role) => change.run(async () => {
    await sendJson("POST", path(one.id), { antiphon: { role } });
    reload();
  });
  return html`<h2>Keys</h2>
    <${Table} label="Keys" columns=${["Name", "Key", "Role", "Models", "Last used", "Ends", "30 days", "Actions"]} empty="This project has no key."
      rows=${keys.map((one) => [
        html`<${Link} to=${`/ui/requests?${query({ key: one.id })}`} title=${`${one.name} ${one.id}`}>${one.name || one.id}</${Link}>`,
        html`<code>${one.redacted_value}</code>`,
        ["user", "viewer"].includes(one.antiphon.role) ? html`<select aria-label=${`Role of ${one.name || one.id}`} onChange=${(event) => setRole(one, event.target.value)}>${["user", "viewer"].map((role) => html`<option value=${role} selected=${role === one.antiphon.role}>${role}</option>`)}</select>` : one.antiphon.role,
        one.antiphon.models ? one.antiphon.models.join(", ") || "none" : "all",
        one.last_used_at ? clock(one.last_used_at) : "never",
        one.expires_at ? clock(one.expires_at) : "never",
        spend?.get(one.id) ? `${dollars(spend.get(one.id).cost)} (${some(spend.get(one.id).calls, "call")})` : "nothing",
        html`<button type="button" aria-label=${`Rotate ${one.name || one.id}`} onClick=${() => setTurned(one)}>Rotate</button> <button type="button" aria-label=${`Revoke ${one.name || one.id}`} onClick=${() => setDoomed(one)}>Revoke</button>`])} />
    <details class="mg-form"><summary>New key</summary><form class="filters" aria-label="New key" onSubmit=${create}>
      <label>Name <input name="name" required maxlength="256" /></label>
      <label>Role <select name="role"><option value="user">user: models and data</option><option value="viewer">viewer: figures too</option></select></label>
      <label>Models <input name="models" placeholder="all" /></label><label>Ends after (days) <input name="days" type="number" min="1" max="3650" placeholder="never" /></label>
      <label class="check"><input type="checkbox" name="never_store" value="yes" /> Never store content</label><button type="submit" disabled=${change.isBusy}>Create the key</button></form></details>
    <${Fault} error=${change.fault} />
    ${turned && html`<${Confirm} title=${`Rotate ${turned.name || turned.id}?`} action="Rotate" onYes=${rotate} onClose=${() => setTurned(null)}
      text=${html`The key keeps its id and gets a new secret. The old secret ends <select aria-label="When the old secret ends" onChange=${(event) => setOverlap(Number(event.target.value))}>${Object.entries(OVERLAPS).map(([seconds, words]) => html`<option value=${seconds} selected=${Number(seconds) === overlap}>${words}</option>`)}</select>.`} />`}
    ${doomed && html`<${Confirm} title="Revoke this key?" text=${`${doomed.name || doomed.id} is refused within a second, and what runs under it ends. This cannot be undone.`} action="Revoke" onYes=${async () => { await sendJson("DELETE", path(doomed.id)); reload(); }} onClose=${() => setDoomed(null)} />`}
    ${made && html`<${Secret} name=${made.name} value=${made.value} onClose=${() => setMade(null)} />`}`;
}

/** @param {{id: string}} props */
export function Project({ id }) {
  const { value, fault, reload } = useRead(async () => {
    const [project, keys, limits, budgets, spend] = await Promise.all([getJson(projectPath(id)), readAll(`${projectPath(id)}/api_keys`), readAll(`${projectPath(id)}/rate_limits`),
      readAll(`${ROOT}/antiphon/budgets`), spendByKey(id)]);
    const ids = new Set(keys.map((one) => one.id));
    return { project, keys, limits, spend, budgets: budgets.filter((one) => one.project_id === id || (one.scope === "project" && one.scope_id === id) || (one.scope === "key" && ids.has(one.scope_id))) };
  }, [id]);
  const [isDoomed, setDoomed] = useState(false);
  const archive = async () => {
    await sendJson("POST", `${projectPath(id)}/archive`, {});
    reload();
  };
  return html`<h1>Project <code>${id}</code></h1><p><${Link} to="/ui/access">All projects</${Link}> · <${Link} to=${`/ui/requests?${query({ project: id })}`}>Its requests</${Link}> · <${Link} to=${`/ui?${query({ project: id, range: "30d" })}`}>Its figures</${Link}></p>
    <${Fault} error=${fault} />
    ${value && html`<p class="facts"><span>${value.project.name}</span><span>${value.project.status}</span><span>made ${clock(value.project.created_at)}</span><span>${value.project.antiphon.never_store ? "content is never stored" : "content is stored"}</span></p>
      <${Keys} project=${id} keys=${value.keys} spend=${value.spend} reload=${reload} />
      <${Budgets} budgets=${value.budgets} project=${id} reload=${reload} />
      <${RateLimits} project=${id} limits=${value.limits} reload=${reload} />
      ${value.project.status === "active" && html`<h2>Archive</h2><p><button type="button" class="mg-danger" onClick=${() => setDoomed(true)}>Archive this project</button></p>`}`}
    ${isDoomed && html`<${Confirm} title="Archive this project?" text="Its keys are refused within a second, and what runs under them ends. Its data stays." action="Archive" onYes=${archive} onClose=${() => setDoomed(false)} />`}`;
}

/** @param {{me: any}} props */
export const Access = ({ me }) => (["local", "admin"].includes(me.role) ? html`<${Organization} />` : html`<${OwnAccess} me=${me} />`);
