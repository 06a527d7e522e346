// Takes the pictures of docs/ui of the playground and of what is managed, in both colour schemes.
//
//   node pictures_work.mjs MODULES BROWSER PROFILE FACTS FOLDER

import { createRequire } from 'node:module';

const [modules, executablePath, profile, factsText, folder] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/x.js`)('playwright-core');
const facts = JSON.parse(factsText);
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

const browser = await chromium.launchPersistentContext(profile, {
  executablePath, headless: true, args: ARGS, viewport: { width: 1100, height: 800 },
});
browser.setDefaultTimeout(60_000);
const page = await browser.newPage();
const post = async (path, data, root = facts.root) => (await page.request.post(root + path, { data })).json();
const organization = '/v1/organization';
for (const [name, role] of [['ci-bot', 'user'], ['dashboard', 'viewer']]) await post(`${organization}/projects/acme/service_accounts`, { name, antiphon: { role } });
await post(`${organization}/antiphon/budgets`, { scope: 'project', scope_id: 'acme', unit: 'usd', limit: '5.00', period: 'month', soft: [50, 80] });
await post(`${organization}/antiphon/budgets`, { scope: 'organization', unit: 'usd', limit: '100.00', period: 'month', allows_unpriced: true });
await post(`${organization}/projects/acme/rate_limits/rl-*`, { max_requests_per_1_minute: 600, max_tokens_per_1_minute: 200000 });
const texts = {
  'harbours.txt': 'The harbour of Oslo freezes in hard winters. Pilots then lead ships along the eastern shore.',
  'winters.txt': 'A hard winter is one with forty days of frost. The harbour records list eleven of them.',
  'tides.txt': 'The tide at the western pier runs four metres high at new moon.',
};
const store = await post('/v1/vector_stores', { name: 'Harbour records' });
for (const [name, text] of Object.entries(texts)) {
  const form = { purpose: 'assistants', file: { name, mimeType: 'text/plain', buffer: Buffer.from(text) } };
  const file = await (await page.request.post(`${facts.root}/v1/files`, { multipart: form })).json();
  await post(`/v1/vector_stores/${store.id}/files`, { file_id: file.id });
}

const send = async (text) => {
  await page.getByRole('textbox', { name: 'Message', exact: true }).fill(text);
  await page.getByRole('button', { name: 'Send', exact: true }).click();
};
const visit = async (path, ready) => {
  await page.goto(facts.root + path);
  await page.locator(ready).first().waitFor();
};
const screens = {
  playground: async () => {
    await visit('/ui/playground?model=qwen3-32b&model2=small', '.pg-lane');
    await page.locator('summary', { hasText: 'Instructions and tools' }).click();
    await page.getByRole('button', { name: 'Use an example' }).click();
    await send('How is the weather in Oslo?');
    await page.getByLabel('Result of get_weather').nth(1).waitFor();
    await page.getByLabel('Result of get_weather').first().fill('7 degrees, rain');
    await page.getByRole('button', { name: 'Send results' }).first().click();
    await page.locator('[data-answer]').waitFor();
    await page.locator('summary', { hasText: 'Instructions and tools' }).click();
  },
  approval: async () => {
    await visit('/ui/playground?model=qwen3-32b', '.pg-lane');
    await page.locator('summary', { hasText: 'Instructions and tools' }).click();
    await page.getByLabel('MCP server desk').check();
    await page.locator('summary', { hasText: 'Instructions and tools' }).click();
    await send('Please add two and three.');
    await page.getByText('May desk run add?').waitFor();
  },
  access: () => visit('/ui/access', 'td a'),
  project: async () => {
    await visit('/ui/access/acme', 'td meter');
    await page.locator('summary', { hasText: 'Set a budget' }).click();
    await page.getByRole('form', { name: 'Set a budget' }).getByLabel('Limit').fill('1.50');
    await page.getByRole('form', { name: 'Set a budget' }).getByLabel('Period').selectOption('day');
  },
  files: () => visit('/ui/files', 'td'),
  store: async () => {
    await visit(`/ui/stores/${store.id}?q=hard+winter+harbour`, '.mg-results li');
    await page.locator('.status.completed').nth(2).waitFor();
  },
  tools: () => visit('/ui/tools', 'td'),
  health: async () => {
    await visit('/ui/health', '.card');
    await page.getByRole('button', { name: 'Check the ledger' }).click();
    await page.getByText('The ledger is right').waitFor();
  },
  login: async () => {
    await page.goto(`${facts.locked}/ui`);
    await page.getByRole('button', { name: 'Log in with' }).waitFor();
  },
};
for (const scheme of ['light', 'dark']) {
  await page.emulateMedia({ colorScheme: scheme });
  for (const [name, show] of Object.entries(screens)) {
    await show();
    await page.screenshot({ path: `${folder}/${name}-${scheme}.png` });
  }
}
await browser.close();
