// Screens: the vector stores of this project, and one of them.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { getJson, sendJson } from "./api.js";
import { upload } from "./files.js";
import { Confirm, Table, fieldsOf, readAll, size, useChange, useRead } from "./forms.js";
import { clock, number, some } from "./format.js";
import { Fault, Link, go, setSearch } from "./shell.js";

const PATH = "/v1/vector_stores";
const pathOf = (id) => `${PATH}/${encodeURIComponent(id)}`;
const linkTo = (id) => `/ui/stores/${encodeURIComponent(id)}`;

export function Stores() {
  const { value, fault, reload } = useRead(() => readAll(PATH), []);
  const change = useChange();
  const create = (event) => {
    const { name } = fieldsOf(event);
    const form = event.target;
    change.run(async () => {
      const made = await sendJson("POST", PATH, name ? { name } : {});
      form.reset();
      reload();
      go(linkTo(made.id));
    });
  };
  return html`<h1>Vector stores</h1>
    <form class="filters" aria-label="New vector store" onSubmit=${create}><label>Name <input name="name" required maxlength="256" /></label><button type="submit" disabled=${change.isBusy}>Create a store</button></form>
    <${Fault} error=${fault || change.fault} />
    ${value && html`<${Table} label="Vector stores" columns=${["Name", "Id", "State", "Files", "Size", "Last used"]} empty="There is no vector store yet."
      rows=${value.map((one) => [html`<${Link} to=${linkTo(one.id)}>${one.name || "without a name"}</${Link}>`, html`<code>${one.id}</code>`, one.status.replace("_", " "),
        `${number(one.file_counts.completed)} of ${number(one.file_counts.total)}`, size(one.usage_bytes), one.last_active_at ? clock(one.last_active_at) : "–"])} />`}`;
}

/** The files of a store, and a way to add some. */
function Attached({ id, files, reload }) {
  const stored = useRead(() => readAll("/v1/files"), []);
  const change = useChange();
  const attach = (file) => change.run(async () => {
    await sendJson("POST", `${pathOf(id)}/files`, { file_id: file });
    reload();
  });
  const add = (input) => change.run(async () => {
    for (const file of [...input.files]) {
      const { id: made } = await upload(file, "assistants", () => {});
      await sendJson("POST", `${pathOf(id)}/files`, { file_id: made });
    }
    input.value = "";
    stored.reload();
    reload();
  });
  const detach = (file) => change.run(async () => {
    await sendJson("DELETE", `${pathOf(id)}/files/${encodeURIComponent(file)}`);
    reload();
  });
  const names = new Map((stored.value || []).map((one) => [one.id, one.filename]));
  const known = new Set(files.map((one) => one.id));
  const free = (stored.value || []).filter((one) => !known.has(one.id));
  return html`<h2>Files</h2>
    <form class="filters" aria-label="Attach" onSubmit=${(event) => attach(fieldsOf(event).file)}>
      <label>Stored file <select name="file" required>${free.map((one) => html`<option value=${one.id}>${one.filename}</option>`)}</select></label><button type="submit" disabled=${change.isBusy || !free.length}>Attach</button>
      <label>Or upload <input type="file" multiple onChange=${(event) => add(event.target)} /></label></form>
    <${Fault} error=${change.fault} />
    <${Table} label="Attached files" columns=${["Name", "Id", "State", "Indexed", "Actions"]} empty="No file is attached."
      rows=${files.map((one) => [names.get(one.id) || "–", html`<code>${one.id}</code>`, html`<span class=${`status ${one.status} mg-long`}>${one.status.replace("_", " ")}${one.last_error ? `: ${one.last_error.message}` : ""}</span>`, size(one.usage_bytes),
        html`<button type="button" aria-label=${`Detach ${names.get(one.id) || one.id}`} onClick=${() => detach(one.id)}>Detach</button>`])} />`;
}

function Search({ id, search }) {
  const wanted = search.get("q") || "";
  const { value, fault } = useRead(() => (wanted ? sendJson("POST", `${pathOf(id)}/search`, { query: wanted, max_num_results: 10 }) : Promise.resolve(null)), [id, wanted]);
  return html`<h2>Search</h2><form class="filters" role="search" onSubmit=${(event) => setSearch({ q: fieldsOf(event).q || "" })}>
      <label>Words or a question <input name="q" value=${wanted} /></label><button type="submit">Search</button></form>
    <${Fault} error=${fault} />
    <div role="status">${value && html`<p class="note">${some(value.data.length, "result")} for “${wanted}”, best first.</p>`}</div>
    ${value && html`<ol class="mg-results">${value.data.map((one) => html`<li><p><strong>${one.filename}</strong> <meter min="0" max="1" value=${one.score} aria-label="Score"></meter> <span data-score>${one.score.toFixed(3)}</span> <code>${one.file_id}</code></p>
      ${one.content.map((part) => html`<pre class="text" tabindex="0">${part.text}</pre>`)}</li>`)}</ol>`}`;
}

/** @param {{id: string, search: URLSearchParams}} props */
export function Store({ id, search }) {
  const store = useRead(() => getJson(pathOf(id)), [id]);
  const files = useRead(() => readAll(`${pathOf(id)}/files`), [id]);
  const [isDoomed, setDoomed] = useState(false);
  const reload = () => {
    store.reload();
    files.reload();
  };
  const isIndexing = (files.value || []).some((one) => one.status === "in_progress");
  useEffect(() => {
    if (!isIndexing) return undefined;
    const timer = setInterval(reload, 1000);
    return () => clearInterval(timer);
  }, [isIndexing]);
  const remove = async () => {
    await sendJson("DELETE", pathOf(id));
    go("/ui/stores");
  };
  const one = store.value;
  return html`<h1>Vector store ${one?.name || ""} <code>${id}</code></h1><${Fault} error=${store.fault || files.fault} />
    ${one && html`<p class="facts"><span>${one.status.replace("_", " ")}</span><span>${number(one.file_counts.completed)} of ${number(one.file_counts.total)} files indexed</span><span>${size(one.usage_bytes)}</span><span>made ${clock(one.created_at)}</span></p>
      <${Search} id=${id} search=${search} />
      ${files.value && html`<${Attached} id=${id} files=${files.value} reload=${reload} />`}
      <h2>Delete</h2><p><button type="button" class="mg-danger" onClick=${() => setDoomed(true)}>Delete this store</button></p>`}
    ${isDoomed && html`<${Confirm} title="Delete this vector store?" text="Its index is removed. The files themselves stay in Files." action="Delete" onYes=${remove} onClose=${() => setDoomed(false)} />`}`;
}
