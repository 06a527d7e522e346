// @ts-check
// How many tokens has a text? Answered from memory where it was asked before.
//
// The editor counts the tools of a chat leaf by leaf: thousands of calls. Calls of one tick go to
// the bridge in one message. What is learned from an answer changes counts, so the memory is
// cleared after each turn.
'use strict';

const MAX_KEPT = 20_000;
const MAX_LENGTH = 2_000;

/** @typedef {string | import('./bridge').Message} Content */
/** @typedef {{contents: Content[], counted: Promise<number[]>}} Batch */

class Counter {
  /** @param {(model: string, contents: Content[]) => Promise<number[]>} ask */
  constructor(ask) {
    this._ask = ask;
    /** @type {Map<string, number>} */
    this._kept = new Map();
    /** @type {Map<string, Batch>} */
    this._batches = new Map();
    this._generation = 0;
  }

  clear() {
    this._kept.clear();
    this._generation += 1;
  }

  /**
   * @param {string} model
   * @param {Content} content
   */
  async count(model, content) {
    if (typeof content !== 'string' || content.length > MAX_LENGTH) return this._join(model, content);
    const key = `${model}\0${content}`;
    const known = this._kept.get(key);
    if (known !== undefined) return known;
    const generation = this._generation;
    const tokens = await this._join(model, content);
    if (generation === this._generation) this._keep(key, tokens);
    return tokens;
  }

  /**
   * @param {string} key
   * @param {number} tokens
   */
  _keep(key, tokens) {
    if (this._kept.size >= MAX_KEPT) this._kept.delete(/** @type {string} */ (this._kept.keys().next().value));
    this._kept.set(key, tokens);
  }

  /**
   * Add a content to the message that is sent at the end of this tick.
   * @param {string} model
   * @param {Content} content
   */
  async _join(model, content) {
    const batch = this._batches.get(model) ?? this._open(model);
    const place = batch.contents.push(content) - 1;
    return (await batch.counted)[place];
  }

  /** @param {string} model */
  _open(model) {
    /** @type {Content[]} */
    const contents = [];
    const counted = new Promise((resolve) => { setImmediate(resolve); }).then(() => {
      this._batches.delete(model);
      return this._ask(model, contents);
    });
    const batch = { contents, counted };
    this._batches.set(model, batch);
    return batch;
  }
}

module.exports = { Counter };
