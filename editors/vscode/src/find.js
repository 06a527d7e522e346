// @ts-check
// Where is the program `antiphon`?
//
// The setting decides; then the selected Python environment and the virtual environments of the
// workspace, if the workspace is trusted; then PATH and the folder of pipx. Nothing is installed.
'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const vscode = require('vscode');
const { BridgeError } = require('./bridge');
const { configuration } = require('./settings');

const isWindows = process.platform === 'win32';
const FILE = isWindows ? 'antiphon.exe' : 'antiphon';
const SCRIPTS = isWindows ? 'Scripts' : 'bin';

/** Return the path of the program. Throw a BridgeError with the code `no_program` if there is none. */
function findProgram() {
  const named = String(configuration().get('command') ?? '').trim();
  if (named) {
    if (isProgram(named)) return named;
    throw noProgram(`The setting antiphon.command names ${named}, which is not a program.`);
  }
  const found = candidates().find(isProgram);
  if (found) return found;
  throw noProgram('The program antiphon was not found in a Python environment or in PATH.');
}

/** @param {string} message */
function noProgram(message) {
  return new BridgeError({ code: 'no_program', message, action: 'Install it, or choose where it is.' });
}

function candidates() {
  const folders = vscode.workspace.isTrusted ? workspaceEnvironments() : [];
  const searched = (process.env.PATH ?? '').split(path.delimiter).filter(path.isAbsolute);
  const home = path.join(os.homedir(), '.local', 'bin');
  return [
    ...folders.map((folder) => path.join(folder, SCRIPTS, FILE)),
    ...[...searched, home].map((folder) => path.join(folder, FILE)),
  ];
}

function workspaceEnvironments() {
  const selected = selectedEnvironment();
  const roots = (vscode.workspace.workspaceFolders ?? []).filter((one) => one.uri.scheme === 'file');
  const own = roots.flatMap((one) => ['.venv', 'venv'].map((name) => path.join(one.uri.fsPath, name)));
  return selected ? [selected, ...own] : own;
}

/** Return the environment that is selected in the Python extension, if that runs. */
function selectedEnvironment() {
  const python = vscode.extensions.getExtension('ms-python.python');
  if (!python?.isActive) return undefined;
  /** @type {string | undefined} */
  const chosen = python.exports?.environments?.getActiveEnvironmentPath?.()?.path;
  if (!chosen) return undefined;
  return path.basename(chosen).startsWith('python') ? path.dirname(path.dirname(chosen)) : chosen;
}

/** @param {string} file */
function isProgram(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return path.isAbsolute(file) && fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

/**
 * Return antiphon's data directory, as antiphon itself chooses it.
 * @param {NodeJS.ProcessEnv} environ
 */
function dataDirectory(environ = process.env, platform = process.platform, home = os.homedir()) {
  if (platform === 'win32') {
    return path.join(environ.LOCALAPPDATA || path.join(home, 'AppData', 'Local'), 'antiphon');
  }
  if (platform === 'darwin') return path.join(home, 'Library', 'Application Support', 'antiphon');
  const given = environ.XDG_DATA_HOME ?? '';
  return path.join(path.isAbsolute(given) ? given : path.join(home, '.local', 'share'), 'antiphon');
}

module.exports = { dataDirectory, findProgram };
