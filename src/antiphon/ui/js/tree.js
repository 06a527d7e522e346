// Which turn continues which, and how is that drawn? Pure: no network, no page.

/** @typedef {{id: string, previous_response_id: string | null, conversation_id: string | null}} Turn */

/**
 * @param {Turn[]} turns In the order in which they began.
 * @returns {Map<string, string | null>} The turn that each continues. A turn of a conversation continues the one before it there.
 */
export function parentsOf(turns) {
  const known = new Set(turns.map((one) => one.id));
  const last = new Map();
  const parents = new Map();
  for (const one of turns) {
    const given = one.previous_response_id;
    const conversation = one.conversation_id;
    parents.set(one.id, given && known.has(given) ? given : (conversation && last.get(conversation)) || null);
    if (conversation) last.set(conversation, one.id);
  }
  return parents;
}

/**
 * @param {Turn[]} turns
 * @returns {{turn: any, depth: number, isFork: boolean}[]} Rows from top to bottom: a fork stands between the turn it continues and
 *   the next turn of its branch, one step further to the right.
 */
export function rowsOf(turns) {
  const parents = parentsOf(turns);
  const children = new Map();
  for (const one of turns) {
    const parent = parents.get(one.id);
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(one);
  }
  const rows = [];
  const waiting = [...(children.get(null) || [])].reverse().map((turn) => ({ turn, depth: 0, isFork: false }));
  while (waiting.length) {
    const row = waiting.pop();
    rows.push(row);
    const [next, ...forks] = children.get(row.turn.id) || [];
    if (next) waiting.push({ turn: next, depth: row.depth, isFork: false });
    for (const fork of forks.reverse()) waiting.push({ turn: fork, depth: row.depth + 1, isFork: true });
  }
  return rows;
}

/** @param {Turn[]} turns @param {string} id @returns {string[]} From the root to this turn. */
export function pathTo(turns, id) {
  const parents = parentsOf(turns);
  const path = [];
  for (let at = id; at && parents.has(at); at = parents.get(at)) path.unshift(at);
  return path;
}

/** @param {Turn[]} turns @param {string} one @param {string} two @returns {{common: string[], a: string[], b: string[]}} Two branches, and what they share. */
export function branches(turns, one, two) {
  const [a, b] = [pathTo(turns, one), pathTo(turns, two)];
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) same += 1;
  return { common: a.slice(0, same), a: a.slice(same), b: b.slice(same) };
}
