// @ts-check
// A client of `antiphon host`: starts it and exchanges lines of JSON with it.
//
// The protocol is described in docs/reference/bridge.md. This module and `lines.js` need nothing
// of the editor and can be used by any program in Node.js. A bridge keeps its settings until it
// ends; other settings need another bridge. When the process ends, every request that still runs
// fails with the code `bridge_ended`.
'use strict';

const { spawn } = require('node:child_process');
const { EventEmitter } = require('node:events');
const { LineReader } = require('./lines');

const VERSION = 1;
const STDERR_KEPT = 2000;
const HELLO_PATIENCE = 60_000;

/** @typedef {{type: string, [field: string]: any}} Part A part of a message, as JSON. */
/** @typedef {{role: string, content: Part[], name?: string}} Message */
/** @typedef {{type: string, id?: number, [field: string]: any}} Answer */
/** @typedef {{last: string, resolve: (answer: Answer) => void, reject: (error: Error) => void, onPart?: (part: Part) => void}} Waiting */

/** A request failed: `message` is a sentence for the user, `action` what the user can do. */
class BridgeError extends Error {
  /** @param {{code: string, message: string, action?: string, status?: number, retry_after?: number | null}} fault */
  constructor(fault) {
    super(fault.message);
    this.code = fault.code;
    this.action = fault.action ?? '';
    this.status = fault.status ?? 0;
    this.retryAfter = fault.retry_after ?? null;
  }
}

/** Events: `usage`, `log` and `models_changed` with the message of that type; `end` with an error. */
class Bridge extends EventEmitter {
  /** @param {{command: string, args?: string[], name?: string, settings?: Record<string, unknown>}} how */
  constructor({ command, args = ['host'], name = 'node', settings = {} }) {
    super();
    /** @type {Map<number, Waiting>} */
    this._waiting = new Map();
    this._lastId = 0;
    this._errors = '';
    this._reader = new LineReader();
    this.hasEnded = false;
    this._isRetired = false;
    this._process = spawn(command, args, { stdio: 'pipe', windowsHide: true });
    this._process.stdout.on('data', (bytes) => this._read(bytes));
    this._process.stderr.on('data', (bytes) => this._keepErrors(String(bytes)));
    // The process has gone or is about to: `close` reports it, with what it wrote last.
    this._process.stdin.on('error', () => {});
    this._process.on('error', (error) => this._end(`${command} cannot be started: ${error.message}.`));
    this._process.on('close', (code, signal) => this._end(this._describeEnd(code ?? signal)));
    /** @type {Promise<Answer>} The first answer; rejected if the bridge cannot be used. */
    this.welcome = new Promise((resolve, reject) => {
      this._waiting.set(0, { last: 'welcome', resolve, reject });
    });
    this.welcome.catch(() => {});
    const late = () => this.kill(`${command} did not answer within ${HELLO_PATIENCE / 1000} seconds.`);
    this._alarm = setTimeout(late, HELLO_PATIENCE);
    this._send({ type: 'hello', version: VERSION, name, settings });
  }

  get running() {
    return this._waiting.size;
  }

  /** @returns {Promise<any[]>} */
  async models(refresh = false) {
    return (await this._ask({ type: 'models', refresh }, 'models')).models;
  }

  /**
   * Return the tokens of each content.
   * @param {string} model
   * @param {(string | Message)[]} contents
   * @returns {Promise<number[]>}
   */
  async count(model, contents) {
    return (await this._ask({ type: 'count', model, contents }, 'counted')).tokens;
  }

  /** @param {{model: string, messages: Message[], options?: object}} request */
  measure(request) {
    return this._ask({ type: 'measure', ...request }, 'measured');
  }

  /**
   * Have a conversation answered; return the message `done` after all parts.
   * @param {{model: string, messages: Message[], options?: object}} request
   * @param {(part: Part) => void} onPart
   * @param {AbortSignal} [signal]
   */
  respond(request, onPart, signal) {
    return this._ask({ type: 'respond', ...request }, 'done', onPart, signal);
  }

  /** Let requests that run come to their end, then end the process. */
  retire() {
    this._isRetired = true;
    if (this.running === 0) this._process.stdin.end();
  }

  /** End the process now. @param {string} reason */
  kill(reason) {
    this._end(reason);
    this._process.kill();
  }

  /**
   * @param {Record<string, unknown>} question
   * @param {string} last
   * @param {(part: Part) => void} [onPart]
   * @param {AbortSignal} [signal]
   * @returns {Promise<Answer>}
   */
  async _ask(question, last, onPart, signal) {
    await this.welcome;
    if (signal?.aborted) throw new BridgeError({ code: 'cancelled', message: 'Cancelled.' });
    const id = (this._lastId += 1);
    const cancel = () => this._send({ type: 'cancel', id });
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      return await new Promise((resolve, reject) => {
        this._waiting.set(id, { last, resolve, reject, onPart });
        this._send({ ...question, id });
      });
    } finally {
      signal?.removeEventListener('abort', cancel);
      if (this._isRetired) this.retire();
    }
  }

  /** @param {object} message */
  _send(message) {
    if (!this.hasEnded) this._process.stdin.write(`${JSON.stringify(message)}\n`);
    else this._end('The bridge has ended.');
  }

  /** @param {Buffer} bytes */
  _read(bytes) {
    for (const line of this._reader.feed(bytes)) {
      try {
        this._receive(JSON.parse(line ?? ''));
      } catch (error) {
        this.emit('log', { level: 'error', message: `A line of the bridge is not valid: ${error}` });
      }
    }
  }

  /** @param {Answer} answer */
  _receive(answer) {
    const id = answer.type === 'welcome' ? 0 : (answer.id ?? (this._waiting.has(0) ? 0 : -1));
    const waiting = this._waiting.get(id);
    if (waiting === undefined) this._announce(answer);
    else if (answer.type === 'parts') for (const part of answer.parts) waiting.onPart?.(part);
    else if (answer.type === 'error') this._settle(id).reject(new BridgeError(answer.error));
    else if (answer.type === waiting.last) this._settle(id).resolve(answer);
    else this._announce(answer);
  }

  /** @param {Answer} answer */
  _announce(answer) {
    if (answer.type === 'error') {
      this.emit('log', { level: 'error', message: `The bridge reports: ${answer.error.message}` });
    } else if (answer.id === undefined) this.emit(answer.type, answer);
  }

  /** @param {number} id */
  _settle(id) {
    const waiting = /** @type {Waiting} */ (this._waiting.get(id));
    this._waiting.delete(id);
    if (id === 0) clearTimeout(this._alarm);
    return waiting;
  }

  /** @param {string} text */
  _keepErrors(text) {
    this._errors = (this._errors + text).slice(-STDERR_KEPT);
    this.emit('log', { level: 'info', message: text.trimEnd() });
  }

  /** @param {number | string | null} code */
  _describeEnd(code) {
    const last = this._errors.trim().split('\n').at(-1);
    return `The bridge has ended (${code})${last ? `: ${last}` : '.'}`;
  }

  /** @param {string} reason */
  _end(reason) {
    const error = new BridgeError({ code: 'bridge_ended', message: reason, action: 'Ask again.' });
    const isFirst = !this.hasEnded;
    this.hasEnded = true;
    for (const id of [...this._waiting.keys()]) this._settle(id).reject(error);
    if (isFirst) this.emit('end', error);
  }
}

module.exports = { Bridge, BridgeError, VERSION };
