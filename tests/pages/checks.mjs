// Checks of one page, the same for each: nothing beyond the edge, nothing cut, no serious finding of axe, nothing from elsewhere.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

export class Failed extends Error {}

export function expect(what, right, found) {
  if (!right) throw new Failed(`expected ${what}, found ${JSON.stringify(found)}`);
}

// Calls `look` until it returns `{ right: true, … }`, and returns that.
export async function until(what, look, deadlineMs = 20_000) {
  const end = Date.now() + deadlineMs;
  for (;;) {
    const found = await look();
    if (found.right) return found;
    expect(what, Date.now() < end, found);
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// Runs in the page. Returns the parts that are wider than their box and that neither mouse nor keyboard can scroll.
function cutParts() {
  const isCut = (element) => {
    const style = getComputedStyle(element);
    if (element.scrollWidth <= element.clientWidth + 1 || style.overflowX === 'visible' || element.clientWidth <= 1) return false;
    if (style.overflowX === 'hidden' || style.overflowX === 'clip') return true;
    return element.tabIndex < 0 || !(element.getAttribute('aria-label') || element.getAttribute('aria-labelledby'));
  };
  return [...document.querySelectorAll('body *')].filter(isCut).map((element) => element.outerHTML.slice(0, 120));
}

// Returns the problems of a page as it is displayed, each with the expectation and what was found, and the number of findings of axe.
export async function problems(page) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  const cut = await page.evaluate(cutParts);
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const found = [];
  if (over > 0) found.push({ expected: 'nothing beyond the right edge', found: over });
  if (cut.length > 0) found.push({ expected: 'no part that is cut', found: cut });
  for (const { id, impact, nodes } of violations) {
    if (impact !== 'serious' && impact !== 'critical') continue;
    found.push({ expected: `no serious finding of axe, such as ${id}`, found: nodes.slice(0, 3).map((node) => node.html.slice(0, 160)) });
  }
  return { found, findings: violations.length };
}

// `where` names page, width and scheme in messages. Returns the number of findings of axe, none of them serious.
export async function check(page, where) {
  const { found, findings } = await problems(page);
  for (const problem of found) expect(`${where}: ${problem.expected}`, false, problem.found);
  return findings;
}

// Collects console errors, and requests to other servers than `origin`.
export function watch(page, origin) {
  const wrong = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) wrong.push(message.text()); });
  page.on('pageerror', (error) => wrong.push(error.message));
  page.on('request', (request) => { if (!/^(data:|blob:|file:)/.test(request.url()) && !request.url().startsWith(`${origin}/`)) wrong.push(`request to ${request.url()}`); });
  return wrong;
}
