// @ts-check
// The models of the server, as the editor wants a provider of chat models to offer them.
//
// Everything that needs thought happens in the bridge: this class passes messages there and parts
// back. A list of models that cannot be fetched keeps the last one, and is tried again.
'use strict';

const vscode = require('vscode');
const { BridgeError } = require('./bridge');
const { Counter } = require('./counter');
const { notify, toEditor } = require('./errors');
const { messageToJson, partFromJson } = require('./parts');
const { describeModel, toOptions } = require('./requests');

const FIRST_RETRY = 5_000;
const LONGEST_RETRY = 60_000;

class Provider {
  /**
   * @param {import('./keeper').Keeper} keeper
   * @param {import('./gateway').Gateway} gateway
   * @param {import('./status').Status} status
   * @param {vscode.LogOutputChannel} log
   */
  constructor(keeper, gateway, status, log) {
    this._keeper = keeper;
    this._gateway = gateway;
    this._status = status;
    this._log = log;
    /** @type {vscode.EventEmitter<void>} */
    this._changed = new vscode.EventEmitter();
    this.onDidChangeLanguageModelChatInformation = this._changed.event;
    /** @type {vscode.LanguageModelChatInformation[]} */
    this._models = [];
    this._retryWait = FIRST_RETRY;
    /** @type {NodeJS.Timeout | undefined} */
    this._retry = undefined;
    this.counter = new Counter(async (model, contents) => (await keeper.get()).count(model, contents));
  }

  /** Have the editor ask for the models again. */
  refresh() {
    this._changed.fire();
  }

  /** Forget the models of another server. */
  forget() {
    this._models = [];
  }

  dispose() {
    clearTimeout(this._retry);
    this._changed.dispose();
  }

  /** @param {{silent: boolean}} options */
  async provideLanguageModelChatInformation({ silent }) {
    try {
      await this._gateway.ensure();
      const listed = await (await this._keeper.get()).models(!silent);
      this._models = listed.map(describeModel);
      this._retryWait = FIRST_RETRY;
      this._status.problem('');
    } catch (error) {
      const problem = `The models cannot be listed: ${error instanceof Error ? error.message : error}`;
      if (this._status.problem(problem)) this._log.warn(problem);
      if (!silent) notify(error);
      this._tryLater();
    }
    return this._models;
  }

  _tryLater() {
    clearTimeout(this._retry);
    this._retry = setTimeout(() => this.refresh(), this._retryWait);
    this._retryWait = Math.min(LONGEST_RETRY, this._retryWait * 2);
  }

  /**
   * @param {vscode.LanguageModelChatInformation} model
   * @param {readonly vscode.LanguageModelChatRequestMessage[]} messages
   * @param {vscode.ProvideLanguageModelChatResponseOptions} options
   * @param {vscode.Progress<vscode.LanguageModelResponsePart>} progress
   * @param {vscode.CancellationToken} token
   */
  async provideLanguageModelChatResponse(model, messages, options, progress, token) {
    const abort = new AbortController();
    const watch = token.onCancellationRequested(() => abort.abort());
    if (token.isCancellationRequested) abort.abort();
    try {
      await this._gateway.ensure();
      const bridge = await this._keeper.get();
      const request = { model: model.id, messages: this._toJson(messages), options: toOptions(options) };
      const done = await bridge.respond(request, (part) => {
        const shown = partFromJson(part);
        if (shown) progress.report(shown);
      }, abort.signal);
      this._finish(done);
    } catch (error) {
      throw this._report(error, /** @type {any} */ (options).requestInitiator);
    } finally {
      watch.dispose();
    }
  }

  /** @param {readonly vscode.LanguageModelChatRequestMessage[]} messages */
  _toJson(messages) {
    return messages.map((message) => messageToJson(message, (text) => this._log.warn(text)));
  }

  /**
   * Throw if the model refused; note what the user should know.
   * @param {import('./bridge').Answer} done
   */
  _finish(done) {
    if (done.refusal) throw new BridgeError({ code: 'blocked', message: done.refusal });
    const isCut = done.status === 'incomplete';
    const notes = isCut ? [`The answer was cut off: ${done.incomplete_reason}.`] : [];
    notes.push(...(done.degraded ?? []).map((/** @type {string} */ what) => `Not honoured: ${what}.`));
    for (const note of notes) this._log.info(note);
    this._status.note(notes, isCut);
  }

  /**
   * @param {unknown} error
   * @param {string} [asker]
   */
  _report(error, asker) {
    if (error instanceof BridgeError && error.code !== 'cancelled') {
      this._log.error(`${error.code} (${error.status || 'no status'}): ${error.message}`);
      this._status.note([error.message]);
      notify(error);
    }
    return toEditor(error, asker);
  }

  /**
   * @param {vscode.LanguageModelChatInformation} model
   * @param {string | vscode.LanguageModelChatRequestMessage} text
   */
  async provideTokenCount(model, text) {
    const content = typeof text === 'string' ? text : this._toJson([text])[0];
    try {
      return await this.counter.count(model.id, content);
    } catch (error) {
      throw toEditor(error);
    }
  }
}

module.exports = { Provider };
