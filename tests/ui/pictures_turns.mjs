// Takes the pictures of rounds, trees and conversations for docs/ui, in both colour schemes: see pictures.py.
//
//   node pictures_turns.mjs MODULES BROWSER PROFILE FACTS FOLDER

import { browser, facts } from './browser.mjs';

const folder = process.argv[6];
const page = await browser.newPage();
await page.setViewportSize({ width: 1100, height: 760 });
const screens = {
  rounds: async () => {
    await page.goto(`${facts.root}/ui/responses/${facts.repaired}`);
    await page.getByRole('button', { name: '2 repair' }).click();
    await page.locator('[data-break]').waitFor();
  },
  rounds: async () => {
    await page.goto(`${facts.root}/ui/responses/${facts.hosted}`);
    await page.locator('.waterfall .bar.tool').waitFor({ state: 'attached' });
    await page.getByRole('tab', { name: 'Items' }).click();
  },
  saw: async () => {
    await page.goto(`${facts.root}/ui/responses/${facts.fork}`);
    await page.getByRole('tab', { name: 'What the model saw' }).click();
    await page.locator('[data-break]').waitFor();
    await page.locator('.part.added summary').first().click();
  },
  tree: async () => {
    await page.goto(`${facts.root}/ui/responses/${facts.chain[2]}/tree`);
    await page.locator('[data-diff]').waitFor();
  },
  conversations: async () => {
    await page.goto(`${facts.root}/ui/conversations`);
    await page.locator('.tree td a').first().waitFor();
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
