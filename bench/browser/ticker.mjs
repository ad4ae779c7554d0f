// The page of prices as Chromium sees it. `../browser.py` starts the server and says where it is:
//
//   node ticker.mjs '{"server": "http://127.0.0.1:1", "chromium": "/usr/bin/chromium", "shots": ""}'
//
// With a folder in `shots` pictures of the page are put there. Exit code: 0 all is well, 1 something is not, 2 could not be run.

import { userInfo } from 'node:os';
import { chromium } from 'playwright-core';

import { Failed, expect, until } from './looking.mjs';

// Enough for the curves to be seen.
const SHOWN_MS = 12_000;

const prices = (page) => page.$$eval('#rows .price', (all) => all.map((one) => one.textContent));

// All rows get a price, and then other ones, by the transport that the page says it has.
async function moves(page, transport) {
  await until(`live over ${transport}`, async () => {
    const found = await page.textContent('#state');
    return { right: found === `live over ${transport}`, found };
  });
  const first = await until('a price in each row', async () => {
    const found = await prices(page);
    return { right: found.length > 0 && found.every((price) => /^\d+\.\d\d$/.test(price)), found };
  });
  await until('other prices', async () => {
    const found = await prices(page);
    return { right: found.filter((price, i) => price !== first.found[i]).length > found.length / 2, found };
  });
  console.log(`ticker: ${first.found.length} prices move by ${transport}`);
}

async function looks(page, shots) {
  if (shots) await page.waitForTimeout(SHOWN_MS);
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    for (const [width, name] of [[1280, 'wide'], [390, 'narrow']]) {
      await page.setViewportSize({ width, height: 900 });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(`nothing beyond the edge of ${width} pixels`, over <= 0, over);
      if (shots) await page.screenshot({ path: `${shots}/ticker-${colorScheme}-${name}.png`, fullPage: true });
    }
  }
}

async function main() {
  const told = JSON.parse(process.argv[2]);
  // Chromium has no sandbox for root.
  const args = userInfo().uid === 0 ? ['--no-sandbox'] : [];
  const browser = await chromium.launch({ executablePath: told.chromium, args });
  try {
    const complaints = [];
    const open = async (path, prepare = async () => {}) => {
      const page = await (await browser.newContext()).newPage();
      page.on('pageerror', (error) => complaints.push(String(error)));
      await prepare(page);
      await page.goto(told.server + path);
      return page;
    };
    const page = await open('/ticker');
    await moves(page, 'WebSocket');
    await looks(page, told.shots);
    await page.close();
    await moves(await open('/ticker?transport=sse'), 'server-sent events');
    // Where no WebSocket comes through the page finds the other way by itself.
    const blocked = await open('/ticker', (page) => page.routeWebSocket(/uni_websocket/, (ws) => ws.close()));
    await moves(blocked, 'server-sent events');
    expect('no complaint of a page', complaints.length === 0, complaints);
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(`FAILED: ${error.message}`);
  process.exit(error instanceof Failed ? 1 : 2);
});
