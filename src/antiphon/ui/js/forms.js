// What the screens share that manage something: reading, tables, and questions before a change.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { getJson } from "./api.js";
import { Fault } from "./shell.js";

/**
 * Reads something, and again after a change.
 * @param {() => Promise<any>} load @param {any[]} inputs
 */
export function useRead(load, inputs) {
  const [state, setState] = useState({ value: null, fault: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isWanted = true;
    load().then((value) => isWanted && setState({ value, fault: null }), (fault) => isWanted && setState({ value: null, fault }));
    return () => { isWanted = false; };
  }, [...inputs, turn]);
  return { ...state, reload: () => setTurn((now) => now + 1) };
}

/** All objects of a list that has pages, up to a bound. @param {string} path @param {number} most */
export async function readAll(path, most = 1000) {
  const found = [];
  for (let after = ""; ;) {
    const page = await getJson(`${path}${path.includes("?") ? "&" : "?"}limit=100${after && `&after=${encodeURIComponent(after)}`}`);
    found.push(...page.data);
    if (!page.has_more || found.length >= most) return found;
    after = page.last_id;
  }
}

/**
 * Runs a change; says what went wrong, and whether it runs.
 * @returns {{run: (change: () => Promise<any>) => Promise<any>, isBusy: boolean, fault: any}}
 */
export function useChange() {
  const [isBusy, setBusy] = useState(false);
  const [fault, setFault] = useState(null);
  const run = async (change) => {
    setBusy(true);
    setFault(null);
    try {
      return await change();
    } catch (error) {
      setFault(error);
      return undefined;
    } finally {
      setBusy(false);
    }
  };
  return { run, isBusy, fault };
}

/** @param {{label: string, columns: string[], rows: any[][], empty: string}} props */
export function Table({ label, columns, rows, empty }) {
  if (!rows.length) return html`<p class="note">${empty}</p>`;
  return html`<div class="wide mg-table" tabindex="0" role="region" aria-label=${label}><table aria-label=${label}>
    <thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** A question before something is removed. @param {{title: string, text: string, action: string, onYes: () => Promise<any>, onClose: () => void}} props */
export function Confirm({ title, text, action, onYes, onClose }) {
  const box = useRef(null);
  const change = useChange();
  useEffect(() => box.current.showModal(), []);
  const yes = () => change.run(async () => {
    await onYes();
    box.current?.close();
  });
  return html`<dialog ref=${box} aria-labelledby="mg-confirm" onClose=${onClose}><h2 id="mg-confirm">${title}</h2><p>${text}</p>
    <${Fault} error=${change.fault} />
    <p class="mg-buttons"><button type="button" onClick=${() => box.current.close()}>Keep it</button> <button type="button" class="mg-danger" disabled=${change.isBusy} onClick=${yes}>${action}</button></p></dialog>`;
}

/** A secret that is shown once. @param {{name: string, value: string, onClose: () => void}} props */
export function Secret({ name, value, onClose }) {
  const box = useRef(null);
  const [isStored, setStored] = useState(false);
  const [isCopied, setCopied] = useState(false);
  useEffect(() => box.current.showModal(), []);
  const copy = () => navigator.clipboard.writeText(value).then(() => setCopied(true), () => getSelection().selectAllChildren(box.current.querySelector("code")));
  const leave = (event) => !isStored && event.preventDefault();
  return html`<dialog ref=${box} aria-labelledby="mg-secret" onCancel=${leave} onClose=${onClose}><h2 id="mg-secret">The key ${name}</h2>
    <p>It is shown now, and never again: the gateway keeps only its SHA-256.</p>
    <p class="mg-secret"><code tabindex="0" data-secret>${value}</code> <button type="button" onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button></p>
    <label class="check"><input type="checkbox" checked=${isStored} onChange=${(event) => setStored(event.target.checked)} /> I have stored it</label>
    <p class="mg-buttons"><button type="button" disabled=${!isStored} onClick=${() => box.current.close()}>Close</button></p></dialog>`;
}

/** The fields of a form by their names; empty ones are left out. @param {Event} event */
export function fieldsOf(event) {
  event.preventDefault();
  const found = [...new FormData(event.target)].map(([name, value]) => [name, String(value).trim()]);
  return Object.fromEntries(found.filter(([, value]) => value));
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < 3) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}
