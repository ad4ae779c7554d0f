// The administration's page as Chromium sees it. `../browser.py` starts the gateway and says where it is:
//
//   node dashboard.mjs '{"gateway": "http://127.0.0.1:1", "admin": "http://127.0.0.1:2", "chromium": "/usr/bin/chromium", "shots": ""}'
//
// With a folder in `shots` pictures of the page are put there. Exit code: 0 all is well, 1 something is not, 2 could not be run.

import { userInfo } from 'node:os';
import { chromium } from 'playwright-core';

import { Failed, expect, until } from './looking.mjs';

const DEADLINE_MS = 20_000;

async function load(gateway, rounds) {
  const paths = ['/hello', '/hello', '/hello', '/metrics', '/healthz', '/half', '/half', '/teapot', '/broken', '/nowhere'];
  for (let round = 0; round < rounds; round += 1) {
    const answers = await Promise.all(paths.map((path) => fetch(gateway + path)));
    await Promise.all(answers.map((answer) => answer.arrayBuffer()));
  }
}

const cells = (page, id) => page.$$eval(`#${id} tr`, (rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));

async function fills(page, gateway) {
  await until('figures of the load', async () => {
    await load(gateway, 5);
    const [routes, faults, rate] = [await cells(page, 'routes'), await cells(page, 'faults'), await page.textContent('#rate')];
    const names = routes.map(([name]) => name);
    const right = ['pages', 'half', 'answers', '(no route)'].every((name) => names.includes(name))
      && faults.some(([kind]) => kind === 'no_route') && faults.some(([kind]) => kind === 'connect_refused') && /^[1-9]/.test(rate);
    return { right, routes, faults, rate };
  });
  const upstreams = await until('who is passed over, and why', async () => {
    await load(gateway, 1);
    const found = await page.$$eval('#upstreams .upstream', (all) => all.map((one) => one.textContent));
    return { right: found.some((text) => /(ejected|unreachable): .+, retried in/.test(text)), found };
  });
  console.log(`upstreams: ${upstreams.found.join(' | ')}`);
  const p99 = await until('percentiles', async () => {
    const found = await page.textContent('#p99');
    return { right: / (µs|ms|s)$/.test(found), found };
  });
  console.log(`p99 of all: ${p99.found}`);
}

async function looks(page, shots) {
  const grounds = [];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    grounds.push(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor));
    for (const [width, name] of [[1280, 'wide'], [390, 'narrow']]) {
      await page.setViewportSize({ width, height: 900 });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(`nothing beyond the edge of ${width} pixels`, over <= 0, over);
      if (shots) await page.screenshot({ path: `${shots}/${colorScheme}-${name}.png`, fullPage: true });
    }
  }
  expect('another ground in the dark', grounds[0] !== grounds[1], grounds);
}

async function main({ gateway, admin, chromium: executablePath, shots }) {
  const args = userInfo().uid === 0 ? ['--no-sandbox'] : [];
  const browser = await chromium.launch({ executablePath, args });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(DEADLINE_MS);
    const wrong = [];
    page.on('console', (message) => { if (message.type() === 'error' || message.type() === 'warning') wrong.push(message.text()); });
    page.on('pageerror', (error) => wrong.push(error.message));
    page.on('request', (request) => { if (!/^(data:|blob:)/.test(request.url()) && !request.url().startsWith(`${admin}/`)) wrong.push(`asks for ${request.url()}`); });
    await page.goto(`${admin}/`);
    await page.waitForSelector('body.live');
    await fills(page, gateway);
    if (shots) {
      // So that the curve has a shape.
      for (let second = 0; second < 15; second += 1) {
        await load(gateway, 5 + (second * 7) % 11);
        await new Promise((resolve) => { setTimeout(resolve, 700); });
      }
    }
    await looks(page, shots);
    const refused = await page.evaluate(() => new Promise((resolve) => {
      const script = document.createElement('script');
      script.textContent = 'window.ran = true';
      document.addEventListener('securitypolicyviolation', () => resolve(!window.ran), { once: true });
      document.body.append(script);
      setTimeout(() => resolve(false), 5000);
    }));
    expect('a foreign script to be refused by the policy', refused, refused);
    const unexpected = wrong.filter((text) => !text.includes('Content Security Policy'));
    expect('no error in the console, and nothing asked of others', unexpected.length === 0 && wrong.length === 1, wrong);
  } finally {
    await browser.close();
  }
  console.log('the page of the administration: live, light and dark, wide and narrow, nothing from elsewhere');
}

try {
  await main(JSON.parse(process.argv[2]));
} catch (error) {
  console.error(error instanceof Failed ? `FAILED: ${error.message}` : `could not be run: ${error.stack}`);
  process.exit(error instanceof Failed ? 1 : 2);
}
