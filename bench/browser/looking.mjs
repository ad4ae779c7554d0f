// What scripts that look at a page share: a failure that says what was expected, and waiting for it.

const DEADLINE_MS = 20_000;

export class Failed extends Error {}

export function expect(what, right, found) {
  if (!right) throw new Failed(`expected ${what}, found ${JSON.stringify(found)}`);
}

// Until `look` finds what is wanted: `{ right, … }`. Returns it.
export async function until(what, look) {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await look();
    if (found.right) return found;
    expect(what, Date.now() < end, found);
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
}
