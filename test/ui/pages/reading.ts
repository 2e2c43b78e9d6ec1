import type { Page } from 'playwright-core';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { UIFile } from '../../../src/api/routes/ui-routes.ts';
import { ApiServer } from '../../../src/api/server/api-server.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { testApp } from '../../api/support/test-app.ts';
import { until } from '../../base/support/until.ts';
import { clusterDocument, MeshModel } from '../support/mesh-model.ts';
import { settled, storePicture, usePages, VIEWS } from '../support/open-page.ts';

// The page on paper, on small and enlarged screens, with the keyboard, and beside an agent of another version.

const { files, newPage, open, serve } = usePages();

/** Returns a model with this number of prefixes, from `10.1.0.0` on. */
function modelOf(prefixes: number): MeshModel {
  const model = new MeshModel();
  for (let at = 0; at < prefixes; at++)
    model.ipcache.upsert(`10.1.${at >> 8}.${at & 255}`, { identity: 9, source: 'k8s' });
  return model;
}

/** Returns the texts of elements that overlap the next one in a row. */
function overlaps(page: Page, rows: string): Promise<unknown> {
  return page.locator(rows).evaluateAll((all) =>
    all.flatMap((row) => {
      const cells = [...row.children].map((cell) => {
        const inner = [cell, ...cell.querySelectorAll('*')].map((element) => element.getBoundingClientRect());
        const { left, top } = cell.getBoundingClientRect();
        return { left, top, right: Math.max(...inner.map(({ right }) => right)), text: cell.textContent };
      });
      return cells
        .filter(({ right, top }, at) => {
          const next = cells[at + 1];
          return next !== undefined && Math.abs(next.top - top) < 8 && right > next.left + 1;
        })
        .map(({ text }) => text);
    }),
  );
}

describe('the page on paper', () => {
  const printed = async (page: Page): Promise<void> => {
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    await page.evaluate("dispatchEvent(new Event('beforeprint'))");
  };

  it('has dark text, also with dark colours (regression: nearly white on paper)', async () => {
    const { page } = await open('', { colorScheme: 'dark' });
    const lightness = (): Promise<number> =>
      page.evaluate(`Math.max(...getComputedStyle(document.body).color.match(/\\d+/g).map(Number))`);
    expect(await lightness()).toBeGreaterThan(200);
    await page.evaluate("document.documentElement.dataset.theme = 'dark'");
    await printed(page);
    expect(await lightness()).toBeLessThan(100);
  });

  it('has all rows of a list, without controls (regression: only those on the screen)', async () => {
    const { page } = await open('#/prefixes', { model: modelOf(300), colorScheme: 'light' });
    const rows = page.locator('.rows .row');
    await rows.first().waitFor();
    expect(await rows.count()).toBeLessThan(100);
    await printed(page);
    await until('all rows are in the page', async () => (await rows.count()) === 300);
    const [list, last] = [await page.locator('.virtual').boundingBox(), await rows.last().boundingBox()];
    expect((last?.y ?? 0) + (last?.height ?? 0)).toBeLessThanOrEqual(
      (list?.y ?? 0) + (list?.height ?? 0) + 1,
    );
    for (const control of ['nav.tabs', '.find', '.bar button'])
      expect([control, await page.locator(control).first().isVisible()]).toEqual([control, false]);
    await page.emulateMedia({ media: null });
    await page.evaluate("dispatchEvent(new Event('afterprint'))");
    await until('the far rows are gone', async () => (await rows.count()) < 100);
  });

  it('has the first rows of a long list, and their number', async () => {
    const { page } = await open('#/prefixes', { model: modelOf(1_200), colorScheme: 'light' });
    await page.locator('.rows .row').first().waitFor();
    const note = page.getByText('The first 1,000 of 1,200 rows.');
    expect(await note.isVisible()).toBe(false);
    await printed(page);
    await note.waitFor();
    expect(await page.locator('.rows .row').count()).toBe(1_000);
  });

  it('cuts no wide table (regression: the right columns were missing)', async () => {
    const { page } = await open('#/clusters', { viewport: { width: 700, height: 900 } });
    await settled(page);
    const isCut = (): Promise<unknown> =>
      page.evaluate(`[...document.querySelectorAll('.scroll')].some((box) =>
        box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== 'visible')`);
    expect(await isCut()).toBe(true);
    await printed(page);
    expect(await isCut()).toBe(false);
  });
});

describe('the page on a small or enlarged screen', () => {
  it('fits 320 pixels in each view', async () => {
    const { page, show } = await open('', { viewport: { width: 320, height: 640 } });
    for (const [name, hash] of Object.entries(VIEWS)) {
      await show(hash);
      await settled(page);
      expect([name, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([name, 320]);
    }
  });

  it('has its header on top only if the screen is high enough (regression: it covered half of an enlarged page)', async () => {
    const { page } = await open('', { viewport: { width: 320, height: 256 } });
    const top = (): Promise<unknown> =>
      page.evaluate("getComputedStyle(document.querySelector('.top')).position");
    expect(await top()).toBe('static');
    await page.setViewportSize({ width: 1_200, height: 800 });
    expect(await top()).toBe('sticky');
  });

  it('has its counts in equal rows (regression: seven and one)', async () => {
    const { page } = await open('', { viewport: { width: 390, height: 800 } });
    for (const [width, expected] of Object.entries({ 390: 4, 1024: 2, 1180: 1, 1440: 1 })) {
      await page.setViewportSize({ width: Number(width), height: 800 });
      const tops = await page
        .locator('.figures a')
        .evaluateAll((items) => items.map((item) => item.getBoundingClientRect().top));
      const rows = [...new Set(tops)].map((row) => tops.filter((top) => top === row).length);
      expect([width, rows]).toEqual([width, new Array(expected).fill(8 / expected)]);
    }
  });

  it('breaks long names without overlaps (regression: they covered the next column)', async () => {
    const long = `${'long-name-'.repeat(12)}end`;
    const model = new MeshModel().fill();
    const write = (identity: number): void => {
      const k8s = { namespace: 'a-namespace', podName: long };
      model.ipcache.upsert('10.0.0.2', { identity, source: 'clustermesh', owner: long, k8s });
    };
    model.clusters = [
      clusterDocument('own', { local: true }),
      clusterDocument(long, { ready: false, connected: false, state: 'connecting', lastFailure: long }),
    ];
    write(9);
    write(10);
    const { page, show } = await open('', { model });
    for (const width of [1_024, 1_440]) {
      await page.setViewportSize({ width, height: 900 });
      await show('');
      await page.locator('.health li', { hasText: long }).waitFor();
      expect([width, await overlaps(page, '.health li')]).toEqual([width, []]);
      await show('#/ip/10.0.0.2');
      await page.locator('.of-one .change').first().waitFor();
      await storePicture(page, `long-names-${width}`);
      expect([width, await overlaps(page, '.change, .claim')]).toEqual([width, []]);
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    }
  });

  it('shows a cut label as a tooltip, and keeps other tooltips (regression: none)', async () => {
    const { page, show } = await open('#/identities', { viewport: { width: 390, height: 844 } });
    const chip = page.locator('td .chip').first();
    await chip.waitFor();
    await chip.evaluate((element) => {
      element.style.width = '30px';
    });
    await chip.hover();
    expect(await chip.getAttribute('title')).toBe(await chip.textContent());
    await chip.evaluate((element) => {
      element.style.width = 'auto';
    });
    await page.mouse.move(0, 0);
    await chip.hover();
    expect(await chip.getAttribute('title')).toBe('');
    await show('');
    const only = page.locator('.matrix .chip[title]').first();
    if ((await only.count()) > 0) {
      await only.hover();
      expect(await only.getAttribute('title')).toContain('no backends');
    }
  });
});

describe('the keyboard', () => {
  const focused = (page: Page): Promise<string> =>
    page.evaluate("document.activeElement.textContent || document.activeElement.getAttribute('aria-label')");

  it('begins at the top of the page (regression: behind the current tab)', async () => {
    const { page } = await open('#/services');
    await settled(page);
    await page.keyboard.press('Tab');
    expect(await focused(page)).toContain('dpcache');
  });

  it('goes on in a view that was opened from a link (regression: the focus was lost)', async () => {
    const { page } = await open('#/services');
    await page.locator('tbody a').first().focus();
    await page.keyboard.press('Enter');
    await page.waitForSelector('h1:text("shop/checkout")');
    await until('the view has the focus', async () =>
      page.evaluate("document.activeElement === document.querySelector('main')"),
    );
    expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe('none');
    await page.keyboard.press('Tab');
    expect(await page.evaluate("document.activeElement.closest('main') !== null")).toBe(true);
  });

  it('never moves the focus below the header (regression: 45 of 207 elements when going back)', async () => {
    const model = new MeshModel();
    for (let at = 0; at < 60; at++)
      model.nodes.nodeUpdated({ cluster: 'baltic', name: `node-${at}`, source: 'clustermesh' });
    const { page } = await open('#/nodes', { model, viewport: { width: 1_200, height: 500 } });
    const links = page.locator('tbody a');
    await links.nth(80).waitFor();
    await links.last().focus();
    for (let press = 0; press < 60; press++) {
      await page.keyboard.press('Shift+Tab');
      expect(
        await page.evaluate(`document.activeElement.closest('.top') !== null ||
          document.activeElement.getBoundingClientRect().top >=
            document.querySelector('.top').getBoundingClientRect().bottom`),
      ).toBe(true);
    }
  });
});

describe('the page of an agent that was replaced', () => {
  it('offers to reload if the new agent has another page (regression: the old one was used on)', async () => {
    const { page, server, url } = await open();
    const notice = page.getByText('was replaced by another version');
    const restart = async (pageFiles: readonly UIFile[]): Promise<ApiServer> => {
      const port = Number(new URL(url).port);
      const next = testApp(new MeshModel().fill(), pageFiles, systemClock);
      const again = new ApiServer({ app: next.app, tcp: { host: '127.0.0.1', port } });
      onTestFinished(() => again.stop());
      await again.start();
      await page.waitForSelector('output.live');
      return again;
    };
    await page.evaluate("fetch('page.js', { method: 'HEAD' })"); // after the page's own request
    await server.stop();
    await page.waitForSelector('output.disconnected');
    const same = await restart(files());
    await page.evaluate("fetch('page.js', { method: 'HEAD' })");
    expect(await notice.count()).toBe(0);
    await same.stop();
    await page.waitForSelector('output.disconnected');
    await restart(files().map((file) => ({ ...file, text: `${file.text}\n` })));
    await notice.waitFor();
    await Promise.all([
      page.waitForEvent('load'),
      page.getByRole('button', { name: 'Reload the page' }).click(),
    ]);
    await page.waitForSelector('output.live');
    await page.evaluate("fetch('page.js', { method: 'HEAD' })");
    expect(await notice.count()).toBe(0);
  });

  it('reports that it cannot show an answer (regression: "No problems" stayed on the page)', async () => {
    const { url } = await serve();
    const page = await newPage();
    await page.goto(url);
    await page.locator('.health').getByText('No problems').waitFor();
    await page.route('**/v1/status', async (route) => {
      const response = await route.fetch();
      const { services, ...others } = await response.json();
      await route.fulfill({ response, json: others });
    });
    await page.getByRole('alert').getByText('This page cannot show the answers of the agent').waitFor();
    expect(await page.locator('main').innerText()).not.toContain('No problems');
    await page.evaluate("location.hash = '#/nodes'");
    await page.getByText('node-1').first().waitFor(); // other views work
    expect(await page.getByRole('alert').count()).toBe(0);
  });
});

it('marks nothing as good while the status has no answer (regression: clusters stayed green)', async () => {
  const { page } = await open();
  await page.locator('.health').getByText('No problems').waitFor();
  const isOld = (): Promise<boolean> => page.evaluate("document.querySelector('main').matches('.old')");
  expect(await isOld()).toBe(false);
  await page.route('**/v1/status', (route) =>
    route.fulfill({ status: 503, contentType: 'text/html', body: '<h1>x</h1>' }),
  );
  await until('it is marked', isOld);
  await page.unroute('**/v1/status');
  await until('it is not marked', async () => !(await isOld()));
});

it('shows when the last item was rejected (regression: an old one looked like a new one)', async () => {
  const model = new MeshModel();
  const lastAt = new Date(Date.now() - 1_000).toISOString();
  model.changes = { rejected: { total: 2, byReason: { bad: 2 }, recent: ['a', 'b'], lastAt } };
  const { page } = await open('', { model });
  const panel = page.getByRole('region', { name: 'Last rejected' });
  await panel.getByText(/^2 items, the last at \d\d:\d\d:\d\d$/).waitFor();
});
