import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { until } from '../../base/support/until.ts';
import { clusterDocument, MeshModel } from '../support/mesh-model.ts';
import { usePages, violations } from '../support/open-page.ts';

const { open } = usePages();

/** A time that is shown as 2 h for the next half hour. */
const AGO = new Date(Date.now() - 9_000_000).toISOString();

describe('the banner of the overview', () => {
  it('says that there are no problems only if the agent is ready and all sources are followed', async () => {
    const { page, blocking } = await open();
    const health = page.getByRole('region', { name: 'Health' });
    await health.getByText('No problems').waitFor();
    blocking.push('local kvstore: waits for its first list');
    await health.getByText('Not ready: 1 problem').waitFor();
    expect(await health.innerText()).toContain('local kvstore: waits for its first list');
    expect(await health.innerText()).not.toContain('No problems');
  });

  it('is announced on every other view, with the number of problems', async () => {
    const { page, blocking, show } = await open('#/services');
    const tab = page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: /^Overview/ });
    expect(await tab.innerText()).toBe('Overview');
    blocking.push('local kvstore: waits for its first list');
    await tab.getByText('1 problem').waitFor();
    expect(await violations(page)).toEqual([]);
    await show('');
    await page.getByRole('region', { name: 'Health' }).getByText('Not ready: 1 problem').waitFor();
    expect(await tab.innerText()).toBe('Overview');
  });

  it('names an unreachable cluster, a waiting step and restored data with its age; nothing is marked as good there', async () => {
    const model = new MeshModel().fill();
    model.clusters = [
      clusterDocument('own', { local: true }),
      clusterDocument('baltic', {
        ready: false,
        connected: false,
        state: 'connecting',
        knownAt: AGO,
        connectionChangedAt: AGO,
        failures: 3,
        lastFailure: 'connect ECONNREFUSED 127.0.0.1:2379',
      }),
    ];
    model.changes = {
      steps: [
        { name: 'initial sync', state: 'overdue', waitsFor: ['cluster baltic: nodes'], ms: 90_000 },
        { name: 'API', state: 'done', ms: 1, waitsFor: [] },
      ],
      checkpoint: {
        folder: '/state',
        restored: [{ cluster: 'baltic', knownAt: AGO, ageSeconds: 9_000 }],
        written: 1,
      },
      configProblems: ['baltic.yaml: endpoints is empty'],
    };
    const { page } = await open('', { model });
    const health = page.getByRole('region', { name: 'Health' });
    await health.getByText('4 problems').waitFor();
    const lines = (await health.getByRole('listitem').allInnerTexts()).map((line) =>
      line.replaceAll(/\s+/g, ' '),
    );
    expect(lines).toEqual(
      expect.arrayContaining([
        'initial sync overdue: cluster baltic: nodes',
        'configuration baltic.yaml: endpoints is empty Correct it. Run dpcache clustermesh troubleshoot.',
        'cluster baltic Kvstore unreachable for 2 h: connect ECONNREFUSED 127.0.0.1:2379. The state of 2 h ago is served. Run dpcache clustermesh troubleshoot baltic.',
        'cluster baltic Restored state of 2 h ago that no source has confirmed.',
      ]),
    );
    expect(await health.locator('.good').count()).toBe(0);
    expect(await page.locator('.mesh .link.good').count()).toBe(0);
    expect(await violations(page)).toEqual([]);
  });

  it('shows that a connection without heartbeats is stale', async () => {
    // The clock of the agent stands still, so that it sends no heartbeat.
    const { page } = await open('', { clock: new ManualClock(), fakeClock: true });
    await page.clock.runFor(21_000);
    await page.waitForSelector('output.stale');
    expect(await page.locator('output.stale').innerText()).toMatch(/^stale since \d\d:\d\d:\d\d$/);
    await until('the banner names it', async () =>
      (await page.getByRole('region', { name: 'Health' }).innerText()).includes('no heartbeat'),
    );
  });
});

it('lists the first problems, and all on request (regression: some were listed nowhere)', async () => {
  const model = new MeshModel();
  model.clusters = Array.from({ length: 20 }, (_, at) =>
    clusterDocument(`c-${at}`, {
      local: at === 0,
      ready: at === 0,
      connected: at === 0,
      state: 'connecting',
    }),
  );
  const { page } = await open('', { model });
  const health = page.getByRole('region', { name: 'Health' });
  const problems = health.getByText(/^cluster c-/);
  await health.getByRole('button', { name: 'Show 7 more' }).click();
  expect(await problems.count()).toBe(19);
  await health.getByRole('button', { name: 'Show the first 12' }).click();
  expect(await problems.count()).toBe(12);
});

it('marks nothing as good while the agent is unreachable, and not the agent as unready', async () => {
  const { page, server } = await open();
  const health = page.getByRole('region', { name: 'Health' });
  await health.getByText('No problems').waitFor();
  const isOld = (): Promise<unknown> =>
    page.evaluate(`(() => {
      const style = getComputedStyle(document.querySelector('main'));
      return style.getPropertyValue('--good') === style.getPropertyValue('--faint');
    })()`);
  expect(await isOld()).toBe(false);
  await server.stop();
  await health.getByText(/^1 problem$/).waitFor();
  expect(await isOld()).toBe(true);
});

describe('the list of clusters', () => {
  it('begins with the local one and those with problems, and shows the last failure', async () => {
    const model = new MeshModel();
    model.clusters = [
      clusterDocument('c-2'),
      clusterDocument('c-10', { revision: 88_124, p99Ms: 10 }),
      clusterDocument('c-11', { ready: false, connected: false, lastFailure: 'connection refused' }),
      clusterDocument('own', { local: true }),
    ];
    const { page } = await open('#/clusters', { model });
    const rows = page.locator('tbody tr');
    await rows.nth(3).waitFor();
    const text = (await rows.allInnerTexts()).map((row) => row.replaceAll(/\s+/g, ' '));
    expect(text.map((row) => row.split(' ')[0])).toEqual(['own', 'c-11', 'c-2', 'c-10']);
    expect(text[1]).toContain('connection refused');
    expect(text[3]).toMatch(/88,124 no lag ≤ 10 ms/);
  });
});

it('shows ages by the clock of the agent, whatever that of the browser shows', async () => {
  const model = new MeshModel().fill();
  model.clusters = [
    clusterDocument('own', { local: true }),
    clusterDocument('baltic', { ready: false, connected: false, knownAt: AGO }),
  ];
  const { page } = await open('', { model, fakeClock: true });
  for (const hours of [-3, 3]) {
    await page.clock.install({ time: Date.now() + hours * 3_600_000 });
    await page.reload();
    await page
      .getByText(hours < 0 ? /ahead of that of this browser/ : /behind that of this browser/)
      .waitFor();
    await page
      .locator('.mesh')
      .getByText(/^2 h behind$/)
      .waitFor();
    expect(await page.getByRole('region', { name: 'Health' }).innerText()).toMatch(
      /The state of 2 h ago is served/,
    );
    await page.getByRole('button', { name: 'Show the state of an earlier time' }).click();
    const at = new URLSearchParams(new URL(page.url()).hash.split('?')[1]).get('at');
    expect(Math.abs(Date.parse(at ?? '') - Date.now())).toBeLessThan(120_000);
    await page.getByRole('button', { name: /^Back to now/ }).click();
  }
});

it('leads from the number of rejected items to their list', async () => {
  const { page } = await open();
  await page.getByRole('navigation', { name: 'Counts' }).getByRole('link', { name: 'rejected' }).click();
  expect(await page.evaluate('document.activeElement.getAttribute("aria-label")')).toBe('Last rejected');
});

describe('the card of a cluster', () => {
  it('shows each store with its state, and the configuration, and follows them', async () => {
    const model = new MeshModel().fill();
    const { page } = await open('#/cluster/baltic', { model });
    const rows = page.getByRole('region', { name: 'Table of stores' }).getByRole('row');
    await rows.nth(2).waitFor();
    const text = async (place: number): Promise<string> =>
      (await rows.nth(place).innerText()).replaceAll(/\s+/g, ' ');
    expect(await text(1)).toBe('nodes watching 1 88,124 ≤ 25 ms 0 0 1 0 –');
    expect(await text(2)).toMatch(
      /^services waiting, not complete 0 – > 30 s 3 kB 1 2 1 etcdserver: request timed out, /,
    );
    expect(await page.getByRole('region', { name: 'Configuration' }).innerText()).toMatch(
      /maxConnectedClusters\s+255/,
    );
    expect(await violations(page)).toEqual([]);
    model.clusters = model.clusters.map((cluster) => ({ ...cluster, revision: 88_125 }));
    await page.getByText('88,125').waitFor();
    model.clusters = [];
    await page.getByText('The mesh has no cluster baltic.').waitFor();
  });
});

describe('the mesh map', () => {
  it('shows each cluster with its state, and leads to its card', async () => {
    const { page } = await open();
    const map = page.getByRole('group', { name: 'Map of the mesh' });
    await map.getByText('baltic').click();
    await page.waitForSelector('h1:has-text("baltic")');
    expect(page.url()).toContain('#/cluster/baltic');
    await page.locator('main').getByText('connected since').waitFor();
  });

  it('shows the lag of each link, its revision, and within which time 99 of 100 changes arrive', async () => {
    const model = new MeshModel().fill();
    model.clusters = [
      clusterDocument('own', { local: true }),
      clusterDocument('baltic', { revision: 88_124, queuedBytes: 0, p99Ms: 10 }),
      clusterDocument('caspian', { revision: 7, queuedBytes: 1_200_000, p99Ms: null }),
      clusterDocument('doggerland', { ready: false, connected: false, knownAt: AGO }),
    ];
    const { page } = await open('', { model });
    const box = (name: string): Promise<string | null> =>
      page.locator('.mesh a', { hasText: name }).textContent();
    await page.waitForSelector('.mesh a');
    expect(await box('baltic')).toMatch(/ready.*no lag.*revision 88,124.*p99 ≤ 10 ms/);
    expect(await box('caspian')).toMatch(/1\.2 MB waiting.*revision 7.*p99 > 30 s/);
    expect(await box('doggerland')).toMatch(/unreachable.*2 h behind/);
  });

  it('shows an unknown lag if the clock of the agent was set back (regression: 0 ms)', async () => {
    const model = new MeshModel().fill();
    const knownAt = new Date(Date.now() + 3_600_000).toISOString();
    model.clusters = [
      clusterDocument('own', { local: true }),
      clusterDocument('doggerland', { ready: false, connected: false, knownAt }),
    ];
    const { page } = await open('', { model });
    await page.locator('.mesh a', { hasText: 'an unknown time behind' }).waitFor();
  });

  it('shows expired services, and a heartbeat that has not changed', async () => {
    const model = new MeshModel().fill();
    model.clusters = [
      clusterDocument('own', { local: true, heartbeat: 'never' }),
      clusterDocument('baltic', { heartbeat: 'stale' }),
      clusterDocument('caspian', { ready: false, connected: false, knownAt: AGO, servicesExpired: true }),
    ];
    const { page, show } = await open('', { model });
    await page.waitForSelector('.mesh a');
    expect(await page.locator('.mesh a.bad').allTextContents()).toEqual([expect.stringContaining('caspian')]);
    expect(await page.locator('.mesh a.warn').allTextContents()).toEqual([
      expect.stringMatching(/^baltic.*stale heartbeat/), // regression: it was ready
    ]);
    await show('#/cluster/baltic');
    await page.locator('main').getByText('has not changed for 2 min').waitFor();
    await show('#/cluster/caspian');
    await page
      .locator('main')
      .getByText(/2 h old, without services$/)
      .waitFor();
  });

  it('keeps the text of a box in it (regression: large counts and long names left the box or overlapped)', async () => {
    const model = new MeshModel();
    model.clusters = ['production-of-frankfurt-am-main', 'staging-of-frankfurt-am-main'].map((name, at) =>
      clusterDocument(name, {
        local: at === 0,
        id: 255,
        revision: 88_124_000,
        p99Ms: 25_000,
        keys: { nodes: 5_000, services: 10_000, identities: 5_000, ip: 100_000 },
      }),
    );
    const { page } = await open('', { model });
    const boxes = await page.locator('.mesh .node').evaluateAll((nodes) =>
      nodes.map((node) => {
        const rightmost = node.querySelector('rect')?.getBoundingClientRect().right ?? 0;
        const texts = [...node.querySelectorAll('text')].map((text) => {
          const { left, right, bottom } = text.getBoundingClientRect();
          return { text: text.textContent, left, right, bottom };
        });
        const isFaulty = (a: (typeof texts)[number]): boolean =>
          a.right > rightmost ||
          texts.some((b) => b.left > a.left && b.left < a.right && Math.abs(b.bottom - a.bottom) < 6);
        return texts.filter((a) => a.text !== '' && isFaulty(a)).map(({ text }) => text);
      }),
    );
    expect(boxes).toEqual([[], []]);
  });

  it('shows names of 32 characters completely, and both ends of longer ones (regression: the first 19 only)', async () => {
    const model = new MeshModel();
    const names = ['production-in-frankfurt-am-main1', 'production-in-frankfurt-am-main2'];
    const long = 'a-name-that-no-cluster-of-cilium-may-have-because-it-is-too-long';
    model.clusters = [...names, long].map((name, at) => clusterDocument(name, { local: at === 0 }));
    const { page } = await open('', { model });
    await page.waitForSelector('.mesh .node');
    const shown = await page.locator('.mesh .name').allTextContents();
    expect(shown.sort()).toEqual(['a-name-that-no-…e-it-is-too-long', ...names].sort());
  });

  it('draws eight of 255 clusters, those with problems first, and the others as marks', async () => {
    const model = new MeshModel();
    model.clusters = Array.from({ length: 255 }, (_, id) =>
      clusterDocument(`c-${id}`, {
        local: id === 0,
        ready: id !== 200,
        connected: id !== 200,
        state: id === 200 ? 'connecting' : 'ready',
      }),
    );
    const { page } = await open('', { model, viewport: { width: 1400, height: 800 } });
    await page.waitForSelector('.mesh .node');
    expect(await page.locator('.mesh .node').count()).toBe(9);
    expect(await page.locator('.mesh').textContent()).toContain('c-200');
    await page.getByText('246 more clusters').waitFor();
    expect(await page.locator('.dots a').count()).toBe(246);
    expect(await violations(page)).toEqual([]);
    await page.getByTitle('c-254: ready').click();
    await page.waitForSelector('h1:has-text("c-254")');
  });

  it('counts the backends of clusters without a column (regression: a service had no backends there)', async () => {
    const model = new MeshModel();
    model.clusters = Array.from({ length: 20 }, (_, id) => clusterDocument(`c-${id}`, { local: id === 0 }));
    const names = Array.from({ length: 18 }, (_, at) => `s-${10 + at}`);
    for (const [at, name] of names.entries()) {
      const id = { namespace: 'shop', name };
      model.addService(id, `172.16.0.${at}`);
      for (const cluster of [at + 1, at + 2]) model.offer(`c-${cluster}`, id, `10.0.${cluster}.${at}`);
    }
    model.addService({ namespace: 'web', name: 'lost' }, '172.16.1.1');
    model.addService({ namespace: 'web', name: 'alone' }, '172.16.1.2');
    model.offer('c-19', { namespace: 'web', name: 'alone' }, '10.0.19.99');
    model.services.markSynced();
    const { page } = await open('', { model });
    const rows = page.getByRole('region', { name: 'Backends by service and cluster' }).getByRole('row');
    await rows.getByText('no backends').waitFor();
    await rows.getByText('only c-19').waitFor();
    const text = (await rows.allInnerTexts()).map((row) => row.replaceAll(/\s+/g, ' '));
    expect(text.filter((row) => row.includes('no backends'))).toEqual([text[1]]);
    expect(text[1]).toMatch(/^web\/lost/);
    expect(text[2]).toMatch(/^web\/alone only c-19 .*1/);
    expect(text).toHaveLength(13);
    for (const row of text.slice(3))
      expect(row.match(/ \d/g)?.reduce((sum, count) => sum + Number(count), 0)).toBe(2);
    await page.goto(`${new URL(page.url()).origin}/#/services?served=nowhere`);
    await page.getByText('1 service', { exact: true }).waitFor();
  });

  it('counts the backends of a cluster named constructor (regression: it showed the code of a function)', async () => {
    const model = new MeshModel().fill();
    model.clusters = [clusterDocument('own', { local: true }), clusterDocument('constructor')];
    model.offer('constructor', { namespace: 'shop', name: 'checkout' }, '10.0.9.9');
    model.addService({ namespace: 'shop', name: 'web' }, '172.16.0.12');
    const { page } = await open('', { model });
    const matrix = page.getByRole('region', { name: 'Backends by service and cluster' });
    await matrix.getByRole('columnheader', { name: 'constructor' }).waitFor();
    const rows = await matrix.getByRole('row').allInnerTexts();
    const countsOf = (name: string): readonly string[] =>
      rows
        .find((row) => row.startsWith(name))
        ?.split('\t')
        .slice(2) ?? [];
    expect([countsOf('shop/checkout'), countsOf('shop/web')]).toEqual([
      ['1', '1'],
      ['–', '–'],
    ]);
  });

  it('marks a global service that only one cluster serves', async () => {
    const { page } = await open();
    const row = page.getByRole('row', { name: /shop\/checkout/ });
    await row.getByText('only own').waitFor();
  });
});
