// Budgets and rate limits: what they are, and in words what happens when they are used up.
import { html, useState } from "../vendor/preact-htm.js";
import { sendJson } from "./api.js";
import { Confirm, Table, fieldsOf, useChange } from "./forms.js";
import { number } from "./format.js";
import { Fault } from "./shell.js";

const PATH = "/v1/organization/antiphon/budgets";
const SCOPES = { organization: "all projects together", project: "a project", key: "a key", user: "a user of a project", conversation: "a conversation", run: "a run" };
const PERIODS = { day: "a calendar day", week: "a calendar week", month: "a calendar month", total: "all time" };
const NESTED = ["user", "conversation", "run"];

const amount = (unit, value) => (unit === "usd" ? `$${value}` : `${number(Number(value))} tokens`);

/** What happens at 100 %, in words. @param {any} budget */
export function consequences(budget) {
  const whose = budget.scope === "organization" ? "all projects together" : `${budget.scope} ${budget.scope_id || "…"}`;
  const limit = `${amount(budget.unit, budget.limit || "…")} in ${PERIODS[budget.period]}${budget.period === "total" ? "" : " (UTC)"}`;
  const soft = budget.soft.length ? ` From ${budget.soft.map((one) => `${one} %`).join(" and ")} on, answers carry a warning header.` : "";
  const unpriced = budget.unit !== "usd" ? "" : budget.allows_unpriced ? " Models whose price is not known count nothing." : " Models whose price is not known are refused from the beginning.";
  const later = budget.period === "total" ? "until the budget is raised" : "until the next period begins or the budget is raised";
  return `At 100 % of ${limit}, requests of ${whose} are refused with 429 insufficient_quota before anything is sent, ${later}; SDKs do not try again. An answer that reaches the limit while it streams ends as incomplete: what was produced is delivered and charged.${soft}${unpriced}`;
}

function Used({ budget }) {
  const share = Number(budget.limit) ? (Number(budget.spent) + Number(budget.held)) / Number(budget.limit) : 1;
  return html`<meter min="0" max="1" high="0.8" value=${share} aria-label=${`Used of ${budget.id}`}></meter> ${Math.round(100 * share)} %`;
}

/** @param {{budgets: any[], project?: string, reload: () => void}} props */
export function Budgets({ budgets, project, reload }) {
  const [doomed, setDoomed] = useState(null);
  const [draft, setDraft] = useState({ scope: project ? "project" : "organization", scope_id: project || "", unit: "usd", limit: "", period: "month", soft: [], allows_unpriced: false });
  const change = useChange();
  const set = (more) => setDraft({ ...draft, ...more });
  const scopes = project ? ["project", "key", ...NESTED] : ["organization"];
  const put = (event) => {
    fieldsOf(event);
    change.run(async () => {
      const { scope_id: name, ...rest } = draft;
      const limit = draft.unit === "usd" ? draft.limit : Number(draft.limit);
      await sendJson("POST", PATH, { ...rest, limit, ...(draft.scope === "organization" ? {} : { scope_id: draft.scope === "project" ? project : name }), ...(NESTED.includes(draft.scope) && { project_id: project }) });
      reload();
    });
  };
  const choice = (name, label, values) => html`<label>${label} <select name=${name} onChange=${(event) => set({ [name]: event.target.value })}>${Object.entries(values).map(([value, text]) => html`<option value=${value} selected=${draft[name] === value}>${text}</option>`)}</select></label>`;
  return html`<h2>Budgets</h2>
    <${Table} label="Budgets" columns=${["Of", "Limit", "Period", "Spent", "Held", "Used", "At 100 %", "Actions"]} empty="There is no budget: nothing limits what may be spent."
      rows=${budgets.map((one) => [one.scope === "organization" ? SCOPES.organization : `${one.scope} ${one.scope_id}`, amount(one.unit, one.limit), PERIODS[one.period], amount(one.unit, one.spent), amount(one.unit, one.held), html`<${Used} budget=${one} />`,
        html`<details><summary>what happens</summary><span class="mg-long">${consequences(one)}</span></details>`,
        html`<button type="button" aria-label=${`Delete the budget ${one.id}`} onClick=${() => setDoomed(one)}>Delete</button>`])} />
    <details class="mg-form"><summary>Set a budget</summary><form class="filters" aria-label="Set a budget" onSubmit=${put}>
      ${scopes.length > 1 && choice("scope", "Of", Object.fromEntries(scopes.map((one) => [one, SCOPES[one]])))}
      ${!["organization", "project"].includes(draft.scope) && html`<label>Its id <input name="scope_id" required value=${draft.scope_id} onInput=${(event) => set({ scope_id: event.target.value.trim() })} /></label>`}
      ${choice("unit", "Unit", { usd: "dollars", tokens: "tokens" })}
      <label>Limit <input name="limit" required inputmode="decimal" pattern=${draft.unit === "usd" ? "[0-9]+([.][0-9]{1,9})?" : "[0-9]+"} value=${draft.limit} onInput=${(event) => set({ limit: event.target.value.trim() })} /></label>
      ${choice("period", "Period", PERIODS)}
      <label>Warn from (percent) <input name="soft" placeholder="50, 80" onInput=${(event) => set({ soft: (event.target.value.match(/\d+/g) || []).map(Number) })} /></label>
      ${draft.unit === "usd" && html`<label class="check"><input type="checkbox" checked=${draft.allows_unpriced} onChange=${(event) => set({ allows_unpriced: event.target.checked })} /> Allow models without a price</label>`}
      <button type="submit" disabled=${change.isBusy}>Set the budget</button></form>
      <p class="mg-words" data-words>${consequences({ ...draft, scope_id: draft.scope === "project" ? project : draft.scope_id })}</p><${Fault} error=${change.fault} /></details>
    ${doomed && html`<${Confirm} title="Delete this budget?" text="Nothing limits this scope any more, unless another budget does. What was spent stays in the ledger." action="Delete"
      onYes=${async () => { await sendJson("DELETE", `${PATH}/${encodeURIComponent(doomed.id)}`); reload(); }} onClose=${() => setDoomed(null)} />`}`;
}

/** @param {{project: string, limits: any[], reload: () => void}} props */
export function RateLimits({ project, limits, reload }) {
  const change = useChange();
  const path = (id) => `/v1/organization/projects/${encodeURIComponent(project)}/rate_limits/${encodeURIComponent(id)}`;
  const put = (event) => {
    const given = fieldsOf(event);
    const form = event.target;
    change.run(async () => {
      await sendJson("POST", path(`rl-${given.model || "*"}`), {
        ...(given.rpm && { max_requests_per_1_minute: Number(given.rpm) }),
        ...(given.tpm && { max_tokens_per_1_minute: Number(given.tpm) }),
        ...(given.concurrent && { antiphon: { max_concurrent_requests: Number(given.concurrent) } }),
      });
      form.reset();
      reload();
    });
  };
  const remove = (one) => change.run(async () => {
    await sendJson("DELETE", path(one.id));
    reload();
  });
  const field = (name, label) => html`<label>${label} <input name=${name} type="number" min="1" step="1" /></label>`;
  return html`<h2>Rate limits</h2>
    <${Table} label="Rate limits" columns=${["Model", "Requests a minute", "Tokens a minute", "At once", "Actions"]} empty="There is no rate limit."
      rows=${limits.map((one) => [one.model === "*" ? "all models together" : one.model, number(one.max_requests_per_1_minute), number(one.max_tokens_per_1_minute), number(one.antiphon.max_concurrent_requests),
        html`<button type="button" aria-label=${`Delete the limit of ${one.model}`} onClick=${() => remove(one)}>Delete</button>`])} />
    <details class="mg-form"><summary>Set a rate limit</summary><form class="filters" aria-label="Set a rate limit" onSubmit=${put}>
      <label>Model <input name="model" placeholder="all models together" /></label>${field("rpm", "Requests a minute")}${field("tpm", "Tokens a minute")}${field("concurrent", "At once")}
      <button type="submit" disabled=${change.isBusy}>Set the limit</button></form>
      <p class="mg-words">Beyond it, a request is answered 429 rate_limit_exceeded with the time after which it may be sent again.</p></details><${Fault} error=${change.fault} />`;
}
