import type { CDPSession, Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { until } from '../base/support/until.ts';
import { MeshModel } from '../ui/support/mesh-model.ts';
import { usePages } from '../ui/support/open-page.ts';

const { open } = usePages();

const PREFIXES = 1_000_000;
/** Budgets of the list of prefixes. */
const FIRST_ROWS_MS = 300;
/**
 * CPU time of the main thread for a frame. The time between frames depends on the other programs of the machine, so it
 * is only printed.
 */
const FRAME_MS = 33;
const HEAP_BYTES = 60e6;

/** Opens the list and returns the time until the first rows are shown, in the page. */
const FIRST_ROWS = `new Promise((shown) => {
  const began = performance.now();
  const look = () => document.querySelector('.rows .row a') === null ? requestAnimationFrame(look) : shown(performance.now() - began);
  location.hash = '#/prefixes';
  look();
})`;

/** Scrolls a screen in each of 300 frames, and returns the time of each frame. */
const SCROLL = `new Promise((done) => {
  const list = document.querySelector('.virtual');
  const frames = [];
  let last = performance.now();
  const step = (now) => {
    frames.push(now - last);
    last = now;
    list.scrollTop += list.clientHeight;
    frames.length < 300 ? requestAnimationFrame(step) : done(frames.slice(1));
  };
  requestAnimationFrame(step);
})`;

async function heapOf(session: CDPSession): Promise<number> {
  await session.send('HeapProfiler.collectGarbage');
  return (await session.send('Runtime.getHeapUsage')).usedSize;
}

/** Returns the CPU time of the main thread. */
async function taskMs(session: CDPSession): Promise<number> {
  const { metrics } = await session.send('Performance.getMetrics');
  return (metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0) * 1_000;
}

/** Jumps to places of the list. */
const JUMPS = 250;

/** Scrolls to a part of the height, and returns the first row that is then visible. */
function scrollTo(page: Page, part: number): Promise<number> {
  return page.locator('.virtual').evaluate((list, part) => {
    list.scrollTop = (list.scrollHeight - list.clientHeight) * part;
    return Math.floor(list.scrollTop / 32);
  }, part);
}

async function rowCount(page: Page): Promise<number> {
  return Number(await page.locator('.virtual [role=table]').getAttribute('aria-rowcount')) - 1;
}

it('shows the first of 1,000,000 prefixes soon, scrolls to the last, and stays small', async () => {
  const model = new MeshModel();
  for (let i = 0; i < PREFIXES; i++)
    model.ipcache.upsert(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, {
      identity: 300 + (i % 5_000),
      source: 'k8s',
      hostIP: `192.168.${(i >> 8) & 255}.1`,
      k8s: { namespace: `ns-${i % 100}`, podName: `pod-${i}` },
    });
  const { page } = await open('', { model });
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const times: number[] = [];
  for (let attempt = 0; attempt < 3; attempt++) {
    times.push((await page.evaluate(FIRST_ROWS)) as number);
    if (attempt < 2) await page.evaluate(`location.hash = '#/clusters'`);
    await page.waitForTimeout(500);
  }
  await page.waitForSelector('text=1,000,000 prefixes');

  const before = await taskMs(session);
  const frames = ((await page.evaluate(SCROLL)) as number[]).sort((a, b) => a - b);
  const frameMs = ((await taskMs(session)) - before) / frames.length;
  const frameP99Ms = frames[Math.floor(frames.length * 0.99)];

  // Any row can be shown without the rows before it.
  expect(await rowCount(page)).toBe(PREFIXES);
  const jumps: number[] = [];
  for (let jump = 0; jump <= JUMPS; jump++) {
    const began = performance.now();
    const row = await scrollTo(page, ((jump * 7) % (JUMPS + 1)) / JUMPS);
    await until(
      'the rows are loaded',
      async () => (await page.locator(`.rows [aria-rowindex="${row + 2}"] a`).count()) > 0,
    );
    jumps.push(performance.now() - began);
  }
  await scrollTo(page, 1);
  await page.getByText('ns-99/pod-999999').waitFor();
  const heap = await heapOf(session);

  const sorted: Record<string, number> = {};
  for (const [column, text] of [
    ['identity', 'The first 10,000 in this order of 1,000,000'],
    ['prefix', undefined],
  ] as const) {
    await scrollTo(page, 0);
    const began = performance.now();
    await page.getByRole('button', { name: column }).click();
    await page.waitForSelector(`[aria-sort=ascending]:has-text("${column}")`);
    await page.waitForSelector('.rows .row a');
    sorted[column] = Math.round(performance.now() - began);
    const wanted = text === undefined ? 12_000 : 10_000;
    await until('more rows are loaded', async () => {
      await scrollTo(page, 1);
      return (await rowCount(page)) >= wanted;
    });
    if (text !== undefined) await page.getByText(text).waitFor();
  }
  console.log({
    firstRowsMs: times.map(Math.round),
    frameMs,
    frameP99Ms,
    heapMB: heap / 1e6,
    jumpMs: jumps.map(Math.round),
    sorted,
  });
  expect(Math.min(...times)).toBeLessThan(FIRST_ROWS_MS);
  expect(frameMs).toBeLessThan(FRAME_MS);
  expect(heap).toBeLessThan(HEAP_BYTES);
  expect(await page.locator('.rows .row').count()).toBeLessThan(100);
});
