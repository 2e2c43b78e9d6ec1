import { describe, expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { jsonPatch } from '../../../src/k8s/memory/json-patch.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import { type PatchOperation, placeOf, pointer } from '../../../src/k8s/rest/object-writer.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { nodeKey } from '../../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import {
  PolicyStatusCollector,
  removalPatches,
  staleEntries,
} from '../../../src/operator/collect/policy-status-collector.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { round } from '../support/tiny-cluster.ts';

const POLICIES = { group: 'cilium.io', version: 'v2', plural: 'ciliumnetworkpolicies' };
const OLD = '1970-01-01T00:00:00Z';
const NOW = 10 * 60_000;
const MIN_AGE = 2 * 60_000;

function policy(nodes: readonly string[], lastUpdated = OLD): KubernetesObject {
  const entries = Object.fromEntries(nodes.map((name) => [name, { lastUpdated, ok: true }]));
  return { metadata: { name: 'p', uid: 'u', resourceVersion: '1' }, status: { nodes: entries } };
}

/**
 * 1.8.11: the entries after the first chunk are sent repeatedly, because nothing removes them from
 * `remaining`.
 */
function* patchesOfUpstream(entries: ReadonlyMap<string, string>): Generator<readonly PatchOperation[]> {
  let now: readonly PatchOperation[] = [...entries].flatMap(([node, value]): readonly PatchOperation[] => {
    const path = `/status/nodes/${node}`;
    return [
      { op: 'test', path: `${path}/lastUpdated`, value },
      { op: 'remove', path },
    ];
  });
  let remaining: readonly PatchOperation[] = [];
  for (;;) {
    if (now.length > 10_000) {
      remaining = now.slice(10_000);
      now = now.slice(0, 10_000);
    }
    yield now;
    now = remaining;
    if (remaining.length === 0) return;
  }
}

describe('the collector of policy status', () => {
  it('deletes the status of deleted nodes, unless it was written a moment ago', () => {
    const stale = (one: KubernetesObject): readonly string[] => [
      ...staleEntries(one, new Set(['n1']), NOW, MIN_AGE).keys(),
    ];
    expect(stale(policy(['n1', 'gone', '__proto__x']))).toEqual(['gone', '__proto__x']);
    expect(stale(policy(['gone'], '1970-01-01T00:08:00Z'))).toEqual(['gone']);
    expect(stale(policy(['gone'], '1970-01-01T00:08:01Z'))).toEqual([]);
    expect(stale(policy(['gone'], 'no time'))).toEqual([]);
    expect(stale(policy(['gone'], '1969-02-30T00:00:00Z'))).toEqual([]);
    expect(stale({ ...policy([]), status: { nodes: ['x'] } })).toEqual([]);
    expect(stale({ ...policy([]), status: null })).toEqual([]);
  });

  it('escapes names, which upstream does not: one such name kept all stale ones', () => {
    const nodes = ['a/b', 'a~b', 'n2'];
    const one = policy([...nodes, 'n1']);
    const entries = new Map(nodes.map((name) => [name, OLD]));
    const [patch] = removalPatches(entries);
    expect(jsonPatch(one, patch)).toEqual(policy(['n1']));
    const [upstream] = patchesOfUpstream(entries);
    expect(() => jsonPatch(one, upstream)).toThrow();
    expect(pointer('status', 'nodes', '~1')).toBe('/status/nodes/~01');
  });

  it('sends as many patches as necessary, each of at most 10,000 operations; upstream repeats the second for ever', () => {
    const nodes = Array.from({ length: 5001 }, (_, i) => `n${i}`);
    const entries = new Map(nodes.map((name) => [name, OLD]));
    /**
     * Returns the remaining entries, and if the sender ended within a number of requests. Refused requests
     * are only logged.
     */
    const sent = (patches: Iterable<readonly PatchOperation[]>): { left: unknown; isOver: boolean } => {
      let left: unknown = policy(nodes);
      let requests = 0;
      for (const patch of patches) {
        if (++requests > 20) return { left, isOver: false };
        try {
          left = jsonPatch(left, patch);
        } catch {}
      }
      return { left, isOver: true };
    };
    expect(removalPatches(entries).map((one) => one.length)).toEqual([10_000, 2]);
    expect(sent(removalPatches(entries))).toEqual({ left: policy([]), isOver: true });
    expect(sent(patchesOfUpstream(entries))).toEqual({ left: policy([]), isOver: false });
  });

  it('reads the kvstore twice, does not trust an empty one, and keeps the status of a live writer', async () => {
    const clock = new ManualClock();
    clock.advance(NOW);
    const api = new MemoryApiServer({ clock });
    const transport = new MemoryApiTransport(api);
    const client = new KubernetesClient(transport, { clock });
    const backend = new MemoryBackend({ clock });
    const user = new ApiUser(transport, POLICIES, 'shop');
    const set = async (nodes: object): Promise<void> => {
      const contentType = 'application/merge-patch+json';
      await user.ask({
        method: 'PATCH',
        path: `${user.path('p')}/status`,
        body: { status: { nodes } },
        contentType,
      });
    };
    const collector = new PolicyStatusCollector({
      policies: POLICIES,
      reader: client.reader(),
      writer: client.writer(),
      backend,
      clock,
      cluster: 'atlantic',
    });
    const names = async (): Promise<readonly string[]> => {
      const { body } = await user.ask({ path: user.path('p') });
      return Object.keys((body as ReturnType<typeof policy> & { status: { nodes: object } }).status.nodes);
    };
    await user.create('p');
    await set({ n1: { lastUpdated: OLD }, 'gone/1': { lastUpdated: OLD }, late: { lastUpdated: OLD } });
    await expect(round(collector)).rejects.toThrow('the kvstore contains no node of cluster atlantic');
    await backend.update(nodeKey({ cluster: 'atlantic', name: 'n1' }), bytesOfText('{}'));
    await backend.update(nodeKey({ cluster: 'atlantic-eu', name: 'gone/1' }), bytesOfText('{}'));
    await round(collector, 1);
    expect(await names()).toEqual(['n1', 'gone/1', 'late']);
    await backend.update(nodeKey({ cluster: 'atlantic', name: 'late' }), bytesOfText('{}'));
    await round(collector, 2);
    expect(await names()).toEqual(['n1', 'late']);
    // Written between list and patch, so that the test of the patch fails.
    await backend.delete(nodeKey({ cluster: 'atlantic', name: 'late' }));
    await round(collector, 3);
    api.faults.inject({ do: 'hang' }, { matches: ({ method }) => method === 'PATCH' });
    const hung = round(collector, 4).catch((error: Error) => error.message);
    await advance(clock, 1000);
    await set({ late: { lastUpdated: '1970-01-01T01:00:00Z' } });
    await advance(clock, 60_000);
    expect(await hung).toBe(
      'cannot patch ciliumnetworkpolicies.cilium.io/v2/status shop/p: not complete after 30 s',
    );
    expect(await names()).toEqual(['n1', 'late']);
    await Promise.all([client.close(), backend.close()]);
  });

  it('continues with the others if the server rejects a policy (regression: the round ended)', async () => {
    const clock = new ManualClock();
    clock.advance(NOW);
    const backend = new MemoryBackend({ clock });
    await backend.update(nodeKey({ cluster: 'atlantic', name: 'n1' }), bytesOfText('{}'));
    const one = policy(['gone']);
    const page = ['a', 'b'].map((name) => ({ ...one, metadata: { ...one.metadata, name } }));
    const collector = new PolicyStatusCollector({
      policies: POLICIES,
      reader: {
        get: async () => undefined,
        list: async function* () {
          yield page;
        },
      },
      writer: {
        write: async (write) =>
          placeOf(write).name === 'a'
            ? { outcome: 'invalid', message: 'no spec' }
            : { outcome: 'done', object: undefined },
      },
      backend,
      clock,
      cluster: 'atlantic',
    });
    await round(collector, 1);
    const log: unknown[] = [];
    const countDelete = (): unknown => log.push('deleted');
    await round(collector, 2, { countDelete, addError: (error) => log.push(String(error)) });
    expect(log).toEqual([
      'DutyError: cannot patch ciliumnetworkpolicies.cilium.io/v2/status a: no spec',
      'deleted',
    ]);
    await backend.close();
  });
});
