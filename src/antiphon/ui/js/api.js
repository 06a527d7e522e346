// How is the gateway asked? Only documented routes of the same origin, with the key of this tab.

const KEY = "antiphon.key";

/** @returns {string} The key of this tab; empty without one. */
export const getKey = () => sessionStorage.getItem(KEY) || "";

/** @param {string} key Kept until the tab is closed; empty to forget it. */
export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** An answer that is not a success. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function ask(path, options = {}) {
  const key = getKey();
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new ApiError(answer.status, body?.error?.message || `HTTP ${answer.status}`);
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const getJson = async (path, signal) => (await ask(path, { signal })).json();

/**
 * @param {string} method
 * @param {string} path
 * @param {any} [body] Sent as JSON.
 * @returns {Promise<any>}
 */
export async function sendJson(method, path, body) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await ask(path, { method, ...sent })).json();
}

/**
 * Calls `onEvent` with the data of each server-sent event until the stream ends.
 * @param {string} path
 * @param {(data: any) => void} onEvent
 * @param {AbortSignal} signal
 * @param {RequestInit} [options] For a stream that a POST begins.
 */
export async function follow(path, onEvent, signal, options = {}) {
  const answer = await ask(path, { ...options, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:"));
      const text = data.map((line) => line.slice(5).trimStart()).join("\n");
      if (text && text !== "[DONE]") onEvent(JSON.parse(text));
    }
  }
}

/** @param {Record<string, string | number | undefined>} values @returns {string} */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
}
