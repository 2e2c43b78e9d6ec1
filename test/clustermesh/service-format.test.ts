import { describe, expect, it } from 'vitest';
import { serviceFormat } from '../../src/clustermesh/cluster-stores.ts';
import type { ServiceFormat } from '../../src/clustermesh/service-format.ts';
import { clusterConfigKey, endpointSliceKey, serviceKey } from '../../src/kvstore/codec/keys.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { completeCluster, write, writeService, writeSlice } from './support/mesh-world.ts';
import { agent, agentForEachTest, backendsOf, clock, restart, statusOf } from './support/set-up.ts';

agentForEachTest();

const BOTH = 'services-and-endpointslices';
const ONLY = 'endpointslices-only';

function configure(server: MemoryServer, endpointSlicesExportMode?: string): void {
  const capabilities = { syncedCanaries: true, endpointSlicesExportMode };
  write(server, clusterConfigKey('a'), { id: 1, capabilities });
}

const slice = (service: string, name: string): Parameters<typeof writeSlice>[1] => ({
  cluster: 'a',
  clusterID: 1,
  service,
  name,
});

/** A cluster of this mode with the service `s0` in both formats, and a canary for each resource that it exports. */
function cluster(mode?: string): MemoryServer {
  const server = new MemoryServer({ clock, clusterID: 'a' });
  configure(server, mode);
  completeCluster(server, 'a', ['nodes', 'identities', 'ip']);
  if (mode !== ONLY) {
    writeService(server, 'a', 's0', '10.0.0.1');
    completeCluster(server, 'a', ['services']);
  }
  if (mode !== undefined) {
    writeSlice(server, slice('s0', 's0-x'), ['10.0.0.2']);
    completeCluster(server, 'a', ['endpointslices']);
  }
  return server;
}

async function follow(server: MemoryServer): Promise<void> {
  await agent.add('a', server);
  await settle(12);
}

describe('the format in which the services of a cluster are read', () => {
  it.each<[ServiceFormat, string | undefined, string | undefined]>([
    ['auto', undefined, 'services'],
    ['auto', BOTH, 'services'],
    ['auto', ONLY, 'endpointslices'],
    ['legacy', undefined, 'services'],
    ['legacy', BOTH, 'services'],
    ['legacy', ONLY, undefined],
    ['slices', undefined, 'services'],
    ['slices', BOTH, 'endpointslices'],
    ['slices', ONLY, 'endpointslices'],
  ])('with the setting %s and the mode %s is %s', async (serviceV2, mode, format) => {
    await restart(() => ({ serviceV2 }));
    await follow(cluster(mode));
    expect(serviceFormat(serviceV2, mode as typeof BOTH)).toBe(format);
    expect(backendsOf('s0')).toEqual(
      format === undefined ? [] : [format === 'services' ? '10.0.0.1' : '10.0.0.2'],
    );
    // Skipped resources have no canary in some cases, and are not waited for.
    expect(statusOf().state).toBe('ready');
    expect(agent.mesh.progressOf('a')?.synced).toBe(true);
    await agent.mesh.synced();
    const read = ['services', 'endpointslices'].filter((resource) => resource in statusOf().resources);
    expect(read).toEqual(format === undefined ? [] : [format]);
  });

  it('is reported if the cluster exports only what the setting does not read', async () => {
    await restart(() => ({
      serviceV2: 'legacy',
      onReject: (rejection) => void agent.rejections.push(rejection),
    }));
    await follow(cluster(ONLY));
    expect(agent.rejections).toMatchObject([
      { reason: 'unread-format', field: 'endpointSlicesExportMode', value: `"${ONLY}"` },
    ]);
  });

  it('is services/v1 if the mode is an unknown word, which is reported', async () => {
    const server = cluster();
    configure(server, 'endpointslices-v2');
    await follow(server);
    expect(backendsOf('s0')).toEqual(['10.0.0.1']);
    expect(statusOf().state).toBe('ready');
    expect(agent.rejections).toMatchObject([
      { reason: 'unknown-value', field: 'capabilities.endpointSlicesExportMode', at: clusterConfigKey('a') },
    ]);
  });

  it('rejects a slice without the id of the cluster, and one of another cluster, and counts them', async () => {
    const server = cluster(ONLY);
    writeSlice(server, { ...slice('s0', 's0-y'), clusterID: 0 }, ['10.0.0.3']);
    writeSlice(server, { ...slice('s0', 's0-z'), clusterID: 2 }, ['10.0.0.4']);
    write(server, endpointSliceKey({ cluster: 'a', namespace: 'ns', name: 'text' }), '{}');
    await follow(server);
    expect(backendsOf('s0')).toEqual(['10.0.0.2']);
    expect(statusOf().rejections.byReason).toEqual({ 'cluster-id-mismatch': 2, 'invalid-zstd': 1 });
  });
});

describe('a cluster that changes its mode', () => {
  /** The addresses of `s0` after each event. */
  function watched(): string[][] {
    const seen: string[][] = [];
    agent.services.subscribe({ onEvents: () => void seen.push([...backendsOf('s0')].sort()) });
    seen.length = 0;
    return seen;
  }

  it('loses no backend that both formats have, and the old state goes when the new one is complete', async () => {
    const server = cluster(BOTH);
    writeService(server, 'a', 's1', '10.0.1.1');
    writeSlice(server, slice('s0', 's0-w'), ['10.0.0.1']);
    writeSlice(server, slice('s1', 's1-w'), ['10.0.1.1']);
    await follow(server);
    const seen = watched();
    configure(server, ONLY);
    write(server, serviceKey({ cluster: 'a', namespace: 'ns', name: 's0' }), undefined);
    write(server, serviceKey({ cluster: 'a', namespace: 'ns', name: 's1' }), undefined);
    await settle(12);
    expect(backendsOf('s0')).toEqual(['10.0.0.1', '10.0.0.2']);
    expect(backendsOf('s1')).toEqual(['10.0.1.1']);
    for (const addresses of seen) expect(addresses).toContain('10.0.0.1');
    expect(agent.services.explain({ namespace: 'ns', name: 's0' })?.origins).toEqual([
      ...['s0-w', 's0-x'].map((name) => ({ cluster: 'a', slice: name, backends: 1 })),
    ]);

    configure(server, undefined);
    writeService(server, 'a', 's0', '10.0.0.1');
    await settle(12);
    expect([backendsOf('s0'), backendsOf('s1')]).toEqual([['10.0.0.1'], []]);
    for (const addresses of seen) expect(addresses).toContain('10.0.0.1');
    expect(agent.services.explain({ namespace: 'ns', name: 's0' })?.origins).toEqual([
      { cluster: 'a', slice: '', backends: 1 },
    ]);
    expect(statusOf().state).toBe('ready');
  });

  it('keeps the old offers while the new format has no canary', async () => {
    const server = cluster();
    await follow(server);
    writeSlice(server, slice('s0', 's0-x'), ['10.0.0.2']);
    configure(server, ONLY);
    write(server, serviceKey({ cluster: 'a', namespace: 'ns', name: 's0' }), undefined);
    await settle(12);
    expect(backendsOf('s0')).toEqual(['10.0.0.1']);
    expect(statusOf().state).toBe('watching');
    expect(statusOf().resources.services?.keys).toBe(1);
    completeCluster(server, 'a', ['endpointslices']);
    await settle(12);
    expect(backendsOf('s0')).toEqual(['10.0.0.2']);
    expect(statusOf().state).toBe('ready');
    expect(statusOf().resources.services).toBeUndefined();
  });

  it('keeps the old offers if deletes of the old keys arrive before the new configuration', async () => {
    const server = cluster();
    await follow(server);
    // The watch of the configuration is blocked; that of the services is not.
    const link = agent.links.get('a')?.link;
    link?.stallWatch('cilium/cluster-config/');
    configure(server, ONLY);
    write(server, serviceKey({ cluster: 'a', namespace: 'ns', name: 's0' }), undefined);
    await settle(12);
    expect(backendsOf('s0')).toEqual(['10.0.0.1']);
    link?.unstallWatch('cilium/cluster-config/');
    writeSlice(server, slice('s0', 's0-x'), ['10.0.0.1']);
    completeCluster(server, 'a', ['endpointslices']);
    await settle(12);
    expect(backendsOf('s0')).toEqual(['10.0.0.1']);
    expect(statusOf().state).toBe('ready');
  });

  it('expires and returns in its format', async () => {
    await restart(() => ({ serviceTTLMs: 60_000 }));
    const server = cluster(ONLY);
    await follow(server);
    agent.links.get('a')?.link.down();
    await advance(clock, 120_000);
    expect(backendsOf('s0')).toEqual([]);
    expect(statusOf().servicesExpired).toBe(true);
    agent.links.get('a')?.link.up();
    await advance(clock, 60_000);
    expect(backendsOf('s0')).toEqual(['10.0.0.2']);
    await agent.mesh.remove('a');
    expect(agent.services.status().remoteServices).toBe(0);
  });
});
