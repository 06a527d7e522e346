// Screen: the files of this project.
import { html, useState } from "../vendor/preact-htm.js";
import { ask, getKey, sendJson } from "./api.js";
import { Confirm, Table, readAll, size, useRead } from "./forms.js";
import { clock, some } from "./format.js";
import { Fault } from "./shell.js";

const PURPOSES = ["user_data", "assistants", "vision", "batch", "fine-tune", "evals"];

/**
 * Stores a file. `fetch` does not report how much was sent, so this is the older API.
 * @param {File} file @param {string} purpose @param {(share: number) => void} onProgress
 * @returns {Promise<any>}
 */
export function upload(file, purpose, onProgress) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    form.append("purpose", purpose);
    form.append("file", file);
    const request = new XMLHttpRequest();
    request.open("POST", "/v1/files");
    if (getKey()) request.setRequestHeader("Authorization", `Bearer ${getKey()}`);
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onerror = () => reject(new Error("The connection was lost."));
    request.onload = () => {
      let body = null;
      try {
        body = JSON.parse(request.responseText);
      } catch {
        body = null;
      }
      if (request.status === 200) resolve(body);
      else reject(new Error(body?.error?.message || `HTTP ${request.status}`));
    };
    request.send(form);
  });
}

async function download(file) {
  const answer = await ask(`/v1/files/${encodeURIComponent(file.id)}/content`);
  const url = URL.createObjectURL(await answer.blob());
  Object.assign(document.createElement("a"), { href: url, download: file.filename }).click();
  URL.revokeObjectURL(url);
}

/** Files on their way here, with how far each is. */
function Uploads({ onDone }) {
  const [purpose, setPurpose] = useState(PURPOSES[0]);
  const [running, setRunning] = useState([]);
  const send = async (input) => {
    const files = [...input.files];
    input.value = "";
    await Promise.all(files.map(async (file) => {
      const entry = { name: file.name, share: 0, fault: null };
      setRunning((now) => [...now, entry]);
      const set = (change) => setRunning((now) => now.map((one) => (one.name === entry.name ? { ...one, ...change } : one)));
      try {
        await upload(file, purpose, (share) => set({ share }));
        setRunning((now) => now.filter((one) => one.name !== entry.name));
        onDone();
      } catch (fault) {
        set({ fault });
      }
    }));
  };
  return html`<form class="filters" aria-label="Upload" onSubmit=${(event) => event.preventDefault()}>
      <label>Purpose <select onChange=${(event) => setPurpose(event.target.value)}>${PURPOSES.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>Upload files <input type="file" multiple onChange=${(event) => send(event.target)} /></label></form>
    ${running.map((one) => (one.fault ? html`<${Fault} error=${new Error(`${one.name}: ${one.fault.message}`)} />`
      : html`<p><label>${one.name} <progress max="1" value=${one.share}></progress></label> ${Math.round(100 * one.share)} %</p>`))}`;
}

export function Files() {
  const { value, fault, reload } = useRead(() => readAll("/v1/files"), []);
  const [doomed, setDoomed] = useState(null);
  const [problem, setProblem] = useState(null);
  const remove = async () => {
    await sendJson("DELETE", `/v1/files/${encodeURIComponent(doomed.id)}`);
    reload();
  };
  return html`<h1>Files</h1><${Uploads} onDone=${reload} /><${Fault} error=${fault || problem} />
    ${value && html`<p class="note" role="status">${some(value.length, "file")}, ${size(value.reduce((sum, one) => sum + one.bytes, 0))}.</p>
      <${Table} label="Files" columns=${["Name", "Id", "Purpose", "Size", "Stored", "Actions"]} empty="No file is stored yet."
      rows=${value.map((one) => [
        html`<button type="button" class="plain" title="Download" onClick=${() => download(one).catch(setProblem)}>${one.filename}</button>`,
        html`<code>${one.id}</code>`, one.purpose, size(one.bytes), clock(one.created_at),
        html`<button type="button" aria-label=${`Delete ${one.filename}`} onClick=${() => setDoomed(one)}>Delete</button>`])} />`}
    ${doomed && html`<${Confirm} title="Delete this file?" text=${`${doomed.filename} is removed from Files and from every vector store. This cannot be undone.`} action="Delete" onYes=${remove} onClose=${() => setDoomed(null)} />`}`;
}
