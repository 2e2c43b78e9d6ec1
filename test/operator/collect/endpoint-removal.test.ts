import { expect, it } from 'vitest';
import { AssertionError } from '../../../src/base/assert.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { ServedRequest } from '../../../src/k8s/memory/faults.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import type { CollectorIntervals } from '../../../src/operator/collect/collectors.ts';
import { operatorDuties } from '../../../src/operator/duties.ts';
import type { Action, Duty } from '../../../src/operator/duty.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance } from '../../kvstore/support/settle.ts';

const KIND = { group: 'cilium.io', version: 'v2', plural: 'ciliumendpoints' };
const OFF: CollectorIntervals = { endpoints: 0, identities: 0 };

class World {
  readonly clock = new ManualClock();
  readonly api = new MemoryApiServer({ clock: this.clock });
  readonly endpoints = new ApiUser(new MemoryApiTransport(this.api), KIND, 'shop');
  readonly actions: Action[] = [];
  /** Called after each recorded action. */
  onAction: () => void = () => {};
  readonly #ended = new AbortController();
  #running: Promise<void> = Promise.resolve();

  duties(intervals: CollectorIntervals, deleteAllEndpoints: boolean): readonly Duty[] {
    const { clock } = this;
    const random = (): number => 0.5;
    return operatorDuties({
      clusterName: 'a',
      clusterID: 1,
      maxConnectedClusters: 255,
      identityAllocation: 'crd',
      endpoints: 'ciliumendpoints',
      publish: {
        services: false,
        nodes: false,
        identities: false,
        ips: false,
        clusterConfig: false,
        heartbeat: false,
      },
      intervals,
      deleteAllEndpoints,
      clock,
      random,
      kubernetes: new KubernetesClient(new MemoryApiTransport(this.api), { clock, random }),
      backend: new MemoryBackend({ clock }),
      gate: new TurnGate({ clock, nextTurn: setImmediate }),
      onReject: () => {},
      onFailure: () => {},
      onAction: (action) => {
        this.actions.push(action);
        this.onAction();
      },
    }).all;
  }

  run(duty: Duty): void {
    this.#running = duty.run(this.#ended.signal);
  }

  async end(): Promise<void> {
    this.#ended.abort();
    await advance(this.clock, 1000);
    await this.#running;
  }

  async names(): Promise<readonly string[]> {
    const { body } = await this.endpoints.ask({ path: this.endpoints.path() });
    return (body as { items: readonly { metadata: { name: string } }[] }).items.map(
      ({ metadata }) => metadata.name,
    );
  }
}

function removal(duties: readonly Duty[]): Duty | undefined {
  return duties.find(({ name }) => name === 'endpoint-removal');
}

it('all CiliumEndpoints are deleted only if configured explicitly, once, and retried until they are gone', async () => {
  const world = new World();
  for (const name of ['a', 'b', 'c']) await world.endpoints.create(name);
  expect(removal(world.duties(OFF, false))).toBeUndefined();
  const duty = removal(world.duties(OFF, true));
  if (duty === undefined) throw new Error('no duty');
  expect(duty.status()).toMatchObject({ state: 'waiting', rounds: { rounds: 0, lastRoundAt: undefined } });
  world.api.deny('delete', 'ciliumendpoints');
  world.clock.advance(1000);
  world.run(duty);
  await advance(world.clock, 0);
  expect(duty.status()).toMatchObject({
    state: 'running',
    failures: 1,
    rounds: { rounds: 0, marked: 3, deleted: 0 },
    lastFailure: { message: expect.stringContaining('grant the verb "delete"') },
  });
  world.api.allow('delete', 'ciliumendpoints');
  // Another life of an object is not among those to be deleted.
  await world.endpoints.delete('b');
  await world.endpoints.create('b');
  await advance(world.clock, 10_000);
  expect(await world.names()).toEqual(['b']);
  expect(duty.status()).toMatchObject({
    state: 'ended',
    rounds: { rounds: 1, marked: 0, deleted: 2, conflicts: 1, lastRoundAt: WALL_TIME_AT_0 + 1000 },
  });
  const why = 'one-time deletion of all CiliumEndpoints';
  const action = (name: string, outcome: string): Action => ({
    duty: 'endpoint-removal',
    action: `delete ciliumendpoints.cilium.io/v2 shop/${name}`,
    reason: why,
    outcome,
  });
  expect(world.actions).toEqual([
    action('a', 'refused'),
    ...[action('a', 'done'), action('b', 'conflict'), action('c', 'done')],
  ]);
  await world.endpoints.create('a');
  await advance(world.clock, 3_600_000);
  expect(await world.names()).toEqual(['a', 'b']);
  await world.end();
});

it('a CiliumEndpoint whose delete an admission webhook denies does not keep the others (regression: it did)', async () => {
  const world = new World();
  for (const name of ['a', 'b']) await world.endpoints.create(name);
  const [duty] = world.duties(OFF, true).filter(({ name }) => name === 'endpoint-removal');
  const body = JSON.stringify({ code: 400, message: 'denied the request' });
  const matches = ({ method, path }: ServedRequest): boolean => method === 'DELETE' && path.endsWith('/a');
  world.api.faults.inject({ do: 'answer', status: 400, body }, { matches });
  if (duty !== undefined) world.run(duty);
  await advance(world.clock, 0);
  expect(await world.names()).toEqual(['a']);
  expect(duty?.status()).toMatchObject({ state: 'running', failures: 1, lastFailure: { code: 'invalid' } });
  await advance(world.clock, 10_000);
  expect(await world.names()).toEqual([]);
  expect(duty?.status()).toMatchObject({ state: 'ended', rounds: { rounds: 1, deleted: 2 } });
  await world.end();
});

it('if CiliumEndpoints are not served, nothing is deleted', async () => {
  const world = new World();
  const type = CLUSTER_TYPES.find(({ plural }) => plural === KIND.plural);
  if (type !== undefined) world.api.stopServing(type);
  const duty = removal(world.duties(OFF, true));
  if (duty === undefined) throw new Error('no duty');
  world.run(duty);
  await advance(world.clock, 500);
  expect(duty.status()).toMatchObject({ state: 'ended', failures: 0, rounds: { rounds: 1, deleted: 0 } });
  await world.end();
});

it('if CiliumEndpoints cannot be listed, the list is retried with growing delays', async () => {
  const world = new World();
  await world.endpoints.create('a');
  world.api.deny('list', 'ciliumendpoints');
  const duty = removal(world.duties(OFF, true));
  if (duty === undefined) throw new Error('no duty');
  world.run(duty);
  await advance(world.clock, 400); // half of a second at first, on average
  expect(duty.status()).toMatchObject({ state: 'running', failures: 1, rounds: { rounds: 0, marked: 0 } });
  await advance(world.clock, 59_600);
  expect(duty.status().failures).toBe(7); // after 0.5, 1, 2, 4, 8, 16 s
  world.api.allow('list', 'ciliumendpoints');
  await advance(world.clock, 60_000);
  expect([duty.status().state, await world.names()]).toEqual(['ended', []]);
  await world.end();
});

it('the removal of all CiliumEndpoints ends when its signal fires, and the others stay', async () => {
  const world = new World();
  for (const name of ['a', 'b', 'c']) await world.endpoints.create(name);
  const duty = removal(world.duties(OFF, true));
  if (duty === undefined) throw new Error('no duty');
  const path = world.endpoints.path('b');
  world.api.faults.inject(
    { do: 'hang' },
    { matches: (request) => request.method === 'DELETE' && request.path === path },
  );
  world.run(duty);
  await advance(world.clock, 1000);
  await world.end();
  expect(duty.status()).toMatchObject({
    state: 'ended',
    failures: 0,
    rounds: { rounds: 0, marked: 2, deleted: 1 },
  });
  expect(await world.names()).toEqual(['b', 'c']);
});

it.each<CollectorIntervals>([
  {},
  { endpoints: 300_000, identities: 0 },
  { endpoints: 0, identities: 900_000 },
])('with %j the removal of all CiliumEndpoints is not possible', (intervals) => {
  expect(() => new World().duties(intervals, true)).toThrow(AssertionError);
});

it('a callback for actions which throws does not repeat the deletion', async () => {
  const world = new World();
  for (const name of ['a', 'b']) await world.endpoints.create(name);
  world.onAction = () => {
    throw new Error('bad callback');
  };
  const duty = removal(world.duties(OFF, true));
  if (duty === undefined) throw new Error('no duty');
  world.run(duty);
  await advance(world.clock, 1000);
  expect(duty.status()).toMatchObject({ state: 'ended', failures: 0, rounds: { rounds: 1, deleted: 2 } });
  expect(world.actions.map(({ outcome }) => outcome)).toEqual(['done', 'done']);
  await world.end();
});
