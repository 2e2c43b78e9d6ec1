import { describe, expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { DryRunBackend } from '../../../src/operator/dry-run-backend.ts';
import type { OperatorDuties } from '../../../src/operator/duties.ts';
import type { Action } from '../../../src/operator/duty.ts';
import {
  type ExportStage,
  GlobalNamespaces,
  type NamespacedKeys,
} from '../../../src/operator/publish/global-namespaces.ts';
import { namespaceOfKey } from '../../../src/operator/publish/namespace-of-key.ts';
import { NamespacedValues } from '../../../src/operator/publish/namespaced-values.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { runDuties } from '../support/run-duties.ts';

const core = (plural: string) => ({ group: '', version: 'v1', plural });
const cilium = (plural: string) => ({ group: 'cilium.io', version: 'v2', plural });
const GLOBAL = 'clustermesh.cilium.io/global';

/** A cluster with its API server and kvstore, and an operator that publishes. */
class Cluster {
  readonly clock = new ManualClock();
  readonly api = new MemoryApiServer({ clock: this.clock });
  readonly server = new MemoryServer({ clock: this.clock, clusterID: 'a' });
  readonly actions: Action[] = [];
  duties: OperatorDuties = { all: [], published: [] };
  readonly #transport = new MemoryApiTransport(this.api);
  readonly #namespaces = new ApiUser(this.#transport, core('namespaces'));

  async annotate(namespace: string, value: string | undefined, isNew = false): Promise<void> {
    const metadata = { annotations: { [GLOBAL]: value ?? null } };
    if (isNew) await this.#namespaces.create(namespace);
    await this.#namespaces.patch(namespace, { metadata });
  }

  deleteNamespace(name: string): Promise<unknown> {
    return this.#namespaces.delete(name);
  }

  /** Adds a pod with its identity, and a global service for it. */
  async addPod(namespace: string, name: string, id: number, ip: string): Promise<void> {
    await new ApiUser(this.#transport, cilium('ciliumidentities')).create(String(id), {
      'security-labels': { 'k8s:app': name, 'k8s:io.kubernetes.pod.namespace': namespace },
    });
    const endpoints = new ApiUser(this.#transport, cilium('ciliumendpoints'), namespace);
    await endpoints.create(name);
    await endpoints.ask({
      method: 'PATCH',
      path: `${endpoints.path(name)}/status`,
      contentType: 'application/merge-patch+json',
      body: {
        status: { identity: { id }, networking: { addressing: [{ ipv4: ip }], node: '192.168.0.1' } },
      },
    });
    await new ApiUser(this.#transport, core('services'), namespace).create(
      name,
      { spec: { clusterIP: '172.16.0.1', ports: [{ name: 'http', port: 80 }] } },
      { annotations: { 'service.cilium.io/global': 'true' } },
    );
    const slices = { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices' };
    await new ApiUser(this.#transport, slices, namespace).create(
      `${name}-1`,
      { addressType: 'IPv4', endpoints: [{ addresses: [ip] }], ports: [{ name: 'http', port: 80 }] },
      { labels: { 'kubernetes.io/service-name': name } },
    );
  }

  /** Runs an operator. The returned function ends it. */
  operate(globalByDefault: boolean): () => Promise<void> {
    const { duties, stop } = runDuties(this, {
      globalByDefault,
      onAction: (action) => this.actions.push(action),
    });
    this.duties = duties;
    return stop;
  }

  /**
   * Returns published keys of identities, addresses and services, and canaries, without the common prefixes.
   */
  keys(): readonly string[] {
    const { kvs } = this.server.range(prefixRange('cilium/'));
    return kvs.flatMap(
      ({ key }) => /(?:id\/|default\/|services\/v1\/a\/|cilium\/synced\/a\/)(.+)/.exec(key)?.[1] ?? [],
    );
  }

  /** Returns addresses whose identity has no key. */
  dangling(): readonly string[] {
    const { kvs } = this.server.range(prefixRange('cilium/state/ip/'));
    const identities = new Set(
      this.server
        .range(prefixRange('cilium/state/identities/v1/id/'))
        .kvs.map(({ key }) => key.split('/').at(-1)),
    );
    return kvs.flatMap(({ key, value }) => {
      const { ID } = JSON.parse(textOfBytes(value) ?? '') as { readonly ID: number };
      return identities.has(String(ID)) ? [] : [key];
    });
  }
}

describe('global namespaces', () => {
  it('equal those of upstream: annotated, annotated again, no longer annotated, deleted', async () => {
    const cluster = new Cluster();
    await cluster.annotate('don', 'true', true);
    await cluster.annotate('quixote', undefined, true);
    await cluster.addPod('don', 'cep-001', 65_800, '10.244.1.79');
    await cluster.addPod('quixote', 'cep-002', 65_801, '10.244.2.74');
    const stop = cluster.operate(false);
    await advance(cluster.clock, 3000);
    const don = ['65800', '10.244.1.79', 'don/cep-001'];
    const quixote = ['65801', '10.244.2.74', 'quixote/cep-002'];
    const canaries = ['endpointslices', 'identities', 'ip', 'nodes', 'services'].map(
      (name) => `cilium/state/${name}/v1`,
    );
    const expected = (...keys: readonly string[]): readonly string[] => [...keys, ...canaries].sort();
    const published = async (): Promise<readonly string[]> => {
      await advance(cluster.clock, 1000);
      return [...cluster.keys()].sort();
    };
    expect(await published()).toEqual(expected(...don));
    expect(cluster.duties.namespaces?.counts()).toEqual({
      globalByDefault: false,
      complete: true,
      known: 2,
      global: 1,
    });
    await cluster.annotate('quixote', 'True');
    expect(await published()).toEqual(expected(...don, ...quixote));
    await cluster.annotate('quixote', undefined);
    expect(await published()).toEqual(expected(...don));
    await cluster.deleteNamespace('don');
    expect(await published()).toEqual(expected());
    expect(cluster.actions.map(({ action: what, reason: why }) => `${what}: ${why}`)).toEqual([
      'put the keys of 4 objects of namespace quixote: namespace quixote is global',
      'delete the keys of 4 objects of namespace quixote: namespace quixote is not global by default',
      'delete the keys of 4 objects of namespace don: namespace don does not exist, so it is not global',
    ]);
    await stop();
  });

  it('publish no address whose identity is missing, while namespaces change and operators restart', async () => {
    const cluster = new Cluster();
    for (const [at, namespace] of ['a', 'b', 'c'].entries()) {
      await cluster.annotate(namespace, 'true', true);
      for (let pod = 0; pod < 40; pod++)
        await cluster.addPod(namespace, `p${pod}`, 65_800 + at * 100 + pod, `10.${at}.0.${pod}`);
    }
    let stop = cluster.operate(true);
    await advance(cluster.clock, 3000);
    const txn = cluster.server.txn.bind(cluster.server);
    const dangling = new Set<string>();
    let writes = 0;
    cluster.server.txn = (request) => {
      const answer = txn(request);
      for (const key of cluster.dangling()) dangling.add(key);
      writes++;
      return answer;
    };
    for (const value of ['false', 'true', 'false']) {
      await cluster.annotate('a', value);
      await cluster.annotate('b', value === 'true' ? 'false' : 'true');
      await advance(cluster.clock, 1000);
    }
    await cluster.annotate('c', 'false');
    await cluster.annotate('c', 'true');
    await settle(2);
    await cluster.annotate('c', 'false');
    await advance(cluster.clock, 1000);
    expect(cluster.keys().filter((key) => /^\d+\./.test(key))).toHaveLength(40);
    // The operator is stopped when the last namespace ceases to be global: the next operator sweeps its keys.
    await stop();
    await cluster.annotate('b', 'false');
    stop = cluster.operate(true);
    await advance(cluster.clock, 3000);
    expect(cluster.keys().filter((key) => /^\d/.test(key))).toEqual([]);
    expect(writes).toBeGreaterThan(10);
    expect([...dangling]).toEqual([]);
    await stop();
  });

  it('keep an address with the endpoint of a global namespace while another endpoint lists it, too', async () => {
    const cluster = new Cluster();
    await cluster.annotate('shop', 'true', true);
    await cluster.annotate('game', 'false', true);
    await cluster.addPod('shop', 'web', 65_800, '10.0.0.1');
    await advance(cluster.clock, 5000);
    await cluster.addPod('game', 'lobby', 65_801, '10.0.0.1'); // younger
    const stop = cluster.operate(true);
    const podOf = async (): Promise<string | undefined> => {
      await advance(cluster.clock, 3000);
      const [found] = cluster.server.range(prefixRange('cilium/state/ip/')).kvs;
      return /"K8sPodName":"(\w+)"/.exec(textOfBytes(found?.value ?? new Uint8Array()) ?? '')?.[1];
    };
    expect(await podOf()).toBe('web');
    await cluster.annotate('game', 'true');
    expect(await podOf()).toBe('lobby');
    await cluster.annotate('shop', 'false');
    expect(await podOf()).toBe('lobby');
    await cluster.annotate('game', 'false');
    expect(await podOf()).toBe(undefined);
    await stop();
  });

  it('delay the canaries until all namespaces are listed, and keep the keys of earlier runs until then', async () => {
    const cluster = new Cluster();
    await cluster.annotate('shop', 'true', true);
    await cluster.addPod('shop', 'web', 65_800, '10.0.0.1');
    const first = cluster.operate(true);
    await advance(cluster.clock, 3000);
    const before = cluster.keys();
    await first();
    const { server } = cluster;
    const canaries = (): number => server.range(prefixRange('cilium/synced/')).kvs.length;
    server.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('cilium/synced/') }] });
    const isHeld = { now: true };
    const handle = cluster.api.handle.bind(cluster.api);
    cluster.api.handle = (request) =>
      isHeld.now && request.path.includes('/namespaces?')
        ? Promise.resolve({ status: 403, headers: {}, body: (async function* () {})() } as never)
        : handle(request);
    const second = cluster.operate(true);
    await advance(cluster.clock, 10_000);
    expect(canaries()).toBe(1); // of nodes, which have no namespace
    expect(cluster.duties.namespaces?.complete).toBe(false);
    expect(cluster.duties.namespaces?.status()).toMatchObject({ state: 'waiting' });
    expect(cluster.duties.namespaces?.status().failures).toBeGreaterThan(0);
    expect(cluster.keys()).toEqual(before.filter((key) => !/cilium\/state\/(e|id|ip|s)/.test(key)));
    isHeld.now = false;
    await advance(cluster.clock, 60_000);
    expect(canaries()).toBe(5);
    expect(cluster.keys()).toEqual(before);
    await second();
  });
});

it('a change of a namespace touches only its values', () => {
  const exported = new Set(['big']);
  let calls = 0;
  const values = new NamespacedValues<{ readonly namespace: string }>({
    namespaceOf: ({ namespace }) => {
      calls++;
      return namespace;
    },
    isExported: (namespace) => exported.has(namespace),
    change: () => {
      calls++;
    },
  });
  for (let i = 0; i < 100_000; i++) values.change({ namespace: 'big' }, undefined);
  values.change({ namespace: 'small' }, undefined);
  calls = 0;
  exported.add('small');
  expect([...values.review('small')]).toEqual([]);
  expect(calls).toBe(1);
  exported.delete('big');
  const steps = [...values.review('big')].length;
  expect(steps).toBe(Math.ceil(100_000 / 256) - 1);
});

it('a dry run names the namespace of each key that it would delete because of it', async () => {
  const backend = new MemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  const ip =
    '{"IP":"10.0.0.1","Mask":null,"HostIP":"","ID":65800,"Key":0,"Metadata":"","K8sNamespace":"shop"}';
  const values = {
    'cilium/state/ip/v1/default/10.0.0.1': ip,
    'cilium/state/identities/v1/id/65800': 'k8s:io.kubernetes.pod.namespace=shop;',
    'cilium/state/services/v1/a/shop/web': '{}',
    'cilium/state/endpointslices/v1/a/shop/web-1': '',
    'cilium/state/serviceexports/v1/a/shop/web': '{}',
    'cilium/state/services/v1/a/game/web': '{}',
    'cilium/state/nodes/v1/a/shop': '{}',
  };
  for (const [key, value] of Object.entries(values)) await backend.update(key, bytesOfText(value));
  const lines: string[] = [];
  const reasonOf = (key: string, value: Uint8Array): string | undefined => {
    const namespace = namespaceOfKey(key, value);
    return namespace === 'shop' ? `namespace ${namespace} is not global` : undefined;
  };
  const dryRun = new DryRunBackend(backend, (line) => lines.push(line), reasonOf);
  for (const key of Object.keys(values)) await dryRun.delete(key);
  expect(lines).toEqual([
    'delete cilium/state/ip/v1/default/10.0.0.1: namespace shop is not global',
    'delete cilium/state/identities/v1/id/65800: namespace shop is not global',
    'delete cilium/state/services/v1/a/shop/web: namespace shop is not global',
    'delete cilium/state/endpointslices/v1/a/shop/web-1: namespace shop is not global',
    'delete cilium/state/serviceexports/v1/a/shop/web: namespace shop is not global', // regression: another reason
    'delete cilium/state/services/v1/a/game/web: no object requires it',
    'delete cilium/state/nodes/v1/a/shop: no object requires it',
  ]);
  await backend.close();
});

describe('a review of the keys of a namespace that throws', () => {
  /** Runs namespaces with two producers; `faulty` throws once at each review of namespace `shop`. */
  async function reviewed(faulty: ExportStage, isFaultyAt: 'start' | 'change'): Promise<readonly string[]> {
    const clock = new ManualClock();
    const api = new MemoryApiServer({ clock });
    const transport = new MemoryApiTransport(api);
    const user = new ApiUser(transport, core('namespaces'));
    const annotate = (value: string): Promise<unknown> =>
      user.patch('shop', { metadata: { annotations: { [GLOBAL]: value } } });
    await user.create('shop');
    await annotate(isFaultyAt === 'start' ? 'true' : 'false');
    const source = new KubernetesClient(transport, { clock, random: () => 0.5 });
    const failures: unknown[] = [];
    const namespaces = new GlobalNamespaces({
      source,
      globalByDefault: false,
      clock,
      random: () => 0.5,
      onFailure: (error) => failures.push(error),
    });
    const log: string[] = [];
    let isFaulty = isFaultyAt === 'start';
    const member = (stage: ExportStage): NamespacedKeys => ({
      stage,
      *review(namespace) {
        if (isFaulty && stage === faulty) {
          isFaulty = false;
          throw new Error('broken');
        }
        log.push(`${stage} ${namespaces.exports(stage, namespace) ? 'put' : 'delete'}`);
        yield;
      },
      count: () => 1,
      whenFlushed: () => Promise.resolve(),
      onComplete: () => log.push(`${stage} complete`),
    });
    namespaces.join(member('identities'));
    namespaces.join(member('others'));
    const ended = new AbortController();
    const running = namespaces.run(ended.signal);
    await advance(clock, 5_000);
    if (isFaultyAt === 'change') {
      isFaulty = true;
      await annotate('true');
      await advance(clock, 5_000);
    }
    expect(failures).toEqual([new Error('broken')]);
    isFaulty = true;
    await annotate('false');
    await advance(clock, 5_000);
    expect(failures).toHaveLength(2);
    ended.abort();
    await settle();
    await running;
    await source.close();
    return log;
  }

  it.each([
    ['identities', 'start'],
    ['others', 'start'],
    ['identities', 'change'],
    ['others', 'change'],
  ] as const)('is repeated: %s at the %s', async (stage, at) => {
    const log = await reviewed(stage, at);
    expect(log.filter((line) => !line.includes('complete'))).toEqual([
      'identities put',
      'others put',
      'others delete',
      'identities delete',
    ]);
    expect(log.filter((line) => line.includes('complete'))).toEqual([
      'identities complete',
      'others complete',
    ]);
  });

  it('does not let an address be published before the identities of the same change', async () => {
    const clock = new ManualClock();
    const api = new MemoryApiServer({ clock });
    const transport = new MemoryApiTransport(api);
    const user = new ApiUser(transport, core('namespaces'));
    const annotate = (name: string, value: string): Promise<unknown> =>
      user.patch(name, { metadata: { annotations: { [GLOBAL]: value } } });
    for (const name of ['game', 'shop']) await user.create(name);
    await annotate('game', 'true');
    const runtime = { clock, random: () => 0.5 };
    const source = new KubernetesClient(transport, runtime);
    const failures: unknown[] = [];
    const onFailure = (error: unknown): number => failures.push(error);
    const namespaces = new GlobalNamespaces({ source, globalByDefault: false, ...runtime, onFailure });
    const reviewed: string[] = [];
    let isFaulty = false;
    let flush: () => void = () => {};
    const flushed = new Promise<void>((resolve) => {
      flush = resolve;
    });
    const member = (stage: ExportStage): NamespacedKeys => ({
      stage,
      *review(namespace) {
        if (isFaulty && stage === 'others') {
          isFaulty = false;
          throw new Error('broken');
        }
        reviewed.push(`${stage} ${namespace}`);
        yield;
      },
      count: () => 1,
      whenFlushed: () => (stage === 'identities' ? flushed : Promise.resolve()),
      onComplete: () => {},
    });
    namespaces.join(member('identities'));
    namespaces.join(member('others'));
    const ended = new AbortController();
    const running = namespaces.run(ended.signal);
    await advance(clock, 5000);
    reviewed.splice(0);
    isFaulty = true;
    await Promise.all([annotate('shop', 'true'), annotate('game', 'false')]);
    await advance(clock, 5000);
    expect(failures).toEqual([new Error('broken')]);
    expect(reviewed).toEqual(['identities shop', 'others game']);
    flush();
    await advance(clock, 5000);
    expect(reviewed.slice(2)).toEqual(['others shop', 'identities game']);
    ended.abort();
    await settle();
    await running;
    await source.close();
  });
});
