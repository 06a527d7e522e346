// What changed between two requests to a model, and how far is their beginning the same? Pure: no network, no page.
//
// A provider caches the beginning of a request: tools and instructions come first, then the messages in their order. A request
// is cut into such parts; the first one that differs is where a cache breaks.

/** @typedef {{kind: string, name: string, value: any, json: string}} Part */

const FIRST = ["tools", "system", "instructions", "systemInstruction", "system_instruction"];
const LISTS = ["messages", "input", "contents"];

/** @param {string} kind @param {string} name @param {any} value @returns {Part} */
const part = (kind, name, value) => ({ kind, name, value, json: JSON.stringify(value) });

const nameOf = (value) => value?.function?.name || value?.name || value?.server_label || value?.type || "";

/** @param {any} body Of a request, on any wire. @returns {Part[]} What the model reads, in the order of a cache. */
export function partsOf(body) {
  const found = [];
  for (const field of FIRST) {
    const value = body?.[field];
    if (value === undefined || value === null) continue;
    if (field === "tools" && Array.isArray(value)) value.forEach((tool) => found.push(part("tool", nameOf(tool), tool)));
    else found.push(part(field, "", value));
  }
  for (const field of LISTS) {
    const value = body?.[field];
    if (Array.isArray(value)) value.forEach((one, index) => found.push(part(one?.role || one?.type || field, `${field} ${index + 1}`, one)));
    else if (value !== undefined) found.push(part(field, "", value));
  }
  return found;
}

/** @param {any} body @returns {Record<string, string>} Everything else, as JSON: what the model is asked with. */
export const settingsOf = (body) =>
  Object.fromEntries(Object.entries(body || {}).filter(([name]) => !FIRST.includes(name) && !LISTS.includes(name)).map(([name, value]) => [name, JSON.stringify(value)]));

/** @param {string} one @param {string} two @returns {number} How many characters are the same at the beginning. */
function common(one, two) {
  const most = Math.min(one.length, two.length);
  let place = 0;
  while (place < most && one[place] === two[place]) place += 1;
  return place;
}

/**
 * @param {any} before A request, or null if there is none.
 * @param {any} now
 * @returns {{parts: (Part & {state: string})[], dropped: Part[], same: number, isBroken: boolean, sameCharacters: number, characters: number, settings: {name: string, before?: string, now?: string}[]}}
 */
export function compare(before, now) {
  const [old, parts] = [before ? partsOf(before) : [], partsOf(now)];
  let same = 0;
  while (same < parts.length && same < old.length && parts[same].json === old[same].json) same += 1;
  const rest = new Map();
  for (const one of old.slice(same)) rest.set(one.json, (rest.get(one.json) || 0) + 1);
  const marked = parts.map((one, index) => {
    if (index < same) return { ...one, state: "same" };
    const left = rest.get(one.json) || 0;
    if (left) rest.set(one.json, left - 1);
    return { ...one, state: !before ? "first" : left ? "after" : "added" };
  });
  const dropped = old.slice(same).filter((one) => {
    const left = rest.get(one.json) || 0;
    if (left) rest.set(one.json, left - 1);
    return left > 0;
  });
  const length = (some) => some.reduce((sum, one) => sum + one.json.length, 0);
  const inside = same < parts.length && same < old.length ? common(parts[same].json, old[same].json) : 0;
  const [was, is] = [before ? settingsOf(before) : {}, settingsOf(now)];
  const names = [...new Set([...Object.keys(was), ...Object.keys(is)])];
  return {
    parts: marked,
    dropped,
    same,
    isBroken: same < old.length,
    sameCharacters: length(parts.slice(0, same)) + inside,
    characters: length(parts),
    settings: names.filter((name) => !before || was[name] !== is[name]).map((name) => ({ name, before: was[name], now: is[name] })),
  };
}
