// What did a client know after the first n events of a stream? Pure: no network, no page.
//
// A state is a function of the events alone, so it is the same whether they were played, stepped
// or jumped to. Every CHECKPOINT-th state is kept, so that a jump folds few events.

const CHECKPOINT = 256;

/** Which field of an item grows with the deltas of a type. */
const GROWING = {
  "response.output_text.delta": "text",
  "response.refusal.delta": "refusal",
  "response.reasoning_text.delta": "reasoning",
  "response.reasoning_summary_text.delta": "summary",
  "response.function_call_arguments.delta": "arguments",
  "response.custom_tool_call_input.delta": "input",
  "response.code_interpreter_call_code.delta": "code",
  "response.mcp_call_arguments.delta": "arguments",
};

/**
 * @typedef {{item: any, pieces: Record<string, string>, isDone: boolean}} OpenItem
 * @typedef {{count: number, status: string, items: OpenItem[]}} State
 */

/** @returns {State} */
const nothing = () => ({ count: 0, status: "", items: [] });

/** @param {State} state @returns {State} */
const copy = (state) => ({
  ...state,
  items: state.items.map((one) => one && { ...one, pieces: { ...one.pieces } }),
});

/** @param {State} state @param {any} event */
function apply(state, event) {
  state.count += 1;
  if (event.response?.status) state.status = event.response.status;
  const index = event.output_index;
  if (event.type === "response.output_item.added") {
    state.items[index] = { item: event.item, pieces: {}, isDone: false };
  } else if (event.type === "response.output_item.done") {
    const pieces = state.items[index]?.pieces || {};
    state.items[index] = { item: event.item, pieces, isDone: true };
  } else if (Object.hasOwn(GROWING, event.type) && state.items[index]) {
    const field = GROWING[event.type];
    const pieces = state.items[index].pieces;
    pieces[field] = (pieces[field] || "") + event.delta;
  }
}

/** The events of a response, and the state after any number of them. */
export class Replay {
  constructor() {
    /** @type {any[]} */
    this.events = [];
    /** @type {{first: number, last: number, ms: number}[]} */
    this.batches = [];
    this.kept = [nothing()];
  }

  /** @param {any} event */
  add(event) {
    this.events.push(event);
  }

  /** @param {number} count How many events have happened. @returns {State} */
  at(count) {
    const wanted = Math.max(0, Math.min(count, this.events.length));
    let place = Math.min(Math.floor(wanted / CHECKPOINT), this.kept.length - 1);
    let state = copy(this.kept[place]);
    while (state.count < wanted) {
      apply(state, this.events[state.count]);
      if (state.count % CHECKPOINT === 0 && state.count / CHECKPOINT === this.kept.length) {
        this.kept.push(copy(state));
      }
    }
    return state;
  }

  /** @returns {boolean} Whether the log has times: a log of an old version has only an order. */
  get hasTempo() {
    return this.batches.some((batch) => batch.ms > 0);
  }

  /** @param {number} index Of an event. @returns {number} Its time in ms since the beginning. */
  time(index) {
    const number = this.events[index]?.sequence_number ?? index;
    let low = 0;
    let high = this.batches.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.batches[middle].first <= number) low = middle;
      else high = middle - 1;
    }
    return this.batches[low]?.ms ?? 0;
  }
}

/** @param {State} state @returns {string} The text that a person would see by now. */
export const textOf = (state) =>
  state.items
    .filter(Boolean)
    .map((one) => one.pieces.text || one.pieces.refusal || "")
    .filter(Boolean)
    .join("\n\n");
