// @ts-check
// A gateway on this machine, started when nothing answers at the address of the settings.
//
// It is `antiphon serve`, without arguments but its address: what it serves is up to its own
// configuration file, or the small embedded model. It ends with the window that started it.
'use strict';

const { spawn } = require('node:child_process');
const vscode = require('vscode');
const { BridgeError } = require('./bridge');
const { findProgram } = require('./find');
const { baseUrl, isLoopback, isOn } = require('./settings');

// The embedded model may have to be downloaded first.
const START = 300_000;
const PROBE = 2_000;

class Gateway {
  /** @param {vscode.LogOutputChannel} log */
  constructor(log) {
    this._log = log;
    /** @type {import('node:child_process').ChildProcess | undefined} */
    this._process = undefined;
    /** @type {Promise<void> | undefined} */
    this._starting = undefined;
  }

  /** Return when a server answers, if the user wants one to be started; else at once. */
  async ensure() {
    if (!isOn('startGateway') || !isLoopback(baseUrl())) return;
    if (this._process === undefined && !(await answers(baseUrl()))) await this.start();
  }

  /** Start a gateway; return when it serves. */
  start() {
    this._starting ??= this._start().finally(() => { this._starting = undefined; });
    return this._starting;
  }

  dispose() {
    this._process?.kill('SIGINT');
  }

  async _start() {
    const url = baseUrl();
    if (!isLoopback(url)) throw failure(`${url} is not an address of this machine.`);
    const { hostname, port } = new URL(url);
    const args = ['serve', '--host', hostname.replace(/[[\]]/g, ''), '--port', port || '80'];
    const child = spawn(findProgram(), args, { stdio: ['ignore', 'pipe', 'pipe'], windowsHide: true });
    this._process = child;
    child.once('close', () => { this._process = undefined; });
    const title = 'Starting a gateway with `antiphon serve` …';
    const location = vscode.ProgressLocation.Window;
    await vscode.window.withProgress({ location, title }, () => this._serving(child));
  }

  /**
   * Return when the process says that it serves.
   * @param {import('node:child_process').ChildProcess} child
   * @returns {Promise<void>}
   */
  _serving(child) {
    let last = '';
    return new Promise((resolve, reject) => {
      const alarm = setTimeout(() => reject(failure('The gateway takes too long to start.')), START);
      const read = (/** @type {Buffer} */ bytes) => {
        last = String(bytes).trim();
        this._log.info(`gateway: ${last}`);
        if (/ serves http/.test(last)) resolve();
      };
      child.stdout?.on('data', read);
      child.stderr?.on('data', read);
      child.once('error', (error) => reject(failure(error.message)));
      child.once('close', (code) => {
        clearTimeout(alarm);
        this._log.info(`gateway: ended with ${code}`);
        reject(failure(`The gateway ended with ${code}: ${last.split('\n').at(-1)}`));
      });
    });
  }
}

/** @param {string} message */
function failure(message) {
  return new BridgeError({ code: 'unreachable', message, action: 'The log has more.' });
}

/** @param {string} url */
async function answers(url) {
  try {
    await fetch(new URL('/healthz', url), { signal: AbortSignal.timeout(PROBE) });
    return true;
  } catch {
    return false;
  }
}

module.exports = { Gateway };
