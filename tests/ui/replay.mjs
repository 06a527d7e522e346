// Compares the states of a replay at many places, in many orders, with what the events say.
//
//   node replay.mjs REPLAY_MODULE SEED

import { pathToFileURL } from 'node:url';

const [path, seed] = process.argv.slice(2);
const { Replay, textOf } = await import(pathToFileURL(path));

let state = Number(seed) * 7919;
const below = (limit) => {
  state = (state * 48_271) % 2_147_483_647;
  return state % limit;
};
const TYPES = ['output_text', 'refusal', 'reasoning_text', 'function_call_arguments'];
const events = [{ type: 'response.created', response: { status: 'in_progress' } }];
const opened = [];
while (events.length < 1500) {
  const choice = below(20);
  if (choice === 0 || !opened.length) {
    opened.push(opened.length);
    events.push({ type: 'response.output_item.added', output_index: opened.length - 1, item: { type: 'message', status: 'in_progress' } });
  } else if (choice === 1) {
    events.push({ type: 'response.output_item.done', output_index: below(opened.length), item: { type: 'message', status: 'completed' } });
  } else {
    events.push({ type: `response.${TYPES[below(TYPES.length)]}.delta`, output_index: below(opened.length), delta: String.fromCharCode(97 + below(26)) });
  }
}
events.push({ type: 'response.completed', response: { status: 'completed' } });
events.forEach((event, index) => { event.sequence_number = index; });

// What a state must be, written without a fold: by looking back from the place.
const FIELDS = { output_text: 'text', refusal: 'refusal', reasoning_text: 'reasoning', function_call_arguments: 'arguments' };
const expected = (count) => {
  const past = events.slice(0, count);
  const items = opened.map((index) => {
    const own = past.filter((event) => event.output_index === index);
    const whole = own.filter((event) => event.item).at(-1);
    if (!whole) return null;
    const pieces = Object.entries(FIELDS).map(([type, field]) =>
      [field, own.filter((event) => event.type === `response.${type}.delta`).map((event) => event.delta).join('')]);
    return { item: whole.item, pieces: pieces.filter(([, text]) => text).sort(), isDone: own.some((event) => event.type === 'response.output_item.done') };
  }).filter(Boolean);
  return JSON.stringify([count, past.filter((event) => event.response).at(-1)?.response.status ?? '', items]);
};
const seen = (one) => JSON.stringify([one.count, one.status,
  one.items.filter(Boolean).map(({ item, pieces, isDone }) => ({ item, pieces: Object.entries(pieces).sort(), isDone }))]);

const replay = new Replay();
let added = 0;
const batches = [];
for (let step = 0; step < 400; step += 1) {
  const more = Math.min(events.length - added, below(12));  // as a live stream grows
  for (let index = 0; index < more; index += 1) replay.add(events[added + index]);
  if (more) batches.push({ first: added, last: added + more - 1, ms: step * 7 });
  added += more;
  const place = below(added + 1);
  const found = replay.at(place);
  if (seen(found) !== expected(place)) throw new Error(`the state at ${place} of ${added} is another one`);
  // A state belongs to its reader: what is done to it is not seen later.
  if (found.items[0]) found.items[0].pieces.text = 'changed';
}
if (added < 1000) throw new Error(`only ${added} events`);
events.slice(added).forEach((event) => replay.add(event));
if (seen(replay.at(events.length)) !== expected(events.length)) throw new Error('the end is another one');
if (!textOf(replay.at(events.length))) throw new Error('there is no text');
replay.batches = batches;
for (const batch of batches) {
  for (let number = batch.first; number <= batch.last; number += 1) {
    if (replay.time(number) !== batch.ms) throw new Error(`event ${number} is at ${replay.time(number)}, not ${batch.ms}`);
  }
}
