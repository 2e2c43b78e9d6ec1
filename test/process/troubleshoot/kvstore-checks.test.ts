import { expect, it, onTestFinished } from 'vitest';
import { type ClusterCapabilities, encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { clusterConfigKey } from '../../../src/kvstore/codec/keys.ts';
import { bytesField, message, numberField } from '../../../src/kvstore/codec/proto-writer.ts';
import { checkKvstore } from '../../../src/process/troubleshoot/kvstore-checks.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { FakeServer } from '../../kvstore/etcd/support/fake-server.ts';

interface Found {
  /** The prefixes of resources that are read: `state/nodes`. */
  readonly read: readonly string[];
  /** The resources with a canary; undefined if canaries are not checked. */
  readonly canaries: string | undefined;
}

/** Returns the checked resources of a cluster with these capabilities; undefined: without a configuration. */
async function checked(local: boolean, capabilities: ClusterCapabilities | undefined): Promise<Found> {
  const key = clusterConfigKey('baltic');
  const value = capabilities && encodeClusterConfig({ id: 7, capabilities });
  const config = value && message(bytesField(1, Buffer.from(key)), bytesField(5, value));
  // The first field of a request is the key, which is shorter than 128 bytes.
  const keyOf = (request: Buffer): string => request.toString('latin1', 2, 2 + (request[1] ?? 0));
  const server = new FakeServer({
    range: (request) => {
      if (keyOf(request) === key) return config === undefined ? message() : message(bytesField(2, config));
      return message(numberField(4, 1)); // one key
    },
  });
  onTestFinished(() => server.stop());
  const endpoint = await server.start();
  const { signal } = new AbortController();
  const cluster = { name: 'baltic', config: { endpoints: [endpoint] }, local };
  const checks = await checkKvstore(cluster, [endpoint], {
    clock: new ManualClock(),
    random: () => 0.5,
    signal,
  });
  return {
    read: checks.flatMap(({ step, subject }) => {
      const [, layout, resource] = /^cilium\/(state|cache)\/([^/]+)\//.exec(subject) ?? [];
      return step === 'read' && resource !== undefined ? `${layout}/${resource}` : [];
    }),
    canaries: checks.find(({ step }) => step === 'canaries')?.text,
  };
}

const MODES = [
  // mode, the formats of services that agents read
  [undefined, ['services']],
  ['services-and-endpointslices', ['services']],
  ['endpointslices-only', ['endpointslices']],
] as const;

const cases = [true, false].flatMap((local) =>
  [true, false].flatMap((cached) =>
    [true, false].flatMap((syncedCanaries) =>
      MODES.map(([mode, formats]) => ({ local, cached, syncedCanaries, mode, formats })),
    ),
  ),
);

it.each(cases)(
  'agents read slices only if a remote cluster exports no services: local $local, cached $cached, canaries $syncedCanaries, mode $mode',
  async (one) => {
    const { local, cached, syncedCanaries, mode, formats } = one;
    const capabilities: ClusterCapabilities = {
      cached,
      syncedCanaries,
      ...(mode && { endpointSlicesExportMode: mode }),
    };
    const resources = ['nodes', ...(local ? [] : formats), 'identities', 'ip'];
    const layout = cached ? 'cache' : 'state';
    expect(await checked(local, capabilities)).toEqual({
      read: resources.map((resource) => `${layout}/${resource}`),
      canaries: syncedCanaries && !local ? `complete: ${resources.join(', ')}` : undefined,
    });
  },
);

it.each([
  [true, ['nodes', 'identities', 'ip']],
  [false, ['nodes', 'services', 'identities', 'ip']],
] as const)(
  'a cluster without a configuration exports services and no slices: local %s',
  async (local, resources) => {
    expect(await checked(local, undefined)).toEqual({
      read: resources.map((resource) => `state/${resource}`),
      canaries: undefined,
    });
  },
);
