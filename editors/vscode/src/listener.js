// @ts-check
// Lets a local gateway use the editor's models: a socket on loopback, and a file that names it.
//
// Off by default. Only a program that can read the file, which belongs to the user alone, knows
// the token. Lines, connections and requests have limits.
'use strict';

const { createHash, randomBytes, timingSafeEqual } = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs/promises');
const net = require('node:net');
const path = require('node:path');
const vscode = require('vscode');
const { VERSION } = require('./bridge');
const { dataDirectory } = require('./find');
const { LineReader, MAX_LINE_BYTES } = require('./lines');
const offer = require('./offer');

const MAX_CONNECTIONS = 8;
const MAX_REQUESTS = 64;
const MAX_HELLO_BYTES = 64 * 1024;
const HELLO_PATIENCE = 10_000;

class Listener {
  /**
   * @param {vscode.LogOutputChannel} log
   * @param {string} software
   */
  constructor(log, software) {
    this._log = log;
    this._software = software;
    this._token = randomBytes(32).toString('hex');
    this._file = path.join(dataDirectory(), 'editor.json');
    /** @type {Set<net.Socket>} */
    this._sockets = new Set();
    this._server = net.createServer((socket) => this._accept(socket));
    this._server.maxConnections = MAX_CONNECTIONS;
  }

  async start() {
    this._server.listen(0, '127.0.0.1');
    await once(this._server, 'listening');
    const { port } = /** @type {net.AddressInfo} */ (this._server.address());
    const address = `127.0.0.1:${port}`;
    const name = `${vscode.env.appName} ${vscode.version}`;
    const told = { version: VERSION, address, token: this._token, pid: process.pid, name };
    await fs.mkdir(path.dirname(this._file), { recursive: true, mode: 0o700 });
    const fresh = `${this._file}.${process.pid}`;
    await fs.writeFile(fresh, `${JSON.stringify(told)}\n`, { mode: 0o600 });
    await fs.rename(fresh, this._file);
    this._log.info(`The models of the editor are offered at ${address}, as ${this._file} says.`);
  }

  async dispose() {
    this._server.close();
    for (const socket of this._sockets) socket.destroy();
    const told = await fs.readFile(this._file, 'utf8').catch(() => '');
    if (told.includes(this._token)) await fs.unlink(this._file);
  }

  /** @param {net.Socket} socket */
  _accept(socket) {
    this._sockets.add(socket);
    const session = new Session(socket, this._token, this._software, this._log);
    socket.once('close', () => {
      this._sockets.delete(socket);
      session.end();
    });
  }
}

class Session {
  /**
   * @param {net.Socket} socket
   * @param {string} token
   * @param {string} software
   * @param {vscode.LogOutputChannel} log
   */
  constructor(socket, token, software, log) {
    this._socket = socket;
    this._token = token;
    this._software = software;
    this._log = log;
    /** @type {Map<string | number, vscode.CancellationTokenSource>} */
    this._running = new Map();
    this._reader = new LineReader(MAX_HELLO_BYTES);
    this._isGreeted = false;
    this._alarm = setTimeout(() => socket.destroy(), HELLO_PATIENCE);
    socket.setNoDelay(true);
    socket.on('data', (bytes) => this._read(bytes));
    socket.on('error', (error) => log.debug(`editor models: ${error.message}`));
  }

  end() {
    clearTimeout(this._alarm);
    for (const source of this._running.values()) source.cancel();
  }

  /** @param {Buffer} bytes */
  _read(bytes) {
    for (const line of this._reader.feed(bytes)) {
      if (this._socket.writableEnded) return;
      const question = parse(line);
      if (!question) this._fail(undefined, line === null ? 'line_too_long' : 'invalid_message', 'Not a message.');
      else if (question.type === 'hello') this._greet(question);
      else if (!this._isGreeted) this._fail(question.id, 'not_greeted', 'Send hello first.');
      else this._answer(question);
    }
  }

  /** @param {any} hello */
  _greet(hello) {
    const [given, own] = [hello.token, this._token].map((text) => createHash('sha256').update(String(text)).digest());
    if (!timingSafeEqual(given, own)) return this._refuse('auth_failed', 'The token is wrong.');
    if (hello.version !== VERSION) return this._refuse('unsupported_version', `This is version ${VERSION}.`);
    clearTimeout(this._alarm);
    this._isGreeted = true;
    this._reader.maxBytes = MAX_LINE_BYTES;
    const limits = { max_line_bytes: MAX_LINE_BYTES, max_requests: MAX_REQUESTS };
    this._send({ type: 'welcome', version: VERSION, name: 'editor', software: this._software, ...limits });
  }

  /** @param {any} question */
  async _answer(question) {
    const { type, id } = question;
    if (type === 'cancel') return this._running.get(id)?.cancel();
    if (id === undefined) return this._fail(undefined, 'invalid_message', 'A request needs an id.');
    if (this._running.has(id)) return this._fail(id, 'duplicate_id', 'A request with this id still runs.');
    if (this._running.size >= MAX_REQUESTS) return this._fail(id, 'too_many_requests', 'Too many requests run.');
    const source = new vscode.CancellationTokenSource();
    this._running.set(id, source);
    try {
      const answer = await this._work(question, source.token);
      await this._send({ ...answer, id });
    } catch (error) {
      const fault = source.token.isCancellationRequested ? offer.faultOf(new vscode.CancellationError()) : offer.faultOf(error);
      this._log.warn(`editor models: ${fault.code}: ${fault.message}`);
      this._send({ type: 'error', id, error: fault });
    } finally {
      this._running.delete(id);
      source.dispose();
    }
  }

  /**
   * @param {any} question
   * @param {vscode.CancellationToken} token
   */
  async _work(question, token) {
    const warn = (/** @type {string} */ text) => this._log.warn(text);
    switch (question.type) {
      case 'models':
        return { type: 'models', models: await offer.listModels() };
      case 'count':
        return { type: 'counted', tokens: await offer.count(question, token) };
      case 'respond':
        return { type: 'done', ...(await offer.respond(question, (one) => this._send(one), warn, token)) };
      default:
        return { type: 'error', error: { code: 'unknown_type', message: `${question.type} is not a request here.` } };
    }
  }

  /** Write a message; return when the reader can take more. @param {object} message */
  async _send(message) {
    if (this._socket.destroyed || this._socket.write(`${JSON.stringify(message)}\n`)) return;
    const gone = new AbortController();
    this._socket.once('close', () => gone.abort());
    await once(this._socket, 'drain', { signal: gone.signal });
  }

  /** @param {any} id @param {string} code @param {string} message */
  _fail(id, code, message) {
    this._send({ type: 'error', ...(id === undefined ? {} : { id }), error: { code, message } });
  }

  /** @param {string} code @param {string} message */
  _refuse(code, message) {
    this._fail(undefined, code, message);
    this._socket.end();
  }
}

/** @param {string | null} line */
function parse(line) {
  try {
    const message = JSON.parse(line ?? '');
    return typeof message?.type === 'string' ? message : undefined;
  } catch {
    return undefined;
  }
}

module.exports = { Listener };
