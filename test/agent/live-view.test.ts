import { describe, expect, it, type MockInstance, vi } from 'vitest';
import { LiveView, serviceChangeText } from '../../src/agent/live-view.ts';
import type { Unsubscribe } from '../../src/base/subscription.ts';
import { stateDocument } from '../../src/client/state-document.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { IPCacheChange, IPCacheListener } from '../../src/ipcache/types.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { Terminal } from '../../src/process/terminal.ts';
import { play } from '../../src/recording/play.ts';
import { readPlayScript } from '../../src/recording/play-script.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import type { ServiceEvent } from '../../src/servicecache/events.ts';
import { createService } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { example } from '../cli/support/run.ts';
import { startAgent } from './support/agent-under-test.ts';
import { FakeClock, settle } from './support/fake-clock.ts';

interface View {
  readonly ipcache: CountingCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  readonly clock: FakeClock;
  readonly view: LiveView;
  /** Bytes that the reader has not taken. */
  readonly reader: { behind: number };
  readonly printed: () => string;
}

/** Counts the changes that its listeners receive. */
class CountingCache extends IPCache {
  delivered = 0;
  override subscribe(listener: IPCacheListener, options?: { readonly replay?: boolean }): Unsubscribe {
    const onChanges = (changes: readonly IPCacheChange[]): unknown => {
      this.delivered += changes.length;
      return listener.onChanges(changes);
    };
    return super.subscribe({ ...listener, onChanges: (changes) => void onChanges(changes) }, options);
  }
}

function viewOf(isTTY: boolean, all?: boolean): View {
  const clock = new FakeClock();
  const ipcache = new CountingCache();
  const services = new ServiceCache({ clusterName: 'own' });
  const nodes = new NodeManager({ ipcache, clock, clusterName: 'own', nodeName: 'here' });
  const written: string[] = [];
  const reader = { behind: 0 };
  const output = {
    isTTY,
    get writableLength(): number {
      return reader.behind;
    },
    write: (text: string): number => written.push(text),
  };
  const knowledge = {
    ipcache,
    services,
    nodes,
    restoredOf: () => undefined,
    labelsOf: (): undefined => undefined,
  };
  const view = new LiveView(knowledge, new Terminal(output, {}), clock, all);
  return { ipcache, services, nodes, clock, view, reader, printed: () => written.join('') };
}

/** Returns a node of a remote cluster with one address. */
function node(name: string, ip: string): Parameters<NodeManager['nodeUpdated']>[0] {
  return { cluster: 'far', name, source: 'clustermesh', addresses: [{ type: 'InternalIP', ip }] };
}

const CLAIM = { identity: 300, source: 'kvstore' } as const;

describe('the live view', () => {
  it('shows every change, but not the state at the start', async () => {
    const { ipcache, clock, view, printed } = viewOf(false);
    ipcache.upsert('10.0.0.1', CLAIM);
    const unsubscribe = view.follow();
    ipcache.upsert('10.0.0.2', {
      ...CLAIM,
      hostIP: '192.168.0.1',
      k8s: { namespace: 'shop', podName: 'web-1' },
    });
    ipcache.upsert('10.0.0.1', { ...CLAIM, identity: 301 });
    ipcache.delete('10.0.0.2', { source: 'kvstore' });
    expect(printed()).toBe('');
    await clock.advance(100);
    expect(printed()).toBe(
      [
        '12:00:00 + ip  10.0.0.2/32  pod shop/web-1, identity 300, on 192.168.0.1',
        '12:00:00 ~ ip  10.0.0.1/32  identity 300 → 301',
        '12:00:00 - ip  10.0.0.2/32  pod shop/web-1, identity 300, on 192.168.0.1',
        '         1 prefix, 0 nodes, 0 services with 0 backends',
        '',
      ].join('\n'),
    );
    unsubscribe();
    expect(clock.pending).toBe(0);
  });

  it('does not read the entries at its start (regression: a million took 0.1 s in one turn)', async () => {
    const { ipcache, clock, view, printed } = viewOf(false);
    for (let i = 0; i < 3000; i++) ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, CLAIM);
    using _following = view.follow();
    expect(ipcache.delivered).toBe(0);
    ipcache.upsert('10.1.0.0', CLAIM);
    await clock.advance(100);
    expect(printed()).toContain('+ ip  10.1.0.0/32  identity 300\n');
  });

  it('marks entries that only a checkpoint contains', async () => {
    const { ipcache, clock, view, printed } = viewOf(false);
    using _following = view.follow();
    ipcache.upsert('10.0.0.1', { identity: 300, source: 'restored', owner: 'own' });
    await clock.advance(100);
    expect(printed()).toContain('+ ip  10.0.0.1/32  identity 300, restored\n');
    ipcache.upsert('10.0.0.2', CLAIM);
    await clock.advance(100);
    expect(printed()).toContain('+ ip  10.0.0.2/32  identity 300\n');
  });

  it('I11 bounded: shows the first changes of a burst and its size', async () => {
    const { ipcache, clock, view, printed } = viewOf(false);
    using _following = view.follow();
    for (let i = 0; i < 1000; i++) ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, CLAIM);
    await clock.advance(100);
    const lines = printed().trimEnd().split('\n');
    expect(lines).toHaveLength(10);
    expect(lines[8]).toBe('         … and 992 more prefixes: in total 1000 added, 0 changed, 0 removed');
  });

  it('describes only the changes that it shows (regression: counted the backends for each change of a burst)', async () => {
    const { services, clock, view, printed } = viewOf(false);
    const reads: MockInstance[] = [];
    services.subscribe({
      onEvents: ([event]) => {
        if (event !== undefined) reads.push(vi.spyOn(event.endpoints.backends, 'values'));
      },
    });
    const id = { namespace: 'shop', name: 'web' };
    services.updateService(createService({ id, addressing: 'headless' }));
    const backends = Array.from({ length: 100 }, (_, index) =>
      createBackend({ address: `10.0.0.${index}`, ports: [] }),
    );
    view.follow();
    for (let count = 1; count <= 100; count++)
      services.updateEndpoints(createEndpointSlice({ service: id, backends: backends.slice(0, count) }));
    await clock.advance(100);
    expect(printed()).toContain('… and 92 more services: in total 1 added, 99 changed, 0 removed');
    expect(reads).toHaveLength(100);
    expect(reads.filter(({ mock }) => mock.calls.length > 0)).toHaveLength(8);
  });

  it('shows every change of a burst if requested', async () => {
    const { ipcache, clock, view, printed } = viewOf(false, true);
    using _following = view.follow();
    for (let i = 0; i < 1000; i++) ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, CLAIM);
    await clock.advance(100);
    expect(printed().trimEnd().split('\n')).toHaveLength(1001);
  });

  it('I11 bounded: writes nothing to a blocked reader, and reports the number of skipped changes later', async () => {
    const { ipcache, clock, view, printed, reader } = viewOf(false);
    const unsubscribe = view.follow();
    reader.behind = 1 << 20;
    for (let second = 0; second < 100; second++) {
      for (let i = 0; i < 10; i++) ipcache.upsert(`10.0.0.${i}`, { ...CLAIM, identity: 300 + second });
      await clock.advance(1000);
    }
    expect(printed()).toBe('');
    reader.behind = 0;
    await clock.advance(100);
    expect(printed()).toContain('… and 992 more prefixes: in total 10 added, 990 changed, 0 removed');
    unsubscribe();
    expect(clock.pending).toBe(0);
  });

  it('shows the pending changes at the end, even if the reader is far behind', () => {
    const { ipcache, clock, view, printed, reader } = viewOf(false);
    const unsubscribe = view.follow();
    reader.behind = 1 << 20;
    ipcache.upsert('10.0.0.1', CLAIM);
    unsubscribe();
    expect(printed()).toContain('10.0.0.1/32');
    expect(clock.pending).toBe(0);
  });

  it('shows pending changes before a headline, and at the end', () => {
    const { ipcache, view, printed } = viewOf(false);
    const unsubscribe = view.follow();
    ipcache.upsert('10.0.0.1', CLAIM);
    view.print('hello');
    ipcache.upsert('10.0.0.2', CLAIM);
    unsubscribe();
    const lines = printed().trimEnd().split('\n');
    expect(lines.map((line) => line.trim().split(/ {2,}/)[1] ?? line.slice(9))).toEqual([
      '10.0.0.1/32',
      ...[expect.anything(), '', 'hello'],
      '10.0.0.2/32',
      expect.anything(),
    ]);
  });

  it('shows nothing at its end without changes, and nothing after its end', async () => {
    const { ipcache, nodes, clock, view, printed } = viewOf(false);
    const unsubscribe = view.follow();
    unsubscribe();
    ipcache.upsert('10.0.0.1', CLAIM);
    nodes.nodeUpdated(node('n1', '192.168.0.1'));
    await clock.advance(1000);
    expect(printed()).toBe('');
  });

  it('shows a node that is added, changed and deleted, and counts the nodes of a burst', async () => {
    const { nodes, clock, view, printed } = viewOf(false);
    using _following = view.follow();
    nodes.nodeUpdated(node('n1', '192.168.0.1'));
    nodes.nodeUpdated(node('n1', '192.168.0.2'));
    nodes.nodeDeleted({ cluster: 'far', name: 'n1', source: 'clustermesh' });
    await clock.advance(100);
    const lines = printed().split('\n');
    expect(lines.map((line) => line.slice(9, 25)).slice(0, 3)).toEqual([
      ...['+ node  far/n1  ', '~ node  far/n1  ', '- node  far/n1  '],
    ]);
    expect(lines.slice(0, 3).map((line) => line.match(/192\.168\.0\.\d/g)?.join())).toEqual([
      ...['192.168.0.1', '192.168.0.1,192.168.0.2', '192.168.0.2'],
    ]);
    for (let i = 0; i < 9; i++) nodes.nodeUpdated(node(`m${i}`, `192.168.1.${i}`));
    await clock.advance(100);
    expect(printed()).toContain('… and 1 more node: in total 9 added, 0 changed, 0 removed');
  });

  it('uses colours on a terminal', () => {
    const { ipcache, view, printed } = viewOf(true);
    const unsubscribe = view.follow();
    ipcache.upsert('10.0.0.1', CLAIM);
    ipcache.upsert('10.0.0.1', { ...CLAIM, identity: 301 });
    ipcache.delete('10.0.0.1', { source: 'kvstore' });
    unsubscribe();
    expect(printed()).toContain('\u001B[32m+ ip  10.0.0.1/32  identity 300\u001B[0m');
    expect(printed()).toContain('\u001B[33m~ ip  10.0.0.1/32');
    expect(printed()).toContain('\u001B[31m- ip  10.0.0.1/32');
  });

  it('escapes names, so that they cannot control the terminal', () => {
    const { ipcache, view, printed } = viewOf(true);
    const unsubscribe = view.follow();
    ipcache.upsert('10.0.0.1', { ...CLAIM, k8s: { namespace: 'a\u001B[2J', podName: '\r' } });
    unsubscribe();
    expect(printed()).toContain('pod a\\u001b[2J/\\u000d,');
  });
});

describe('the example script', () => {
  it('plays to its end without a failure, and changes only what it lists (I9, I10)', async () => {
    const clock = new FakeClock();
    const options = {
      clusterName: 'atlantic',
      load: [example('mesh.jsonl')],
      manifests: [example('services.yaml')],
    };
    const { agent, logged } = await startAgent([], '', options);
    const before = stateDocument(agent.contents());
    const said: string[] = [];
    const failures: string[] = [];
    const steps = await readPlayScript(example('changes.yaml'));
    const listener = {
      onStep: ({ text }: { text: string }): void => void said.push(text),
      onFailure: (_: unknown, why: string): void => void failures.push(why),
    };
    const playing = play(steps, agent, listener, clock, new AbortController().signal);
    for (const { after } of steps) await clock.advance(after * 1000);
    await playing;
    await settle();
    expect(said).toHaveLength(steps.length);
    expect(failures).toEqual([]);
    expect(logged).toEqual([expect.stringMatching(/rejected .*10.20.3.41: IP "10.20.3.410"/)]);
    const after = stateDocument(agent.contents());
    expect(after.ipcache['10.10.0.12/32']).toEqual({
      ...before.ipcache['10.10.0.12/32'],
      podName: 'checkout-9f3c1',
    });
    expect(Object.keys(after.ipcache)).toHaveLength(Object.keys(before.ipcache).length + 1);
    const caspian = (state: typeof after): unknown[] => [
      Object.entries(state.ipcache).filter(([prefix]) =>
        /^(10\.30|fd0\d:3|192\.168\.30|203\.0\.115|172\.22)/.test(prefix),
      ),
      state.nodes.filter(({ cluster }) => cluster === 'caspian'),
      state.services['bank/ledger'],
    ];
    expect(caspian(after)).toEqual(caspian(before));
  });
});

describe('a change of a service', () => {
  const backends = (...addresses: readonly string[]) => ({
    backends: new Map(addresses.map((address) => [address, { address, cluster: '' }])),
  });
  const text = (old: object | undefined, now: object, action = 'update'): object =>
    serviceChangeText({
      action,
      id: { namespace: 'shop', name: 'cart' },
      endpoints: now,
      oldEndpoints: old,
    } as unknown as ServiceEvent);

  it('names up to three added and removed backends, and counts more', () => {
    expect(text(backends('a', 'b'), backends('b', 'c', 'd', 'e'))).toEqual({
      sign: '~',
      kind: 'service',
      subject: 'shop/cart',
      detail: '+c +d +e -a, now 4 backends (4 local)',
    });
    expect(text(backends(), backends('a', 'b', 'c', 'd'))).toMatchObject({
      detail: '+4, now 4 backends (4 local)',
    });
    expect(text(backends('a', 'b', 'c', 'd'), backends())).toMatchObject({ detail: '-4, now 0 backends' });
  });

  it('without another backend is one of its fields', () => {
    const same = backends('a');
    const detail = 'ports, addresses or annotations, now 1 backend (1 local)';
    expect(text(same, same)).toMatchObject({ sign: '~', detail });
    expect(text(same, backends('a'))).toMatchObject({ sign: '~', detail });
  });

  it('is an addition or a deletion with the number of backends', () => {
    expect(text(undefined, backends('a'))).toMatchObject({ sign: '+', detail: '1 backend (1 local)' });
    expect(text(backends('a'), backends('a'), 'delete')).toMatchObject({ sign: '-' });
  });
});
