// @ts-check
// Puts the extension together: one bridge for this window, its models in the chat, the status bar.
'use strict';

const vscode = require('vscode');
const { registerCommands } = require('./commands');
const { findProgram } = require('./find');
const { Gateway } = require('./gateway');
const { Keeper } = require('./keeper');
const { Listener } = require('./listener');
const { showsThinking } = require('./parts');
const { Provider } = require('./provider');
const { bridgeSettings, isOn } = require('./settings');
const { Status } = require('./status');

// After so many ends in a row the bridge is started only when it is needed.
const MAX_FAILURES = 5;
// A change of these needs another bridge.
const OF_BRIDGE = ['url', 'command', 'showThinking', 'logLevel'];

/**
 * @typedef {object} Parts
 * @property {Keeper} keeper
 * @property {Gateway} gateway
 * @property {Provider} provider
 * @property {Status} status
 * @property {vscode.LogOutputChannel} log
 * @property {vscode.SecretStorage} secrets
 * @property {vscode.Uri} readme
 * @property {() => void} restart
 */

/** @type {Offer | undefined} */
let offer;

/** @param {vscode.ExtensionContext} context */
function activate(context) {
  const log = vscode.window.createOutputChannel('antiphon', { log: true });
  const { secrets, extension } = context;
  const name = `${vscode.env.appName} ${vscode.version}, extension ${extension.packageJSON.version}`;
  const how = async () => ({
    command: findProgram(), name, settings: await bridgeSettings(secrets, showsThinking),
  });
  const status = new Status();
  const gateway = new Gateway(log);
  const keeper = new Keeper(how, (bridge) => listen(bridge, parts));
  const provider = new Provider(keeper, gateway, status, log);
  const restart = () => {
    keeper.replace();
    provider.counter.clear();
    provider.refresh();
  };
  const leave = () => {
    status.clear();
    provider.forget();
  };
  // The packager writes its name so.
  const readme = vscode.Uri.joinPath(context.extensionUri, 'readme.md');
  /** @type {Parts} */
  const parts = { keeper, gateway, provider, status, log, secrets, readme, restart };
  const offering = (offer = new Offer(log, name));
  context.subscriptions.push(
    log, status, gateway, keeper, provider,
    vscode.lm.registerLanguageModelChatProvider('antiphon', provider),
    ...registerCommands(parts),
    secrets.onDidChange(restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration('antiphon.url')) leave();
      if (OF_BRIDGE.some((one) => change.affectsConfiguration(`antiphon.${one}`))) restart();
      if (change.affectsConfiguration('antiphon.startGateway')) provider.refresh();
      if (change.affectsConfiguration('antiphon.offerEditorModels')) offering.update();
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(restart),
  );
  offering.update();
  // The editor asks a provider for its models only when somebody wants them: so the picker has them.
  vscode.lm.selectChatModels({ vendor: 'antiphon' });
}

/** The editor waits for this, so that the file with the token is gone. */
function deactivate() {
  return offer?.dispose();
}

/**
 * @param {import('./bridge').Bridge} bridge
 * @param {Parts} parts
 */
function listen(bridge, { keeper, provider, status, log }) {
  bridge.on('log', ({ level, message }) => write(log, level, message));
  bridge.on('usage', (usage) => {
    provider.counter.clear();
    status.show(usage);
  });
  bridge.on('models_changed', () => provider.refresh());
  bridge.on('end', (error) => {
    log.info(error.message);
    if (keeper.failures > 0 && keeper.failures < MAX_FAILURES) provider.refresh();
  });
}

/**
 * @param {vscode.LogOutputChannel} log
 * @param {string} level
 * @param {string} message
 */
function write(log, level, message) {
  if (level === 'error') log.error(message);
  else if (level === 'warning') log.warn(message);
  else if (level === 'info') log.info(message);
  else log.debug(message);
}

/** Offers the editor's models while the setting is on. */
class Offer {
  /** @param {vscode.LogOutputChannel} log @param {string} name */
  constructor(log, name) {
    this._log = log;
    this._name = name;
    /** @type {Listener | undefined} */
    this._listener = undefined;
  }

  async update() {
    await this.dispose();
    if (!isOn('offerEditorModels')) return;
    this._listener = new Listener(this._log, this._name);
    await this._listener.start().catch((error) => {
      this._log.error(`The models of the editor cannot be offered: ${error.message}`);
      vscode.window.showErrorMessage(`The models of the editor cannot be offered: ${error.message}`);
    });
  }

  async dispose() {
    const listener = this._listener;
    this._listener = undefined;
    await listener?.dispose();
  }
}

module.exports = { activate, deactivate };
