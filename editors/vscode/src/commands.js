// @ts-check
// What the user can do from the command palette, the status bar and the buttons of notifications.
'use strict';

const vscode = require('vscode');
const { BridgeError } = require('./bridge');
const { notify } = require('./errors');
const { baseUrl, configuration, isLoopback, problemOfUrl, secretName } = require('./settings');

const LOCAL = 'http://127.0.0.1:4680/v1';
const PATIENCE = 5_000;

/** @typedef {import('./extension').Parts} Parts */

/** @param {Parts} parts */
async function manage(parts) {
  const entries = [
    { label: '$(server) Select Endpoint', detail: baseUrl(), command: 'antiphon.selectEndpoint' },
    { label: '$(key) Set Key', command: 'antiphon.setKey' },
    { label: '$(pulse) Check Server', command: 'antiphon.checkServer' },
    ...(isLoopback(baseUrl()) ? [{ label: '$(play) Start Local Gateway', command: 'antiphon.startGateway' }] : []),
    { label: '$(dashboard) Open Dashboard', command: 'antiphon.openDashboard' },
    { label: '$(debug-restart) Restart Bridge', command: 'antiphon.restartBridge' },
    { label: '$(output) Show Log', command: 'antiphon.showLog' },
  ];
  const placeHolder = parts.status.summary();
  const chosen = await vscode.window.showQuickPick(entries, { title: 'antiphon', placeHolder });
  if (chosen) await vscode.commands.executeCommand(chosen.command);
}

async function selectEndpoint() {
  const urls = [...new Set([baseUrl(), LOCAL])];
  const other = { label: '$(edit) Another server …' };
  const entries = [...urls.map((label) => ({ label, description: label === LOCAL ? 'this machine' : '' })), other];
  const options = { title: 'antiphon: Select Endpoint', placeHolder: 'The server whose models the chat offers' };
  const chosen = await vscode.window.showQuickPick(entries, options);
  const url = chosen === other ? await askForUrl() : chosen?.label;
  if (url) await configuration().update('url', url, vscode.ConfigurationTarget.Global);
}

function askForUrl() {
  return vscode.window.showInputBox({
    title: 'antiphon: Select Endpoint',
    prompt: 'The base URL of a server with a Responses API. It usually ends in /v1.',
    value: baseUrl(),
    ignoreFocusOut: true,
    validateInput: problemOfUrl,
  });
}

/** @param {Parts} parts */
async function setKey({ secrets }) {
  const url = baseUrl();
  const key = await vscode.window.showInputBox({
    title: 'antiphon: Set Key',
    prompt: `The key for ${url}. The editor keeps it in its secret storage; leave it empty to remove it.`,
    password: true,
    ignoreFocusOut: true,
  });
  if (key === undefined) return;
  if (key.trim()) await secrets.store(secretName(url), key.trim());
  else await secrets.delete(secretName(url));
}

/** @param {Parts} parts */
async function checkServer({ keeper, provider }) {
  const url = baseUrl();
  const bridge = await keeper.get();
  const [{ software }, models] = [await bridge.welcome, await bridge.models(true)];
  provider.refresh();
  const names = models.map((model) => model.id);
  const shown = names.length > 5 ? `${names.slice(0, 5).join(', ')} and ${names.length - 5} more` : names.join(', ');
  const found = names.length ? `has ${names.length === 1 ? 'the model' : 'the models'} ${shown}` : 'has no models';
  vscode.window.showInformationMessage(`The server at ${url} answers and ${found}. The bridge is ${software}.`);
}

/** @param {Parts} parts */
async function startGateway({ gateway, provider }) {
  await gateway.start();
  provider.refresh();
  vscode.window.showInformationMessage(`A gateway answers at ${baseUrl()} until this window is closed.`);
}

async function openDashboard() {
  const page = new URL('/ui', baseUrl());
  const answer = await fetch(page, { signal: AbortSignal.timeout(PATIENCE) }).catch((error) => {
    const message = `The server at ${baseUrl()} cannot be reached: ${error.cause?.message ?? error.message}.`;
    throw new BridgeError({ code: 'unreachable', message });
  });
  if (answer.ok) await vscode.env.openExternal(vscode.Uri.parse(page.href));
  else vscode.window.showInformationMessage(`The server at ${baseUrl()} has no dashboard.`);
}

async function chooseProgram() {
  const [file] = (await vscode.window.showOpenDialog({ title: 'The program antiphon', openLabel: 'Choose' })) ?? [];
  if (file) await configuration().update('command', file.fsPath, vscode.ConfigurationTarget.Global);
}

/** @type {Record<string, (parts: Parts) => Promise<void>>} */
const COMMANDS = {
  'antiphon.manage': manage,
  'antiphon.selectEndpoint': selectEndpoint,
  'antiphon.setKey': setKey,
  'antiphon.checkServer': checkServer,
  'antiphon.startGateway': startGateway,
  'antiphon.openDashboard': openDashboard,
  'antiphon.restartBridge': async ({ restart }) => restart(),
  'antiphon.showLog': async ({ log }) => log.show(),
  'antiphon.chooseProgram': chooseProgram,
  'antiphon.howToInstall': async ({ readme }) => vscode.commands.executeCommand('markdown.showPreview', readme),
};

/**
 * Register every command. A failure is shown with its sentence.
 * @param {Parts} parts
 */
function registerCommands(parts) {
  return Object.entries(COMMANDS).map(([name, run]) => vscode.commands.registerCommand(name, async () => {
    try {
      await run(parts);
    } catch (error) {
      parts.log.error(`${name}: ${error}`);
      notify(error, true);
    }
  }));
}

module.exports = { registerCommands };
