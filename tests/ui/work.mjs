// Plays the user of the playground, and those who manage keys, files, tools and health.
//
//   node work.mjs MODULES BROWSER PROFILE FACTS
//
// `browser.mjs` states what the arguments are, and what is checked after every flow.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { axe, browser, facts, ok, play, same } from './browser.mjs';

const flows = {};
const PNG = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==', 'base64');
const screens = {
  playground: ['/ui/playground', 'Playground', '.pg-lane'],
  access: ['/ui/access', 'Keys and budgets', 'td a'],
  project: ['/ui/access/acme', 'Project acme', '.mg-danger'],
  files: ['/ui/files', 'Files', '.note'],
  stores: ['/ui/stores', 'Vector stores', '.note, td a'],
  tools: ['/ui/tools', 'Hosted tools', 'td'],
  health: ['/ui/health', 'Health', '.card'],
};
const visit = async (page, path, title, ready, root = facts.root) => {
  await page.goto(root + path);
  await page.locator('h1', { hasText: title }).waitFor();
  await page.locator(ready).first().waitFor();
};
const open = (page, name) => visit(page, ...screens[name]);
const playground = async (page, search = '') => {
  await visit(page, `/ui/playground${search}`, 'Playground', '.pg-lane h2');
  await page.locator('.pg-lane h2', { hasNotText: 'No model' }).first().waitFor();
};
const message = (page) => page.getByRole('textbox', { name: 'Message', exact: true });
const send = async (page, text) => {
  await message(page).fill(text);
  await page.getByRole('button', { name: 'Send', exact: true }).click();
};
const answer = async (page, text, lane = 0) => {
  await page.locator('.pg-lane').nth(lane).locator('[data-answer]').filter({ hasText: text }).waitFor();
};
const ended = (page, status = 'completed') => page.locator('.pg-answer').last().locator(`.status.${status}`).waitFor();
const more = (page) => page.locator('summary', { hasText: 'Instructions and tools' }).click();
const get = async (page, path, key = '') => (await page.request.get(facts.root + path, { headers: key ? { Authorization: `Bearer ${key}` } : {} })).json();

// The playground.

const DOORS = { Responses: '', 'Chat completions': '?door=chat', Messages: '?door=messages' };
for (const [name, search] of Object.entries(DOORS)) {
  flows[`${name}: a conversation goes on, with its events beside it`] = async (page) => {
    await playground(page, search);
    await send(page, 'Good day');
    await answer(page, 'qwen3-32b heard message 1: Good day');
    await ended(page);
    ok(await page.getByRole('button', { name: 'Stop', exact: true }).isDisabled(), 'nothing to stop');
    await message(page).fill('And again');
    await page.keyboard.press('Control+Enter');
    await answer(page, 'heard message 2');
    await ended(page);
    await page.locator('.pg-events td button').first().click();
    const event = JSON.parse(await page.locator('[data-event]').textContent());
    ok(event.type || event.object, 'an event is shown');
    ok(/\d+ → \d+ tokens/.test(await page.locator('.pg-answer').last().textContent()), 'tokens');
  };
  flows[`${name}: the result of a function is given by hand`] = async (page) => {
    await playground(page, search);
    await more(page);
    await page.getByRole('button', { name: 'Use an example' }).click();
    await send(page, 'How is the weather?');
    const field = page.getByLabel('Result of get_weather');
    await field.fill('Rain, 7 degrees');
    ok((await page.locator('.pg-answer').textContent()).includes('{"city": "Oslo"}'), 'arguments');
    ok(await page.getByRole('button', { name: 'Send', exact: true }).isDisabled(), 'it waits for the result');
    await page.getByRole('button', { name: 'Send results' }).click();
    await answer(page, 'The tool gave: Rain, 7 degrees');
  };
  flows[`${name}: an image and a file are sent`] = async (page) => {
    await playground(page, search);
    await page.getByLabel('Images and files').setInputFiles([{ name: 'dot.png', mimeType: 'image/png', buffer: PNG }, { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('The code is 4711.') }]);
    await page.locator('.pg-media li', { hasText: 'note.txt' }).waitFor();
    await send(page, 'Look');
    await answer(page, 'image_url');
    await answer(page, '4711');
    ok(await page.locator('.pg-given img[alt="dot.png"]').count() === 1, 'the picture is shown');
  };
}
flows['files are uploaded to Files when that is wanted'] = async (page) => {
  await playground(page);
  await page.getByLabel('upload them to Files').check();
  await page.getByLabel('Images and files').setInputFiles({ name: 'kept.txt', mimeType: 'text/plain', buffer: Buffer.from('The word is lantern.') });
  const id = await page.locator('.pg-media li code').textContent();
  await send(page, 'Read it');
  await answer(page, 'lantern');
  same((await get(page, `/v1/files/${id}`)).filename, 'kept.txt', 'stored');
};
flows['a call of an MCP server is approved, and runs once'] = async (page) => {
  await playground(page);
  await more(page);
  await page.getByLabel('MCP server desk').check();
  await send(page, 'Please add');
  await page.getByText('May desk run add?').waitFor();
  await page.getByLabel('Approve').check();
  await page.getByRole('button', { name: 'Send decisions' }).click();
  await answer(page, /The tool gave: .*5/s);
  await page.locator('.pg-tool summary', { hasText: 'mcp_call' }).click();
};
flows['a call of an MCP server is denied, and does not run'] = async (page) => {
  await playground(page);
  await more(page);
  await page.getByLabel('MCP server desk').check();
  await send(page, 'Please add');
  await page.getByLabel('Deny').check();
  await page.getByRole('button', { name: 'Send decisions' }).click();
  await page.locator('.pg-turn').nth(1).locator('.status.completed').waitFor();
  ok(!(await page.locator('.pg-turns').textContent()).includes('data, not instructions]\n5'), 'it did not run');
};
flows['a tool that needs no approval runs at once'] = async (page) => {
  await playground(page);
  await more(page);
  await page.getByLabel('MCP server desk').check();
  await page.getByLabel('Calls of desk').selectOption('never');
  await send(page, 'Please add');
  await answer(page, /The tool gave: .*5/s);
};
flows['two models answer side by side'] = async (page) => {
  await playground(page, '?model=qwen3-32b');
  await page.getByLabel('Compare with').fill('small');
  await page.getByLabel('Compare with').blur();
  await page.waitForURL('**/ui/playground?model=qwen3-32b&model2=small');
  await send(page, 'Hello both');
  await answer(page, 'qwen3-32b heard', 0);
  await answer(page, 'small heard', 1);
  await axe(page);
};
flows['an answer is stopped'] = async (page) => {
  await playground(page);
  await send(page, 'forever');
  await answer(page, 'word5');
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await ended(page, 'cancelled');
  ok(!(await page.locator('[data-answer]').textContent()).includes('word1999'), 'it did not end');
  await send(page, 'Once more');
  await answer(page, 'Once more');
};
flows['a stored response is continued in a fork'] = async (page) => {
  const made = await (await page.request.post(`${facts.root}/v1/responses`, { data: { model: 'small', input: 'First' } })).json();
  await playground(page, `?model=small&previous=${made.id}`);
  await page.locator('[data-previous]', { hasText: 'heard message 1' }).waitFor();
  for (const fork of ['one', 'two']) {
    await send(page, `Fork ${fork}`);
    await answer(page, `heard message 2: Fork ${fork}`);
    await ended(page);
    const id = await page.locator('.pg-answer a').last().getAttribute('title');
    same((await get(page, `/v1/responses/${id}`)).previous_response_id, made.id, 'what it continues');
    await page.getByRole('button', { name: 'Clear' }).click();
  }
};
flows['what is not stored goes on by its items'] = async (page) => {
  await playground(page);
  await page.getByLabel('Store').uncheck();
  await send(page, 'One');
  await answer(page, 'message 1');
  const id = await page.locator('.pg-answer a').getAttribute('title');
  await send(page, 'Two');
  await answer(page, 'message 2');
  same((await page.request.get(`${facts.root}/v1/responses/${id}`)).status(), 404, 'status');
};
flows['what was asked runs as curl and as Python'] = async (page) => {
  for (const [door, search] of Object.entries(DOORS)) {
    await playground(page, search);
    await page.locator('summary', { hasText: 'As curl or Python' }).click();
    await message(page).fill("It's \"quoted\" \\ $HOME `x`");
    await page.locator('[data-code]', { hasText: 'quoted' }).waitFor();
    const curl = await page.locator('[data-code]').textContent();
    const said = execFileSync('sh', ['-c', curl], { encoding: 'utf8' });
    ok(said.includes('heard') && said.includes('$HOME'), `${door}: ${said.slice(-300)}`);
    await page.getByLabel('Language').selectOption('python');
    const python = await page.locator('[data-code]').textContent();
    writeFileSync(facts.script, python);
    const printed = execFileSync(facts.python, [facts.script], { encoding: 'utf8' });
    ok(printed.includes('heard'), `${door}: ${printed.slice(-300)}`);
  }
};
flows['instructions and parameters are part of the request'] = async (page) => {
  await playground(page);
  await more(page);
  await page.getByLabel('Instructions', { exact: true }).fill('Be brief.');
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Most output tokens').fill('50');
  const [asked] = await Promise.all([page.waitForRequest('**/v1/responses'), send(page, 'Hi')]);
  const { instructions, temperature, max_output_tokens: most } = asked.postDataJSON();
  same([instructions, temperature, most], ['Be brief.', 0.5, 50], 'the request');
};
flows['functions that are not JSON are refused before they are sent'] = async (page) => {
  await playground(page);
  await more(page);
  await page.getByLabel('Functions, as JSON').fill('{');
  await page.locator('#pg-functions.fault').waitFor();
  ok(await page.getByRole('button', { name: 'Send', exact: true }).isDisabled(), 'disabled');
};
flows['a model that fails says why'] = async (page) => {
  await playground(page, '?model=broken');
  await send(page, 'Hi');
  await page.getByRole('alert').waitFor();
  await ended(page, 'failed');
};
flows['a model that does not exist is said to be missing'] = async (page) => {
  await playground(page, '?model=nothing');
  await send(page, 'Hi');
  await page.getByRole('alert').filter({ hasText: 'nothing' }).waitFor();
};
flows['reasoning is shown apart from the answer'] = async (page) => {
  await playground(page);
  await send(page, 'think');
  await answer(page, 'Done.');
  await page.locator('summary', { hasText: 'Reasoning' }).click();
  await page.locator('.pg-answer details pre', { hasText: 'First this' }).waitFor();
};
flows['the embedded model answers'] = async (page) => {
  await playground(page, `?model=${facts.embedded}`);
  await page.getByLabel('Most output tokens').fill('12');
  await send(page, 'Say hello.');
  await page.locator('.pg-answer .status.completed, .pg-answer .status.incomplete').waitFor();
  ok((await page.locator('[data-answer]').textContent()).length > 2, 'it said something');
};
flows['what a model wrote in the playground is text'] = async (page) => {
  for (const search of Object.values(DOORS)) {
    await playground(page, `${search}${search ? '&' : '?'}model=${encodeURIComponent(facts.corpus[0])}`);
    await more(page);
    await page.getByRole('button', { name: 'Use an example' }).click();
    await send(page, 'evil');
    await page.getByText('Calls get_weather').waitFor();
    const shown = await page.locator('[data-answer]').textContent();
    for (const text of facts.corpus) ok(shown.includes(text), `missing: ${text}`);
    ok(!(await page.evaluate(() => window.hacked)), 'a script ran');
    ok(await page.locator('#app iframe, #app svg, #app script, #app img').count() === 0, 'markup became elements');
  }
};

// Keys, budgets and limits.

flows['a key is made for a new project, shown once, and works'] = async (page) => {
  await open(page, 'access');
  await page.locator('summary', { hasText: 'New project' }).click();
  const form = page.getByRole('form', { name: 'New project' });
  await form.getByLabel('Name').fill(facts.corpus[0]);
  await form.getByLabel('Id').fill('rocket');
  await form.getByRole('button', { name: 'Create the project' }).click();
  await page.waitForURL('**/ui/access/rocket');
  await page.locator('summary', { hasText: 'New key' }).click();
  const key = page.getByRole('form', { name: 'New key' });
  await key.getByLabel('Name').fill(facts.corpus[2]);
  await key.getByLabel('Role').selectOption('viewer');
  await key.getByRole('textbox', { name: 'Models' }).fill('small');
  await key.getByLabel('Ends after').fill('30');
  await key.getByRole('button', { name: 'Create the key' }).click();
  const secret = await page.locator('[data-secret]').textContent();
  await axe(page);
  const dialog = page.getByRole('dialog');
  ok(await dialog.getByRole('button', { name: 'Close' }).isDisabled(), 'it stays until it is stored');
  await page.keyboard.press('Escape');
  ok(await dialog.isVisible(), 'Escape does not close it');
  await dialog.getByLabel('I have stored it').check();
  await dialog.getByRole('button', { name: 'Close' }).click();
  await page.locator('[data-secret]').waitFor({ state: 'detached' });
  await page.locator('td', { hasText: 'never' }).first().waitFor();
  ok(!(await page.content()).includes(secret), 'the secret is gone');
  const me = await get(page, '/v1/antiphon/me', secret);
  same([me.role, me.project_id, me.models], ['viewer', 'rocket', ['small']], 'the key');
  ok(!(await page.evaluate(() => window.hacked)) && await page.locator('#app img, #app svg').count() === 0, 'names are text');
};
const newKey = async (page, name) => {
  const made = await page.request.post(`${facts.root}/v1/organization/projects/acme/service_accounts`, { data: { name } });
  return (await made.json()).api_key;
};
flows['a key is rotated: both secrets are good for a while'] = async (page) => {
  const key = await newKey(page, 'turning');
  await open(page, 'project');
  await page.getByRole('button', { name: 'Rotate turning' }).click();
  await page.getByLabel('When the old secret ends').selectOption({ label: 'after an hour' });
  await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click();
  const fresh = await page.locator('[data-secret]').textContent();
  ok(fresh !== key.value, 'another secret');
  for (const value of [key.value, fresh]) same((await get(page, '/v1/antiphon/me', value)).api_key_id, key.id, 'the key');
};
flows['a key is revoked only after a question'] = async (page) => {
  const key = await newKey(page, 'leaving');
  await open(page, 'project');
  await page.getByRole('button', { name: 'Revoke leaving' }).click();
  await page.getByRole('button', { name: 'Keep it' }).click();
  same((await get(page, '/v1/antiphon/me', key.value)).api_key_id, key.id, 'still good');
  await page.getByRole('button', { name: 'Revoke leaving' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('button', { name: 'Revoke leaving' }).waitFor({ state: 'detached' });
  const listed = await get(page, '/v1/organization/projects/acme/api_keys?limit=100');
  ok(!listed.data.some((one) => one.id === key.id), 'not listed');
};
flows['the role of a key is changed'] = async (page) => {
  const key = await newKey(page, 'rising');
  await open(page, 'project');
  await Promise.all([page.waitForResponse((one) => one.request().method() === 'POST'), page.getByLabel('Role of rising').selectOption('viewer')]);
  same((await get(page, `/v1/organization/projects/acme/api_keys/${key.id}`)).antiphon.role, 'viewer', 'role');
};
flows['a budget says in words what happens at 100 %'] = async (page) => {
  await open(page, 'project');
  await page.locator('summary', { hasText: 'Set a budget' }).click();
  const form = page.getByRole('form', { name: 'Set a budget' });
  await form.getByLabel('Limit').fill('12.50');
  await form.getByLabel('Period').selectOption('week');
  await form.getByLabel('Warn from').fill('50, 80');
  const words = await page.locator('[data-words]').textContent();
  for (const part of ['$12.50', 'calendar week', '429 insufficient_quota', '50 % and 80 %', 'project acme', 'incomplete', 'not known are refused']) ok(words.includes(part), `${part} is not in: ${words}`);
  await form.getByRole('button', { name: 'Set the budget' }).click();
  const row = page.getByRole('table', { name: 'Budgets' }).locator('tr', { hasText: '$12.5' });
  await row.getByText('what happens').click();
  await row.getByText('429 insufficient_quota').waitFor();
  await axe(page);
  await row.getByRole('button').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('There is no budget').waitFor();
};
flows['a budget that cannot be is refused with the reason'] = async (page) => {
  await open(page, 'project');
  await page.locator('summary', { hasText: 'Set a budget' }).click();
  const form = page.getByRole('form', { name: 'Set a budget' });
  await form.getByLabel('Of').selectOption('key');
  await form.getByLabel('Its id').fill('nokey');
  await form.getByLabel('Limit').fill('1');
  await form.getByRole('button', { name: 'Set the budget' }).click();
  await page.getByRole('alert').filter({ hasText: 'nokey' }).waitFor();
};
flows['a rate limit is set and deleted'] = async (page) => {
  await open(page, 'project');
  await page.locator('summary', { hasText: 'Set a rate limit' }).click();
  const form = page.getByRole('form', { name: 'Set a rate limit' });
  await form.getByLabel('Requests a minute').fill('60');
  await form.getByLabel('At once').fill('4');
  await form.getByRole('button', { name: 'Set the limit' }).click();
  await page.locator('td', { hasText: 'all models together' }).waitFor();
  await page.getByRole('button', { name: 'Delete the limit of *' }).click();
  await page.getByText('There is no rate limit').waitFor();
};
flows['a key of an administrator is made and revoked'] = async (page) => {
  await open(page, 'access');
  await page.locator('summary', { hasText: 'New key of an administrator' }).click();
  const form = page.getByRole('form', { name: 'New key of an administrator' });
  await form.getByLabel('Name').fill('deputy');
  await form.getByRole('button', { name: 'Create the key' }).click();
  const secret = await page.locator('[data-secret]').textContent();
  same((await get(page, '/v1/antiphon/me', secret)).role, 'admin', 'role');
  await page.getByLabel('I have stored it').check();
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
  await page.getByRole('button', { name: 'Revoke deputy' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('button', { name: 'Revoke deputy' }).waitFor({ state: 'detached' });
};
flows['a project is archived'] = async (page) => {
  await page.request.post(`${facts.root}/v1/organization/projects`, { data: { name: 'Old', antiphon: { id: 'old' } } });
  await visit(page, '/ui/access/old', 'Project old', '.mg-danger');
  await page.getByRole('button', { name: 'Archive this project' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click();
  await page.locator('.facts', { hasText: 'archived' }).waitFor();
};

// Roles and logins.

const login = async (page, key, path = '/ui') => {
  await page.goto(facts.locked + path);
  await page.getByLabel('API key').fill(key);
  await page.keyboard.press('Enter');
};
const listed = (page) => page.locator('nav a').allTextContents();
flows['a user sees the playground and what belongs to its project'] = async (page) => {
  await login(page, facts.keys.user);
  await page.waitForURL('**/ui/playground');
  same(await listed(page), ['Conversations', 'Playground', 'Keys and budgets', 'Files', 'Vector stores', 'Tools'], 'screens');
  await page.getByRole('link', { name: 'Keys and budgets' }).click();
  await page.locator('dd', { hasText: 'lab' }).waitFor();
  ok(await page.getByText('New project').count() === 0, 'it manages nothing');
  await axe(page);
};
flows['a viewer sees figures too'] = async (page) => {
  await login(page, facts.keys.viewer);
  await page.locator('h1', { hasText: 'Overview' }).waitFor();
  ok((await listed(page)).includes('Requests') && !(await listed(page)).includes('Health'), 'screens');
};
flows['an administrator manages, and asks no model'] = async (page) => {
  await login(page, facts.keys.admin, '/ui/access');
  await page.locator('td a', { hasText: 'lab' }).waitFor();
  const names = await listed(page);
  ok(names.includes('Health') && !names.includes('Playground'), names.join());
  await page.getByRole('link', { name: 'Tools' }).click();
  await page.locator('h1', { hasText: 'Hosted tools' }).waitFor();
};
flows['a key that may only read metrics sees no screen'] = async (page) => {
  await login(page, facts.keys.metrics, '/ui/health');
  await page.getByRole('alert').filter({ hasText: 'metrics' }).waitFor();
  same(await listed(page), [], 'screens');
};
flows['a person logs in with an identity provider, and is back where they were'] = async (page) => {
  await page.goto(`${facts.locked}/ui/tools?x=1`);
  await page.getByRole('button', { name: 'Log in with' }).waitFor();
  await axe(page);
  await page.getByRole('button', { name: 'Log in with' }).click();
  await page.waitForURL(`${facts.locked}/ui/tools?x=1`);
  await page.locator('h1', { hasText: 'Hosted tools' }).waitFor();
  ok(!(await page.evaluate(() => JSON.stringify({ ...localStorage }) + document.cookie)).includes('ey'), 'the token is in this tab only');
  await page.getByRole('link', { name: 'Playground' }).click();
  await send(page, 'Hello from a token');
  await answer(page, 'Hello from a token');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('API key').waitFor();
};
flows['an answer of an identity provider that nobody asked for is refused'] = async (page) => {
  await page.goto(`${facts.locked}/ui/login?code=stolen&state=made-up`);
  await page.getByRole('alert').filter({ hasText: 'not begun in this tab' }).waitFor();
  ok(!page.url().includes('code='), 'the code is not in the address');
};
flows['a person whom the identity provider refuses is told so'] = async (page) => {
  await page.goto(`${facts.locked}/ui`);
  await page.getByRole('button', { name: 'Log in with' }).waitFor();
  await page.route(`${facts.issuer}/authorize*`, (route) => {
    const { searchParams } = new URL(route.request().url());
    const back = new URLSearchParams({ error: 'access_denied', error_description: 'Not today.', state: searchParams.get('state') });
    return route.fulfill({ status: 302, headers: { Location: `${searchParams.get('redirect_uri')}?${back}` } });
  });
  await page.getByRole('button', { name: 'Log in with' }).click();
  await page.getByRole('alert').filter({ hasText: 'Not today.' }).waitFor();
};

// Files, vector stores, tools and health.

flows['a file is uploaded with its progress, saved again, and deleted'] = async (page) => {
  await open(page, 'files');
  const name = 'measures & <i>2.txt';
  await page.getByLabel('Upload files').setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from('Seven cubits.') });
  const row = page.locator('tr', { hasText: name });
  await row.waitFor();
  const [saved] = await Promise.all([page.waitForEvent('download'), row.getByTitle('Download').click()]);
  same(readFileSync(await saved.path(), 'utf8'), 'Seven cubits.', 'content');
  await row.getByRole('button', { name: `Delete ${name}` }).click();
  await axe(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await row.waitFor({ state: 'detached' });
};
flows['the names of files are text'] = async (page) => {
  await open(page, 'files');
  // A browser writes a quote in a name as %22.
  const names = facts.corpus.map((text) => `${text.replaceAll('/', '_')}.txt`);
  await page.getByLabel('Upload files').setInputFiles(names.map((name) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(name) })));
  for (const name of names) await page.locator('td', { hasText: name.replaceAll('"', '%22').slice(0, 12) }).first().waitFor();
  ok(!(await page.evaluate(() => window.hacked)), 'a script ran');
  ok(await page.locator('#app img, #app iframe, #app svg, #app script').count() === 0, 'markup became elements');
};
flows['a vector store is made, filled, searched and deleted'] = async (page) => {
  await open(page, 'stores');
  await page.getByLabel('Name').fill(`Harbours ${facts.corpus[0]}`);
  await page.getByRole('button', { name: 'Create a store' }).click();
  await page.waitForURL('**/ui/stores/vs_*');
  await page.getByLabel('Or upload').setInputFiles([
    { name: 'oslo.txt', mimeType: 'text/plain', buffer: Buffer.from('The harbour of Oslo freezes in hard winters.') },
    { name: 'evil.txt', mimeType: 'text/plain', buffer: Buffer.from(`The harbour of ${facts.corpus.join(' ')}`) },
  ]);
  await page.locator('tr', { hasText: 'oslo.txt' }).locator('.status.completed').waitFor();
  await page.locator('tr', { hasText: 'evil.txt' }).locator('.status.completed').waitFor();
  await page.getByLabel('Words or a question').fill('harbour winters');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.locator('.mg-results li', { hasText: 'freezes' }).waitFor();
  const scores = (await page.locator('[data-score]').allTextContents()).map(Number);
  ok(scores.length && scores[0] > 0 && scores[0] <= 1, `scores ${scores}`);
  ok(page.url().includes('q=harbour+winters'), 'the search is in the address');
  ok(!(await page.evaluate(() => window.hacked)) && await page.locator('#app img, #app svg').count() === 0, 'texts are text');
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await axe(page);
  }
  await page.getByRole('button', { name: 'Detach evil.txt' }).click();
  await page.locator('tr', { hasText: 'evil.txt' }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Delete this store' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.waitForURL('**/ui/stores');
};
flows['the playground searches in a vector store'] = async (page) => {
  const made = await (await page.request.post(`${facts.root}/v1/vector_stores`, { data: { name: 'Shelf' } })).json();
  await playground(page);
  await more(page);
  await page.getByLabel('Search in Shelf').check();
  const [asked] = await Promise.all([page.waitForRequest('**/v1/responses'), send(page, 'Hi')]);
  same(asked.postDataJSON().tools, [{ type: 'file_search', vector_store_ids: [made.id] }], 'tools');
  await ended(page);
};
flows['hosted tools are listed with their terms'] = async (page) => {
  await open(page, 'tools');
  await page.locator('tr', { hasText: 'mcp' }).locator('.status.completed', { hasText: 'ready' }).first().waitFor();
  await page.locator('tr', { hasText: 'web_search' }).getByText('not configured: [web_search]').waitFor();
  await page.locator('td', { hasText: 'desk' }).first().waitFor();
};
flows['health names upstreams, and the ledger is checked on demand'] = async (page) => {
  await open(page, 'health');
  await page.locator('.card', { hasText: 'ready' }).waitFor();
  await page.locator('tr', { hasText: 'farm' }).locator('.status').waitFor();
  await page.getByRole('button', { name: 'Check the ledger' }).click();
  await page.getByText('The ledger is right').waitFor();
  await axe(page);
};

// What holds for every screen.

for (const scheme of ['light', 'dark']) {
  for (const name of Object.keys(screens)) {
    flows[`${name} is accessible in the ${scheme} scheme`] = async (page) => {
      await page.emulateMedia({ colorScheme: scheme });
      await open(page, name);
      for (const summary of await page.locator('main summary:visible').all()) await summary.click();
      await axe(page);
    };
  }
  flows[`an answer of the playground is accessible in the ${scheme} scheme`] = async (page) => {
    await page.emulateMedia({ colorScheme: scheme });
    await playground(page, '?model2=small');
    await more(page);
    await page.getByRole('button', { name: 'Use an example' }).click();
    await page.getByLabel('MCP server desk').check();
    await send(page, 'Please add');
    await page.getByText('May desk run add?').first().waitFor();
    await page.getByText('May desk run add?').nth(1).waitFor();
    await page.locator('.pg-events td button').first().click();
    await axe(page);
  };
}
for (const [what, size] of [['a narrow window', { width: 375, height: 800 }], ['a zoom of 200 %', { width: 640, height: 400 }]]) {
  flows[`nothing of what is managed is cut off in ${what}`] = async (page) => {
    await page.setViewportSize(size);
    for (const name of Object.keys(screens)) {
      await open(page, name);
      for (const summary of await page.locator('main summary:visible').all()) await summary.click();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ok(wide <= 0, `${name} is ${wide} px too wide`);
    }
    await playground(page, '?model2=small');
    await send(page, 'Hello');
    await answer(page, 'small heard', 1);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    ok(wide <= 0, `an answer is ${wide} px too wide`);
  };
}
/** Press Tab until what has the focus is called so. */
const tabTo = async (page, name, most = 80) => {
  for (let count = 0; count < most; count += 1) {
    await page.keyboard.press('Tab');
    const found = await page.evaluate(() => {
      const element = document.activeElement;
      const shown = getComputedStyle(element);
      return { name: element.getAttribute('aria-label') || element.labels?.[0]?.textContent || element.textContent || '', isMarked: shown.outlineStyle !== 'none' && element.matches(':focus-visible') };
    });
    if (found.name.trim().startsWith(name)) {
      ok(found.isMarked, `the focus on ${name} is not visible`);
      return;
    }
  }
  throw new Error(`${name} is not reached by Tab`);
};
flows['every screen is reached and used by the keyboard alone'] = async (page) => {
  await page.goto(`${facts.root}/ui`);
  await page.locator('h1', { hasText: 'Overview' }).waitFor();
  for (const [link, title] of [['Keys and budgets', 'Keys and budgets'], ['Files', 'Files'], ['Vector stores', 'Vector stores'], ['Tools', 'Hosted tools'], ['Health', 'Health'], ['Requests', 'Requests'], ['Playground', 'Playground']]) {
    await page.evaluate(() => document.body.focus());
    await tabTo(page, link);
    await page.keyboard.press('Enter');
    await page.locator('h1', { hasText: title }).waitFor();
    await page.waitForFunction(() => document.activeElement.tagName === 'MAIN');
    await page.keyboard.press('Shift+Tab');
  }
  await tabTo(page, 'Message');
  await page.keyboard.type('By keys');
  await page.keyboard.press('Control+Enter');
  await answer(page, 'By keys');
  await ended(page);
  await tabTo(page, 'As curl or Python');
  await page.keyboard.press('Enter');
  await page.locator('[data-code]').waitFor();
};
flows['a key is made and revoked by the keyboard alone'] = async (page) => {
  await open(page, 'project');
  await tabTo(page, 'New key');
  await page.keyboard.press('Enter');
  await tabTo(page, 'Name');
  await page.keyboard.type('typed');
  await page.keyboard.press('Enter');
  await page.locator('[data-secret]').waitFor();
  await tabTo(page, 'I have stored it', 10);
  await page.keyboard.press('Space');
  await tabTo(page, 'Close', 5);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Revoke typed' }).focus();
  await page.keyboard.press('Enter');
  await tabTo(page, 'Revoke', 10);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Revoke typed' }).waitFor({ state: 'detached' });
};

const heapOf = async (cdp) => {
  for (let count = 0; count < 4; count += 1) await cdp.send('HeapProfiler.collectGarbage');
  return (await cdp.send('Runtime.getHeapUsage')).usedSize;
};
flows['following 100,000 requests takes at most 10 MB more'] = async (page) => {
  // The stream is made in the page: what is measured is what the page keeps of it.
  await page.addInitScript(() => {
    const ask = window.fetch;
    window.fetch = (url, options) => {
      if (!String(url).includes('stream=true')) return ask(url, options);
      const encoder = new TextEncoder();
      return Promise.resolve(new Response(new ReadableStream({
        start(controller) {
          window.emit = (first, count) => {
            let text = '';
            for (let number = first; number < first + count; number += 1) {
              const used = { fresh_tokens: 100, cached_tokens: 5, cache_write_tokens: 0, output_tokens: 40, reasoning_tokens: 2, total_tokens: 147, cost_usd: '0.001' };
              const one = { id: `resp_ap-${String(number).padStart(12, '0')}${'x'.repeat(36)}`, object: 'organization.antiphon.request', status: 'completed', project_id: 'acme', api_key_id: null, user_id: null, conversation_id: null,
                run_id: null, model: 'qwen3-32b', served_model: 'qwen3-32b', provider: 'farm', created_at: 2e9 + number, ended_at: 2e9 + number, first_ms: 10, total_ms: 20, charges: 1, unpriced_charges: 0, basis: 'reported', used };
              text += `event: request\ndata: ${JSON.stringify(one)}\n\n`;
            }
            controller.enqueue(encoder.encode(text));
          };
        },
      }), { status: 200 }));
    };
  });
  await visit(page, '/ui/requests', 'Requests', '.note');
  await page.locator('.note', { hasText: 'following' }).waitFor();
  const cdp = await browser.newCDPSession(page);
  const shown = (number) => page.locator(`a[title^="resp_ap-${String(number).padStart(12, '0')}"]`).waitFor();
  await page.evaluate(() => window.emit(0, 500));
  await shown(499);
  const before = await heapOf(cdp);
  for (let first = 500; first < 100_500; first += 500) {
    await page.evaluate((from) => window.emit(from, 500), first);
    if (first % 10_000 === 0) await shown(first + 499);
  }
  await shown(100_499);
  const grown = (await heapOf(cdp)) - before;
  ok(grown <= 10_000_000, `the heap has grown by ${grown} bytes`);
  const rows = Number(await page.locator('.list table').getAttribute('aria-rowcount'));
  ok(rows < 2600, `${rows} rows are kept`);
  console.error(`heap after 100,000 followed requests: ${(grown / 1e6).toFixed(1)} MB more`);
};

await play(flows);
