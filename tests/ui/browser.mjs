// A real browser, what is checked in it, and how flows are played and reported.
//
//   node FLOWS.mjs MODULES BROWSER PROFILE FACTS
//
// MODULES is the folder with playwright-core and axe-core. FACTS is JSON: where the gateway is and
// what was asked there; `roots` are the origins that may be asked. Each flow is one line of JSON,
// {"flow": name, "error": text or null}. After every flow the page has reported no violation of its
// policy, no error, and no other host.

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const [modules, executablePath, profile, factsText] = process.argv.slice(2);
const require = createRequire(`${modules}/x.js`);
const { chromium } = require('playwright-core');
const axeSource = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const facts = JSON.parse(factsText);

const SOON = Number(process.env.ANTIPHON_UI_PATIENCE_MS || 60_000);
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export const browser = await chromium.launchPersistentContext(profile, {
  executablePath, headless: true, args: ARGS, viewport: { width: 1280, height: 800 },
});
browser.setDefaultTimeout(SOON);
const troubles = [];
const watch = (page) => {
  page.on('pageerror', (error) => troubles.push(`error: ${error.message}`));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (!['data:', 'blob:'].includes(url.protocol) && !facts.roots.includes(url.origin)) {
      troubles.push(`another host: ${url}`);
    }
  });
  return page.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => {
      window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
};

export const ok = (value, what) => {
  if (!value) throw new Error(what);
};
export const same = (one, two, what) => ok(JSON.stringify(one) === JSON.stringify(two), `${what}: ${JSON.stringify(one)?.slice(0, 300)} is not ${JSON.stringify(two)?.slice(0, 300)}`);

/** Nothing that axe-core knows is wrong with the page. */
export const axe = async (page) => {
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  same(found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(' ')).join(', ')}`), [], 'axe');
};

/** Play every flow in a page of its own; those whose name has ANTIPHON_UI_ONLY in it, if that is set. */
export const play = async (flows) => {
  const only = process.env.ANTIPHON_UI_ONLY || '';
  for (const [name, flow] of Object.entries(flows).filter(([one]) => one.includes(only))) {
    const page = await browser.newPage();
    await watch(page);
    troubles.length = 0;
    let error = null;
    try {
      await flow(page);
      same(await page.evaluate(() => window.violations), [], 'violations of the policy');
      same(troubles, [], 'troubles');
    } catch (fault) {
      error = `${fault.message}`.slice(0, 1500);
    }
    await page.close();
    console.log(JSON.stringify({ flow: name, error }));
  }
  await browser.close();
};
