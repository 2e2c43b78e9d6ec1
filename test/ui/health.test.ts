import { describe, expect, it } from 'vitest';
import { until } from '../base/support/until.ts';
import { clusterDocument, MeshModel } from './support/mesh-model.ts';
import { usePages, violations } from './support/open-page.ts';

const { open } = usePages();

const AGO = new Date(Date.now() - 130_000).toISOString();

describe('the banner of the overview', () => {
  it('says that there are no problems only if the agent is ready and all sources are followed', async () => {
    const { page, blocking } = await open();
    const health = page.getByRole('region', { name: 'Health' });
    await health.getByText('No problems').waitFor();
    blocking.push('own kvstore: waits for its first list');
    await health.getByText('Not ready: 1 problem').waitFor();
    expect(await health.innerText()).toContain('own kvstore: waits for its first list');
    expect(await health.innerText()).not.toContain('No problems');
  });

  it('is announced on every other view, with the number of problems', async () => {
    const { page, blocking, show } = await open('#/services');
    const tab = page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: /^Overview/ });
    expect(await tab.innerText()).toBe('Overview');
    blocking.push('own kvstore: waits for its first list');
    await tab.getByText('1 problem').waitFor();
    expect(await violations(page)).toEqual([]);
    await show('');
    await page.getByRole('region', { name: 'Health' }).getByText('Not ready: 1 problem').waitFor();
    expect(await tab.innerText()).toBe('Overview');
  });

  it('names an unreachable cluster, a waiting step and restored data with its age; nothing is marked as good there', async () => {
    const model = new MeshModel().fill();
    model.clusters = [
      clusterDocument('own', { own: true }),
      clusterDocument('baltic', {
        ...{ ready: false, connected: false, state: 'connecting', knownAt: AGO, connectedSince: AGO },
        ...{ failures: 3, lastFailure: 'connect ECONNREFUSED 127.0.0.1:2379' },
      }),
    ];
    model.changes = {
      steps: [
        { name: 'initial sync', state: 'overdue', waitsFor: ['cluster baltic: nodes'], ms: 90_000 },
        { name: 'API', state: 'done', ms: 1, waitsFor: [] },
      ],
      checkpoint: {
        folder: '/state',
        restored: [{ cluster: 'baltic', knownAt: AGO, ageSeconds: 130 }],
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
        'configuration baltic.yaml: endpoints is empty Correct the file, then run dpcache clustermesh troubleshoot.',
        'cluster baltic Kvstore unreachable for 2 min. connect ECONNREFUSED 127.0.0.1:2379. The state of 2 min ago is served. Run dpcache clustermesh troubleshoot baltic.',
        'cluster baltic Restored state that no source has confirmed, 2 min old.',
      ]),
    );
    expect(await health.locator('.good').count()).toBe(0);
    expect(await page.locator('.mesh .link.good').count()).toBe(0);
    expect(await violations(page)).toEqual([]);
  });

  it('shows that a connection without heartbeats is stale', async () => {
    const { page } = await open();
    await page.clock.install();
    await page.reload();
    await page.waitForSelector('output.live');
    await page.clock.runFor(21_000);
    await page.waitForSelector('output.stale');
    expect(await page.locator('output.stale').innerText()).toMatch(/^stale since \d\d:\d\d:\d\d$/);
    await until('the banner names it', async () =>
      (await page.getByRole('region', { name: 'Health' }).innerText()).includes('no heartbeat'),
    );
  });
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
    expect(await page.locator('main').innerText()).toContain('connected since');
  });

  it('shows the lag of each link, its revision, and within which time 99 of 100 changes arrive', async () => {
    const model = new MeshModel().fill();
    const knownAt = new Date(Date.now() - 130_000).toISOString();
    model.clusters = [
      clusterDocument('own', { own: true }),
      clusterDocument('baltic', { revision: 88_124, queuedBytes: 0, p99Ms: 10 }),
      clusterDocument('caspian', { revision: 7, queuedBytes: 1_200_000, p99Ms: null }),
      clusterDocument('doggerland', { ready: false, connected: false, knownAt }),
    ];
    const { page } = await open('', { model });
    const box = (name: string): Promise<string | null> =>
      page.locator('.mesh a', { hasText: name }).textContent();
    await page.waitForSelector('.mesh a');
    expect(await box('baltic')).toMatch(/ready.*no lag.*revision 88,124.*p99 ≤ 10 ms/);
    expect(await box('caspian')).toMatch(/1\.2 MB waiting.*revision 7.*p99 > 30 s/);
    expect(await box('doggerland')).toMatch(/unreachable.*lag 2 min/);
  });

  it('draws twelve of 255 clusters, those with problems first, and leads to the others', async () => {
    const model = new MeshModel();
    model.clusters = Array.from({ length: 255 }, (_, id) =>
      clusterDocument(`c-${id}`, {
        own: id === 0,
        ready: id !== 200,
        connected: id !== 200,
        state: id === 200 ? 'connecting' : 'ready',
      }),
    );
    const { page } = await open('', { model });
    await page.waitForSelector('.mesh .node');
    expect(await page.locator('.mesh .node').count()).toBe(13);
    expect(await page.locator('.mesh').textContent()).toContain('c-200');
    await page.getByText('242 more clusters').waitFor();
  });

  it('marks a global service that only one cluster serves', async () => {
    const { page } = await open();
    const row = page.getByRole('row', { name: /shop\/checkout/ });
    await row.getByText('only own').waitFor();
  });
});
