import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import type { Page } from 'playwright-core';
import { describe, expect, it, onTestFinished } from 'vitest';
import { uiPath } from '../../../src/api/routes/ui-routes.ts';
import { ApiServer } from '../../../src/api/server/api-server.ts';
import type { KindDocument } from '../../../src/api/status-document.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { FakeClock } from '../../agent/support/fake-clock.ts';
import { TestModel } from '../../api/support/model.ts';
import { SteeringModel } from '../../api/support/steering-model.ts';
import { testApp } from '../../api/support/test-app.ts';
import { until } from '../../base/support/until.ts';
import { clusterDocument, MeshModel } from '../support/mesh-model.ts';
import { COLOUR_RULES, settled, storePicture, usePages, VIEWS, violations } from '../support/open-page.ts';

const { files, newPage, open, serve } = usePages();

/** Starts a proxy that serves an agent below a path and delays its changes. Returns the URL of the path. */
async function startProxy(agent: string, below: string, delayMs: number = 0): Promise<string> {
  const proxy = createServer(({ url = '', method, headers }, answer) => {
    if (!url.startsWith(`${below}/`)) {
      answer.writeHead(404).end();
      return;
    }
    const path = url.slice(below.length);
    const sent = request(agent, { method, headers, path }, (received) => {
      answer.writeHead(received.statusCode ?? 502, received.headers).flushHeaders();
      setTimeout(() => received.pipe(answer), path.startsWith('/v1/monitor') ? delayMs : 0);
    });
    answer.once('close', () => sent.destroy());
    sent.on('error', () => answer.destroy()).end();
  });
  await new Promise<void>((listening) => proxy.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void proxy.close().closeAllConnections());
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${below}`;
}

/** Tells a page that it was hidden, or is visible again. */
function setHidden(page: Page, hidden: boolean): Promise<unknown> {
  return page.evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, value: ${hidden} });
    document.dispatchEvent(new Event('visibilitychange'))`);
}

describe('the page of an agent that requires a token', () => {
  it('asks the user for it, and shows it in no address', async () => {
    const world = testApp(undefined, files(), systemClock);
    const tcp = { host: '127.0.0.1', port: 0, token: 'a token' };
    const server = new ApiServer({ app: world.app, tcp, pathsWithoutToken: new Set(files().map(uiPath)) });
    await server.start();
    onTestFinished(() => server.stop());
    const page = await newPage();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.goto(`${server.url}/#nodes`);
    await page.waitForSelector('#token');
    expect(await violations(page)).toEqual([]);
    await storePicture(page, 'token');
    const show = async (token: string): Promise<void> => {
      await page.fill('#token', token);
      await Promise.all([page.waitForEvent('load'), page.click('main button[type=submit]')]);
    };
    await show('another');
    await page.waitForSelector('text=rejected the token');
    await show('a token');
    await page.waitForSelector('output.live');
    await page.waitForSelector('text=node-1');
    world.model.nodes.nodeUpdated({ cluster: 'baltic', name: 'node-new', source: 'clustermesh' });
    await page.waitForSelector('text=node-new');
    expect(await page.locator('#token').count()).toBe(0);
    expect(asked.filter((url) => url.includes('token') || url.includes('another'))).toEqual([]);
  });

  it('reports that the browser forbids its storage (regression: then the page showed nothing, with or without a token)', async () => {
    const { url } = await serve();
    const page = await newPage({});
    await page.addInitScript(`Object.defineProperty(window, 'sessionStorage', {
      get: () => { throw new DOMException('denied', 'SecurityError'); } })`);
    await page.goto(`${url}/#/nodes`);
    await page.getByText('node-1').first().waitFor();
    await page.route(/v1/, (route) => route.fulfill({ status: 401, json: { detail: 'no token' } }));
    await page.fill('#token', 'a token');
    await page.click('main button[type=submit]');
    await page.getByRole('alert').getByText('allow this site to store data').waitFor();
  });
});

describe('each view', () => {
  it('has no fault of accessibility, light or dark', async () => {
    const { page, show } = await open();
    for (const [name, hash] of Object.entries(VIEWS)) {
      await show(hash);
      await settled(page);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        const found = await violations(page, colorScheme === 'dark' ? COLOUR_RULES : undefined);
        expect.soft(found, `${name}, ${colorScheme}`).toEqual([]);
        await storePicture(page, `${name}-${colorScheme}`);
      }
    }
  });

  it('has a title of its own', async () => {
    const { page, show } = await open();
    const titles = new Set<string>();
    for (const hash of Object.values(VIEWS)) {
      await show(hash);
      await until('it has a new title, with its heading', async () => {
        const title = await page.title();
        const heading = (await page.locator('main h1').textContent()) ?? '';
        return title.startsWith(heading) && !titles.has(title);
      });
      titles.add(await page.title());
    }
    expect(titles.size).toBe(Object.keys(VIEWS).length);
    expect([...titles]).toContain('shop/checkout (service) · own · dpcache');
  });

  it('fits a phone, even with very long names', async () => {
    const model = new MeshModel().fill();
    const long = 'x'.repeat(253);
    const k8s = { namespace: long, podName: long };
    model.ipcache.upsert('10.0.0.2', { identity: 9, source: 'clustermesh', owner: long, k8s });
    model.ipcache.upsert('2001:db8:1234:5678:9abc:def0:1234:5678', { identity: 9, source: 'k8s' });
    model.nodes.nodeUpdated({ cluster: 'baltic', name: long, source: 'clustermesh' });
    const { page, show } = await open('', { model, viewport: { width: 390, height: 844 } });
    for (const [name, hash] of Object.entries({
      ...VIEWS,
      ip: '#/ip/10.0.0.2',
      node: `#/node/baltic/${long}`,
    })) {
      await show(hash);
      await settled(page);
      model.ipcache.upsert('10.0.0.2', { identity: 10, source: 'clustermesh', owner: long, k8s });
      await storePicture(page, `${name}-phone`, { fullPage: true });
      expect([name, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([name, 390]);
    }
    const navigation = await page.locator('nav.tabs').boundingBox();
    expect(navigation?.height).toBeLessThan(45);
    await show('#/live');
    const tab = await page.getByRole('link', { name: 'Live' }).boundingBox();
    expect((tab?.x ?? 390) + (tab?.width ?? 0)).toBeLessThanOrEqual(390);
    await show('#/services');
    await page.waitForSelector('tbody .chip');
    const chip = await page.locator('tbody .chip').first().boundingBox();
    expect(chip?.height).toBeLessThan(30); // a word is not broken, because the table scrolls
  });
});

describe('an unusual name', () => {
  it.each(['.', '..'])('%s is opened from its link (regression: URL parsers removed it)', async (name) => {
    const model = new MeshModel();
    model.nodes.nodeUpdated({ cluster: 'baltic', name, source: 'clustermesh' });
    model.addService({ namespace: name, name }, '172.16.0.99');
    model.services.markSynced();
    const { page, show } = await open('#/nodes', { model });
    await page.getByRole('link', { name: `baltic/${name}`, exact: true }).click();
    await page.getByRole('heading', { name: `baltic/${name}`, exact: true }).waitFor();
    await page.getByText('clustermesh').first().waitFor();
    await show('#/services');
    await page.getByRole('link', { name: `${name}/${name}`, exact: true }).click();
    await page.getByText('172.16.0.99').first().waitFor();
  });

  it('cannot change the direction of the text around it', async () => {
    const model = new MeshModel();
    const name = 'gp\u202Eexe\u2067';
    model.nodes.nodeUpdated({
      cluster: 'baltic',
      name,
      source: 'clustermesh',
      labels: new Map([[name, name]]),
    });
    model.nodes.nodeUpdated({ cluster: 'baltic', name: 'אבג', source: 'clustermesh' });
    const { page } = await open('#/nodes', { model });
    await page.getByRole('link', { name: 'baltic/אבג' }).waitFor();
    const style = `getComputedStyle([...document.links].find(({ text }) => text === 'baltic/אבג'))`;
    expect(await page.evaluate(`${style}.unicodeBidi`)).toBe('isolate');
    await page.getByRole('link', { name: 'gp\\u202eexe\\u2067' }).click();
    await page.getByRole('heading', { name: 'gp\\u202eexe\\u2067' }).waitFor();
    await settled(page);
    const unsafe = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
    expect(await page.evaluate('document.body.innerText')).not.toMatch(unsafe);
    expect(await page.title()).not.toMatch(unsafe);
  });

  it('is never markup, in any view, title or address', async () => {
    const name = `"'><img src=x onerror=alert(1)>`;
    const link = 'javascript:alert(1)';
    const model = new MeshModel().fill();
    const labels = [{ source: name, key: name, value: link }];
    Object.assign(model, { labelsOf: () => labels });
    model.identities = () => [{ identity: 1234, labels, cluster: name }];
    const k8s = { namespace: name, podName: link };
    model.ipcache.upsert('10.0.0.1', { identity: 1234, source: 'k8s', owner: name, k8s });
    model.nodes.nodeUpdated({ cluster: name, name: link, source: 'k8s', labels: new Map([[name, link]]) });
    model.addService({ namespace: name, name: link }, '172.16.0.98');
    model.clusters = [clusterDocument('own', { local: true }), clusterDocument(name, { lastFailure: name })];
    const { page, show } = await open('', { model });
    const views = ['ip', 'service', 'node', 'cluster', 'identity', 'prefixes', 'services', 'nodes', 'search'];
    const text = encodeURIComponent(name);
    let viewsWithName = 0;
    for (const hash of [
      ...Object.values(VIEWS),
      ...views.map(
        (view) => `#/${view}/${text}/${encodeURIComponent(link)}?within=${text}&at=${text}&q=${text}`,
      ),
      `#/${text}`,
      `#${name}`,
    ]) {
      await show(hash);
      await settled(page);
      const built = `document.querySelectorAll('img, iframe, [onerror], a[href^="javascript:"]').length`;
      expect([hash, await page.evaluate(built)]).toEqual([hash, 0]);
      if ((await page.innerText('main')).includes('alert(1)')) viewsWithName++;
    }
    expect(viewsWithName).toBeGreaterThan(10);
  });
});

describe('the page', () => {
  it('can be used with the keyboard only', async () => {
    const { page } = await open();
    const focused = (): Promise<unknown> => page.evaluate('document.activeElement.textContent');
    for (let presses = 0; presses < 12 && (await focused()) !== 'Services'; presses++)
      await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.waitForSelector('h1:has-text("Services")');
    expect(await page.locator('nav.tabs [aria-current]').allInnerTexts()).toEqual(['Services']);
  });

  it('remembers the chosen colours and density', async () => {
    const { page } = await open();
    const ground = (): Promise<string> =>
      page.evaluate('getComputedStyle(document.body.parentElement).backgroundColor');
    const light = await ground();
    await page.getByRole('button', { name: /Colours: system/ }).click();
    await page.getByRole('button', { name: /Colours: light/ }).click();
    expect(await ground()).not.toBe(light);
    await page.getByRole('button', { name: /Rows: normal/ }).click();
    await page.reload();
    await page.waitForSelector('output.live');
    expect(await page.evaluate('({ ...document.documentElement.dataset })')).toEqual({
      theme: 'dark',
      density: 'compact',
    });
    expect(await violations(page)).toEqual([]);
  });

  it('moves nothing if the user prefers reduced motion', async () => {
    const { page } = await open('', { reducedMotion: 'reduce' });
    await page.waitForSelector('.mesh .flow');
    expect(await page.evaluate('document.getAnimations().length')).toBe(0);
  });

  it('shows the tables of the kernel, and what is missing', async () => {
    const { page } = await open('#/datapath', { model: new SteeringModel().fill() });
    await page.waitForSelector('text=Kernel tables');
    const text = (await page.locator('main').innerText()).replaceAll(/\s+/g, ' ');
    expect(text).toContain('kernel Linux 6.18.44 pins /sys/fs/bpf/dpcache');
    expect(text).toContain('services unavailable no cgroup2 is mounted');
    expect(text).toContain('ipcache degraded 10 12 10 3 1 2 1 6');
    expect(await violations(page)).toEqual([]);
  });

  it('shows the reflectors of Kubernetes, and names those that are behind', async () => {
    const model = new TestModel().fill();
    const kind: KindDocument = {
      name: 'pods',
      state: 'watching' as const,
      complete: true,
      objects: 50_000,
      rejected: 3,
      events: 7,
      lists: 1,
      bookmarks: 2,
      lagMs: 4_000,
      failures: 0,
      lastEventAt: '2026-01-02T03:04:05.000Z',
    };
    model.kubernetes = {
      server: 'https://10.0.0.1:6443',
      synced: false,
      handover: { nodes: 'following', ip: 'resting', identities: 'withdrawing' },
      kinds: [
        kind,
        { ...kind, name: 'nodes', state: 'listing', behindMs: 65_000, retryInMs: 3_000 },
        {
          ...kind,
          name: 'ciliumidentities',
          state: 'forbidden',
          complete: false,
          failures: 2,
          lastFailure:
            'grant the verb "list" on the resource "ciliumidentities" of the API group "cilium.io"',
        },
        { ...kind, name: 'endpoints', state: 'missing', objects: 0 },
      ],
    };
    const { page } = await open('#/kubernetes', { model });
    const rows = page.getByRole('region', { name: 'Table of reflectors' }).getByRole('row');
    await rows.nth(4).waitFor();
    const text = async (place: number): Promise<string> =>
      (await rows.nth(place).innerText()).replaceAll(/\s+/g, ' ');
    expect(await text(1)).toMatch(/^pods watching 50,000 3 7 .* 1 4 s ago –$/);
    expect(await text(2)).toContain('listing behind for 1 min, next attempt in 3 s');
    expect(await text(3)).toContain('2: grant the verb "list"');
    expect(await page.getByRole('region', { name: 'API server' }).innerText()).toMatch(
      /ip\s+from a kvstore\s+identities\s+from a kvstore; the data of Kubernetes is being deleted/,
    );
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await violations(page, colorScheme === 'dark' ? COLOUR_RULES : undefined)).toEqual([]);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
  });

  it('shows the entry of the kernel on the card of an IP, and its difference from the cache', async () => {
    const model = new SteeringModel().fill();
    const { page } = await open('#/ip/10.0.0.1', { model });
    const panel = page.getByRole('region', { name: 'Attributes' });
    await panel.getByText('encryption key').or(panel.getByText('prefix')).first().waitFor();
    expect(await panel.innerText()).not.toContain('kernel');
    const value = 'identity 1234 via 192.168.0.1';
    for (const [kernel, expected] of [
      [{ kernel: value, cache: value }, `kernel ${value} same as the cache`],
      [{ cache: value }, `kernel no entry differs the cache has: ${value}`],
      [{ failure: 'bpf(MAP_LOOKUP_ELEM): EPERM' }, 'kernel bpf(MAP_LOOKUP_ELEM): EPERM'],
    ] as const) {
      model.kernel = kernel;
      // A card reads again after changes.
      model.ipcache.upsert('10.9.9.9', { identity: expected.length, source: 'k8s' });
      await expect.poll(async () => (await panel.innerText()).replaceAll(/\s+/g, ' ')).toContain(expected);
      expect(await violations(page)).toEqual([]);
    }
  });

  it('with an invalid address reports the error, or shows the existing entry', async () => {
    // Two views in sequence differ, so an alert belongs to the second one.
    const addresses = [
      ['#/prefixes?nonsense=1&__proto__=2', 'main'],
      ['#/nowhere?%=%', 'alert'],
      ['#/prefixes?identity=many', 'alert'],
      ['#/ip/11.0.0.1', 'alert'],
      ['#/prefixes?within=10.0.0.0/99', 'alert'],
      ['#/service/%2F/%2F', 'alert'],
      ['#/constructor', 'alert'],
      ['#/service/a%00b', 'alert'],
      ['#/__proto__', 'alert'],
      ['#/nodes?cluster=%E0%A4', 'main'],
      ['#/node/%E0%A4', 'main'],
      ['#/live?type=nonsense&contains=%F0', 'main'],
    ] as const;
    const { page, show } = await open('#/constructor');
    for (const [hash, role] of addresses) {
      await show(hash);
      await settled(page);
      await until(`${hash}: ${role}`, async () => (await page.getByRole(role).count()) > 0);
    }
  });

  it('is at most 120 kB compressed, and may load nothing from elsewhere', async () => {
    const { url } = await serve();
    const answer = await fetch(url);
    expect(answer.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(files().reduce((size, { text }) => size + gzipSync(text).length, 0)).toBeLessThanOrEqual(120_000);
  });

  it('closes its connection out of sight, and resumes it (regression: six tabs of a browser blocked the others)', async () => {
    const { page, model } = await open('#/prefixes', { fakeClock: true });
    const closed = page.waitForEvent('requestfailed', (request) => request.url().includes('/v1/monitor'));
    await setHidden(page, true);
    await page.clock.runFor(6_000);
    await closed;
    await page.waitForSelector('output.connecting');
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' });
    const resumed = page.waitForRequest(/\/v1\/monitor\?from=/);
    await setHidden(page, false);
    await resumed;
    await page.waitForSelector('output.live');
    await page.clock.runFor(5_000);
    await page.getByRole('link', { name: '10.7.7.7' }).waitFor();
  });

  it('connects once if it is shown again before its next attempt (regression: it connected twice)', async () => {
    const { page } = await open('', { fakeClock: true });
    let attempts = 0;
    await page.route(/v1\/monitor/, (route) =>
      ++attempts <= 2 ? route.fulfill({ status: 503, json: { detail: 'not now' } }) : route.continue(),
    );
    // Ends when the page has handled its answers.
    const flush = (): Promise<unknown> => page.evaluate(`fetch('healthz').then((answer) => answer.text())`);
    const next = async (step: () => Promise<unknown>): Promise<void> => {
      const answered = page.waitForResponse(/v1\/monitor/);
      await step();
      await answered;
      await flush();
    };
    await page.clock.pauseAt(Date.now() + 60_000);
    await page.reload();
    await next(async () => {
      while (attempts === 0) await page.clock.runFor(20);
    });
    await setHidden(page, true);
    await next(() => page.clock.runFor(3_000));
    await page.clock.runFor(2_500); // closes the connection, 500 ms before the next attempt
    await next(() => setHidden(page, false));
    await page.clock.runFor(2_000);
    await flush();
    expect(attempts).toBe(3);
  });

  it('opened in the background closes its connection, too (regression: six links blocked the others)', async () => {
    const { url } = await serve();
    const page = await newPage({});
    await page.addInitScript(
      `Object.defineProperty(document, 'hidden', { configurable: true, value: true })`,
    );
    await page.clock.install();
    await page.goto(url);
    await page.waitForSelector('output.live');
    await page.clock.runFor(6_000);
    await page.waitForSelector('output.connecting');
  });

  it('works below a path of a proxy (regression: it requested the API of the root)', async () => {
    const { url } = await serve();
    const proxy = await startProxy(url, '/agents/own');
    const page = await newPage();
    await page.goto(`${proxy}/#/nodes`);
    await page.waitForSelector('output.live');
    await page.getByRole('link', { name: 'baltic/node-1' }).click();
    await page.getByRole('heading', { name: 'baltic/node-1' }).waitFor();
  });

  it('waits for changes that a slow connection delays (regression: it was never connected)', async () => {
    const { url } = await serve();
    const page = await newPage();
    await page.goto(await startProxy(url, '', 1_500));
    await page.waitForSelector('output.live');
  });

  it.each(['nodes', 'ipcache'])(
    'reads %s again after the agent could not answer (regression: only after a change)',
    async (path) => {
      const { page } = await open('', { fakeClock: true });
      let answers = 0;
      const busy = { status: 429, json: { detail: 'try again later' } };
      await page.route(new RegExp(`v1/${path}\\?`), (route) =>
        ++answers === 1 ? route.fulfill(busy) : route.continue(),
      );
      await page.evaluate(`location.hash = '#/${path === 'nodes' ? path : 'prefixes'}'`);
      await page.getByRole('alert').getByText('try again later').waitFor();
      await page.clock.runFor(4_000);
      await page
        .getByRole('link', { name: path === 'nodes' ? 'baltic/node-1' : '10.0.0.1' })
        .first()
        .waitFor();
      expect(await page.getByRole('alert').count()).toBe(0);
    },
  );

  it('reports that its status has no answer (regression: it reported no problems)', async () => {
    const { page, model } = await open('', { fakeClock: true });
    await page.locator('.health').getByText('No problems').waitFor();
    const asked = page.waitForRequest(/v1\/status/);
    await page.route(/v1\/status/, () => {}); // never answers
    await page.clock.runFor(5_000);
    await asked;
    await page.clock.fastForward(31_000);
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' }); // the connection for changes works
    await page.locator('.health').getByText('The agent has not answered for 30 s').waitFor();
  });

  it('notices a broken connection after its clock is set back (regression: it was live until the old time)', async () => {
    const { page } = await open('', { fakeClock: true, clock: new FakeClock() }); // sends no heartbeats
    await page.clock.setSystemTime(Date.now() - 3_600_000);
    await page.clock.runFor(20_000);
    await page.waitForSelector('output.stale');
  });

  it('connects again if its request for changes has no answer (regression: it waited without a limit)', async () => {
    const { page } = await open('', { fakeClock: true });
    await page.route(/v1\/monitor/, () => {}, { times: 1 }); // never answers
    const asked = page.waitForRequest(/v1\/monitor/);
    await page.reload();
    await asked;
    await page.clock.runFor(31_000);
    await page.waitForSelector('output.disconnected');
    await page.clock.runFor(4_000);
    await page.waitForSelector('output.live', { timeout: 20_000 });
  });

  it('reports why the agent sends no changes (regression: it was unreachable)', async () => {
    const { page } = await open();
    const detail = 'More than 256 concurrent monitors: try again later.';
    await page.route(/v1\/monitor/, (route) => route.fulfill({ status: 429, json: { detail } }));
    await page.reload();
    await page.locator('.health').getByText(`Cannot receive changes: ${detail}`).waitFor();
  });

  it('whose requests a proxy answers keeps its state, and reports it (regression: it failed, or reported no problems)', async () => {
    const { page } = await open();
    const health = page.locator('.health');
    await health.getByText('No problems').waitFor();
    const answers = [
      ['not from the agent, or incomplete', { status: 200, json: null }],
      ['no upstream', { status: 503, json: { detail: 'no upstream' } }],
      ['HTTP status 502', { status: 502, contentType: 'text/html', body: '<h1>Bad Gateway</h1>' }],
      ['not from the agent, or incomplete', { status: 200, body: '{"items":[' }],
    ] as const;
    for (const [text, answer] of answers) {
      await page.route(/v1\/(?!monitor)/, (route) => route.fulfill(answer));
      await health.getByText(text).waitFor();
      expect(await page.locator('main h1').innerText()).toBe('Overview');
    }
  });

  it('shows that it is disconnected when the agent has ended, and reconnects to the new state', async () => {
    const { page, server, url } = await open('#/prefixes');
    const rows = page.locator('.rows .row');
    await until('rows are shown', async () => (await rows.count()) === 3);
    await server.stop();
    await page.waitForSelector('output.disconnected');
    expect(await page.locator('output').textContent()).toMatch(/^disconnected since \d\d:\d\d:\d\d$/);
    expect(await rows.count()).toBe(3);
    const model = new MeshModel();
    model.ipcache.upsert('10.8.8.8', { identity: 9, source: 'k8s' });
    const next = testApp(model, files(), systemClock);
    const port = Number(new URL(url).port);
    const again = new ApiServer({ app: next.app, tcp: { host: '127.0.0.1', port } });
    onTestFinished(() => again.stop());
    await again.start();
    await page.waitForSelector('output.live');
    await until('the list is read again', async () => (await rows.count()) === 1);
    expect(await page.locator('.rows .row a').first().innerText()).toBe('10.8.8.8');
  });
});
