// Takes the pictures of docs/ui, one of each screen in both colour schemes.
//
//   node pictures.mjs MODULES BROWSER PROFILE FACTS FOLDER

import { createRequire } from 'node:module';

const [modules, executablePath, profile, factsText, folder] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/x.js`)('playwright-core');
const facts = JSON.parse(factsText);
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

const browser = await chromium.launchPersistentContext(profile, {
  executablePath, headless: true, args: ARGS, viewport: { width: 1100, height: 640 },
});
browser.setDefaultTimeout(60_000);
const page = await browser.newPage();
const screens = {
  overview: async () => {
    const end = Math.ceil(Date.now() / 60_000) * 60;
    await page.goto(`${facts.root}/ui?range=1h&from=${end - 600}&to=${end}`);
    await page.locator('.plot canvas').waitFor();
    await page.locator('.short .list tbody tr').first().waitFor();
  },
  requests: async () => {
    await page.goto(`${facts.root}/ui/requests`);
    await page.locator('td a').first().waitFor();
    await page.keyboard.press('j');
    await page.locator('tr.selected').waitFor();
  },
  response: async () => {
    await page.goto(`${facts.root}/ui/responses/${facts.story}`);
    await page.locator('.play:not([disabled])').waitFor();
    await page.locator('input[type=range]').fill(String(facts.live.length >> 1));
    await page.locator(`[data-place="${facts.live.length >> 1}"]`).waitFor();
  },
};
for (const scheme of ['light', 'dark']) {
  await page.emulateMedia({ colorScheme: scheme });
  for (const [name, show] of Object.entries(screens)) {
    await show();
    await page.screenshot({ path: `${folder}/${name}-${scheme}.png`, fullPage: name === 'overview' });
  }
}
await browser.close();
