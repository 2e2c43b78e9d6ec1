import { expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES } from '../../src/k8s/memory/resource-types.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { operatorDuties } from '../../src/operator/duties.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { ApiUser } from '../k8s/support/api-user.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { DUTY_OPTIONS } from './support/run-duties.ts';

const GLOBAL = { annotations: { 'service.cilium.io/global': 'true' } };
const HUGE = 'x'.repeat(1_600_000);

/** One good object of each kind, and broken versions. */
const OBJECTS: Readonly<
  Record<string, Readonly<Record<string, readonly [content: object, metadata?: object]>>>
> = {
  ciliumnodes: {
    good: [{ spec: { addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }] } }],
    'no-key': [{ spec: { encryption: { key: 300 } } }],
    'no-spec': [{ spec: 'a text' }],
    huge: [{ spec: { bootid: HUGE } }],
  },
  ciliumidentities: {
    1001: [{ 'security-labels': { 'k8s:app': 'a' } }],
    1002: [{ 'security-labels': ['k8s:app'] }],
    1003: [{ 'security-labels': { 'k8s:app': 7 } }],
    'no-number': [{ 'security-labels': { 'k8s:app': 'b' } }],
  },
  ciliumendpoints: {
    good: [
      {
        status: {
          identity: { id: 1001 },
          networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '192.168.0.1' },
        },
      },
    ],
    'no-address': [
      {
        status: {
          identity: { id: 1001 },
          networking: { addressing: [{ ipv4: '10.0.0.256' }], node: '192.168.0.1' },
        },
      },
    ],
    'no-id': [
      {
        status: {
          identity: { id: -1 },
          networking: { addressing: [{ ipv4: '10.0.0.2' }], node: '192.168.0.1' },
        },
      },
    ],
    'no-networking': [{ status: { networking: 7 } }],
  },
  services: {
    good: [{ spec: { clusterIP: '172.16.0.1', ports: [{ name: 'http', port: 80 }] } }, GLOBAL],
    'no-ip': [{ spec: { clusterIP: '172.16.0.1.1', ports: [] } }, GLOBAL],
    'no-ports': [{ spec: { clusterIP: '172.16.0.2', ports: 'http' } }, GLOBAL],
  },
};

it('objects without a valid key are rejected by name and field, each counted, and all others are published', async () => {
  const clock = new ManualClock();
  const api = new MemoryApiServer({ clock });
  const transport = new MemoryApiTransport(api);
  const kubernetes = new KubernetesClient(transport, { clock, random: () => 0.5 });
  const backend = new MemoryBackend({ clock, random: () => 0.5 });
  const user = (plural: string): ApiUser => {
    const type = CLUSTER_TYPES.find((one) => one.plural === plural);
    if (type === undefined) throw new Error(plural);
    return new ApiUser(transport, type, type.namespaced ? 'shop' : undefined);
  };
  for (const [plural, objects] of Object.entries(OBJECTS))
    for (const [name, [content, metadata]] of Object.entries(objects)) {
      const path = user(plural).path();
      await user(plural).ask({ method: 'POST', path, body: { ...content, metadata: { name, ...metadata } } });
      if (!('status' in content)) continue;
      const contentType = 'application/merge-patch+json';
      await user(plural).ask({ method: 'PATCH', path: `${path}/${name}/status`, body: content, contentType });
    }
  for (const name of Object.keys(OBJECTS['services'] ?? {}))
    await user('endpointslices').create(
      `${name}-0`,
      { addressType: 'IPv4', endpoints: [{ addresses: ['10.0.1.1'] }], ports: [] },
      { labels: { 'kubernetes.io/service-name': name } },
    );

  const said: string[] = [];
  const { published } = operatorDuties({
    ...DUTY_OPTIONS,
    publish: { ...DUTY_OPTIONS.publish, heartbeat: true },
    intervals: {},
    kubernetes,
    backend,
    clock,
    random: () => 0.5,
    gate: new TurnGate({ clock, nextTurn: setImmediate }),
    onReject: ({ message }) => said.push(message),
  });
  const ended = new AbortController();
  const running = published.map((duty) => duty.run(ended.signal));
  await advance(clock, 5000);
  // Six duties share the gate, which runs eight slices in a turn.
  await settle(20);

  expect(published.map((duty) => duty.status().published?.synced)).toEqual([
    true,
    true,
    true,
    true,
    true,
    true,
  ]);
  const keys = (await backend.listPrefix('cilium/state/')).map(({ key }) => key.replace('cilium/state/', ''));
  const rejected = published.map((duty) => duty.status().published?.rejected ?? 0);
  expect(rejected.reduce((sum, count) => sum + count)).toBe(said.length);
  expect(keys).toMatchInlineSnapshot(`
    [
      "endpointslices/v1/a/shop/good-0",
      "endpointslices/v1/a/shop/no-ip-0",
      "endpointslices/v1/a/shop/no-ports-0",
      "identities/v1/id/1001",
      "ip/v1/default/10.0.0.1",
      "nodes/v1/a/good",
      "nodes/v1/a/no-spec",
      "services/v1/a/shop/good",
      "services/v1/a/shop/no-ip",
      "services/v1/a/shop/no-ports",
    ]
  `);
  expect(said.map((message) => message.slice(0, 160)).sort()).toMatchInlineSnapshot(`
    [
      "CiliumEndpoint shop/no-address: status.networking.addressing[0].ipv4 "10.0.0.256" is not a valid IP address",
      "CiliumEndpoint shop/no-id: status.identity.id -1: must be an integer from 0 to 4294967295",
      "CiliumEndpoint shop/no-networking: status.networking 7: must be an object",
      "CiliumIdentity 1002: security-labels ["k8s:app"]: must be an object",
      "CiliumIdentity 1002: security-labels ["k8s:app"]: must have at least one label",
      "CiliumIdentity 1003: security-labels.k8s:app 7: must be a string",
      "CiliumIdentity no-number: metadata.name "no-number" is not an identity number",
      "CiliumNode no-key: spec.encryption.key 300: must be an integer from 0 to 255",
      "CiliumNode no-spec: spec "a text": must be an object",
      "Service shop/no-ip: spec.clusterIP "172.16.0.1.1" is not a valid IP address",
      "Service shop/no-ports: spec.ports "http": must be a list",
      "cilium/state/nodes/v1/a/huge: value "1600368 bytes": must have at most 1572352 bytes with its key",
    ]
  `);
  ended.abort();
  await Promise.all(running);
});
