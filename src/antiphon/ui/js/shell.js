// What every screen shares: links, keys, faults, and where we are.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";

/** @param {string} path Below /ui. */
export function go(path) {
  history.pushState(null, "", path);
  dispatchEvent(new Event("antiphon-moved"));
}

/** Change the query of this screen. @param {Record<string, string>} changes Empty ones go. */
export function setSearch(changes) {
  const search = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) search.set(name, value);
    else search.delete(name);
  }
  const text = search.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  dispatchEvent(new Event("antiphon-moved"));
}

/**
 * A field whose value is part of the address. What is typed stays while the screen around it is drawn again.
 * @param {{name: string, label: string, value: string | null, box?: any}} props
 */
export function SearchField({ name, label, value, box }) {
  const [typed, setTyped] = useState(null);
  const take = (event) => {
    setTyped(null);
    setSearch({ [name]: event.target.value.trim() });
  };
  return html`<label>${label} <input name=${name} ref=${box} value=${typed ?? value ?? ""} onInput=${(event) => setTyped(event.target.value)} onChange=${take} /></label>`;
}

/** @param {{to: string, children?: any, title?: string, current?: boolean}} props */
export function Link({ to, children, title, current }) {
  const move = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    event.stopPropagation();
    go(to);
  };
  return html`<a href=${to} title=${title} aria-current=${current ? "page" : undefined} onClick=${move}>${children}</a>`;
}

/** @param {{error: any}} props */
export const Fault = ({ error }) => error && html`<p class="fault" role="alert">${error.message}</p>`;

const isTyping = (target) => target instanceof HTMLElement && ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName);

/** Calls what belongs to a key, unless it is typed into a field. @param {Record<string, () => void>} keys */
export function useKeys(keys) {
  const newest = useRef(keys);
  newest.current = keys;
  useEffect(() => {
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const isOnControl = event.target instanceof HTMLElement && ["A", "BUTTON", "SUMMARY"].includes(event.target.tagName);
      if (isOnControl && (event.key === "Enter" || event.key === " ")) return;
      const run = newest.current[event.key];
      if (run) {
        event.preventDefault();
        run();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}
