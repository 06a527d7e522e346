// @ts-check
// Which bridge answers now? The latest one; a new one if it has ended or the settings changed.
//
// A bridge that ends by itself is started again when it is needed, after a wait that doubles each
// time. A bridge whose settings are old finishes its requests and then ends.
'use strict';

const { Bridge, BridgeError } = require('./bridge');

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8_000;
const SOUND = 60_000;

/** @typedef {{command: string, args?: string[], name?: string, settings?: Record<string, unknown>}} How */

class Keeper {
  /**
   * @param {() => Promise<How>} how returns what to start; it may throw a BridgeError
   * @param {(bridge: Bridge) => void} onStart is called with each new bridge, to listen to it
   */
  constructor(how, onStart) {
    this._how = how;
    this._onStart = onStart;
    /** @type {Promise<Bridge> | undefined} */
    this._current = undefined;
    /** @type {Set<Bridge>} */
    this._alive = new Set();
    this._generation = 0;
    this._failures = 0;
    this._notBefore = 0;
    this._isDisposed = false;
  }

  /** How often in a row a bridge has ended by itself. */
  get failures() {
    return this._failures;
  }

  /** Return the bridge for a new request. */
  get() {
    this._current ??= this._start();
    return this._current;
  }

  /** Use another bridge from now on; the old one ends after its last request. */
  replace() {
    const old = this._current;
    this._current = undefined;
    this._generation += 1;
    this._failures = 0;
    this._notBefore = 0;
    old?.then((bridge) => bridge.retire(), () => {});
  }

  dispose() {
    this._isDisposed = true;
    for (const bridge of this._alive) bridge.kill('The window is closed.');
  }

  async _start() {
    const generation = this._generation;
    try {
      await sleep(this._notBefore - Date.now());
      if (this._isDisposed) throw new BridgeError({ code: 'cancelled', message: 'The window is closed.' });
      const bridge = new Bridge(await this._how());
      this._watch(bridge, generation);
      this._onStart(bridge);
      return bridge;
    } catch (error) {
      if (generation === this._generation) this._current = undefined;
      throw error;
    }
  }

  /**
   * @param {Bridge} bridge
   * @param {number} generation
   */
  _watch(bridge, generation) {
    const started = Date.now();
    this._alive.add(bridge);
    bridge.once('end', () => {
      this._alive.delete(bridge);
      if (generation !== this._generation || this._isDisposed) return;
      this._current = undefined;
      this._failures = Date.now() - started > SOUND ? 1 : this._failures + 1;
      const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** (this._failures - 1));
      this._notBefore = Date.now() + wait;
    });
  }
}

/** @param {number} milliseconds */
function sleep(milliseconds) {
  if (milliseconds <= 0) return Promise.resolve();
  return new Promise((resolve) => { setTimeout(resolve, milliseconds); });
}

module.exports = { Keeper };
