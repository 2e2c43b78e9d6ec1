import { Map as ImmutableMap, Set as ImmutableSet, List } from 'immutable';
import { describe, expect, it } from 'vitest';
import { protocolName } from '../../src/net/port.ts';
import type { Backend, Backends } from '../../src/servicecache/backend.ts';
import type { ServiceEvent } from '../../src/servicecache/events.ts';
import type { Service, ServicePort } from '../../src/servicecache/service.ts';
import type { ServiceCache, ServiceCacheOptions } from '../../src/servicecache/service-cache.ts';
import { formatServiceID, type ServiceID } from '../../src/servicecache/service-id.ts';
import { cacheOf, offer, SHOP, service, slice } from './support/scene.ts';

/** Records the inputs and events of a cache as a readable text. `vitest -u` rewrites the files. */
class Transcript {
  readonly #lines: string[] = [];
  readonly cache: ServiceCache;

  constructor(title: string, options: Partial<ServiceCacheOptions> = {}) {
    this.cache = cacheOf(options);
    this.#lines.push(title, '='.repeat(title.length));
    this.cache.subscribe({
      onEvents: (events) => {
        for (const event of events) this.#lines.push(`    ${describeEvent(event)}`);
      },
      onInputsComplete: () => this.#lines.push('    inputs complete'),
    });
  }

  /** Adds an input as a line, and its events as indented lines below. */
  step(what: string, happens: (cache: ServiceCache) => unknown): this {
    this.#lines.push('', what);
    const before = this.#lines.length;
    happens(this.cache);
    if (this.#lines.length === before) this.#lines.push('    (nothing to tell)');
    return this;
  }

  /** What `explain` says of the service now. */
  explain(id: ServiceID = SHOP): this {
    const explained = this.cache.explain(id);
    this.#lines.push('', `explain ${formatServiceID(id)}`);
    const state = [
      explained?.ready ? 'ready' : 'not ready',
      explained?.announced ? 'announced' : 'not announced',
    ];
    this.#lines.push(`    ${state.join(', ')}`);
    for (const { address, cluster, slice: name, verdict } of explained?.backends ?? []) {
      this.#lines.push(`    ${address.padEnd(10)} ${(cluster || name).padEnd(8)} ${verdict}`);
    }
    return this;
  }

  /** A line of text. */
  note(line: string): this {
    this.#lines.push(`    ${line}`);
    return this;
  }

  toString(): string {
    return `${this.#lines.join('\n')}\n`;
  }
}

function describeBackend({ address, cluster, ports, state }: Backend): string {
  const numbers = [...ports.values()].map(({ port, protocol }) => `${port}/${protocolName(protocol)}`).sort();
  return `${cluster && `${cluster}:`}${address} ${numbers.join(',')}${state === 'active' ? '' : ` ${state}`}`;
}

function describeBackends(backends: Backends): string {
  if (backends.size === 0) return 'no backends';
  return [...backends.values()].map(describeBackend).sort().join(' | ');
}

function describeService(next: Service, old: Service | undefined): string {
  const show = ({ clusterIPs, type, global, affinity, addressing }: Service): string =>
    [type, addressing === 'headless' ? 'headless' : clusterIPs.join(' '), global ? 'global' : '', affinity]
      .filter((part) => part !== '' && part !== 'none')
      .join(' ');
  if (old === undefined) return ` (new: ${show(next)})`;
  return old === next ? '' : ` (service: ${show(old)} → ${show(next)})`;
}

function describeEvent({ action, id, service: next, oldService, endpoints }: ServiceEvent): string {
  if (action === 'delete') return `delete ${formatServiceID(id)}`;
  return `update ${formatServiceID(id)}${describeService(next, oldService)}: ${describeBackends(endpoints.backends)}`;
}

async function expectGolden(transcript: Transcript, name: string): Promise<void> {
  await expect(transcript.toString()).toMatchFileSnapshot(`../golden/servicecache/${name}.txt`);
}

describe('golden transcripts', () => {
  it('a global service and its clusters', async () => {
    const story = new Transcript('A global service, from the first endpoints to the last cluster')
      .step('east offers 10.9.0.1, before the service is known here', (cache) =>
        cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1'])),
      )
      .step('the service is created, not global', (cache) => cache.updateService(service()))
      .step('slice-1 names 10.0.0.1 and 10.0.0.2', (cache) =>
        cache.updateEndpoints(slice('slice-1', ['10.0.0.1', '10.0.0.2'])),
      )
      .step('the service is made global: only an annotation changes', (cache) =>
        cache.updateService(service({ global: true })),
      )
      .step('west offers 10.9.0.1 on another port, and 10.9.0.2', (cache) =>
        cache.mergeExternalServiceUpdate(offer('west', ['10.9.0.1', '10.9.0.2'], 9090)),
      )
      .explain()
      .step('east takes its offer back: west had claimed that address too', (cache) =>
        cache.mergeExternalServiceDelete({ cluster: 'east', ...SHOP }),
      )
      .step('slice-1 is deleted', (cache) => cache.deleteEndpoints(SHOP, 'slice-1'))
      .step('west leaves the mesh: traffic is to be refused, not to fall through', (cache) =>
        cache.withdrawCluster('west'),
      )
      .step('the service becomes an ExternalName', (cache) =>
        cache.updateService(service({ type: 'ExternalName', global: true })),
      )
      .step('and a cluster-internal one again', (cache) => cache.updateService(service({ global: true })))
      .step('the inputs are complete', (cache) => cache.markSynced());
    await expectGolden(story, 'global-service');
  });

  it('affinity', async () => {
    const active = slice('slice-1', ['10.0.0.1']);
    const leaving = slice('slice-1', { '10.0.0.1': { state: 'terminating' } });
    const story = new Transcript('Service affinity: who serves while the preferred side cannot')
      .step('the service prefers local backends', (cache) =>
        cache.updateService(service({ global: true, affinity: 'local' })),
      )
      .step('east offers 10.9.0.1: better than nobody', (cache) =>
        cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1'])),
      )
      .step('10.0.0.1 comes up', (cache) => cache.updateEndpoints(active))
      .step('east offers 10.9.0.2 instead: not wanted now', (cache) =>
        cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.2'])),
      )
      .explain()
      .step('10.0.0.1 begins to terminate', (cache) => cache.updateEndpoints(leaving))
      .step('the service prefers remote backends', (cache) =>
        cache.updateService(service({ global: true, affinity: 'remote' })),
      )
      .step('the service has no preference', (cache) => cache.updateService(service({ global: true })));
    await expectGolden(story, 'affinity');
  });

  it('batches and slices', async () => {
    const story = new Transcript('A rolling update: slices change hands, batches tell the net effect');
    story
      .step('the service, with two slices', (cache) =>
        cache.batch(() => {
          cache.updateService(service());
          cache.updateEndpoints(slice('slice-1', ['10.0.0.1', '10.0.0.2']));
          cache.updateEndpoints(slice('slice-2', ['10.0.0.3']));
        }),
      )
      .step('10.0.0.2 moves to slice-2: first it is in both', (cache) =>
        cache.updateEndpoints(slice('slice-2', ['10.0.0.2', '10.0.0.3'])),
      )
      .step('then in slice-2 only', (cache) => cache.updateEndpoints(slice('slice-1', ['10.0.0.1'])))
      .step('a relist that changes nothing in the end', (cache) =>
        cache.batch(() => {
          cache.deleteService(SHOP);
          cache.deleteEndpoints(SHOP, 'slice-1');
          cache.updateEndpoints(slice('slice-1', ['10.0.0.1']));
          cache.updateService(service());
        }),
      )
      .step('a batch that fails leaves nothing behind', (cache) => {
        try {
          cache.batch(() => {
            cache.deleteService(SHOP);
            throw new Error('the connection broke');
          });
        } catch (error) {
          story.note(`failed: ${String(error)}`);
        }
      })
      .step('10.0.0.1 is replaced by 10.0.0.4, not ready yet', (cache) =>
        cache.updateEndpoints(
          slice('slice-1', { '10.0.0.1': { state: 'terminating' }, '10.0.0.4': { state: 'not-ready' } }),
        ),
      )
      .step('10.0.0.4 is ready', (cache) => cache.updateEndpoints(slice('slice-1', ['10.0.0.4'])))
      .explain();
    await expectGolden(story, 'rolling-update');
  });

  it('kinds of services', async () => {
    const nodePort = { enabled: true, ipv4: ['192.168.0.1'], ipv6: ['fd00::a'] };
    const ports = ImmutableMap<string, ServicePort>({ http: { port: 80, protocol: 6, nodePort: 31080 } });
    const story = new Transcript('One service as many kinds, and where it can be reached', { nodePort });
    const reachable = (): string =>
      `reachable at ${[...story.cache.uniqueServiceFrontends()].sort().join(' ')}`;
    const turn = (what: string, fields: Partial<Service>): void => {
      story.step(what, (cache) => cache.updateService(service(fields))).note(reachable());
    };
    story.step('an empty endpoints object makes it ready', (cache) =>
      cache.updateEndpoints(slice('checkout', [])),
    );
    turn('cluster-internal', {});
    turn('a node port, not allocated yet', {
      type: 'NodePort',
      ports: ImmutableMap<string, ServicePort>({ http: { port: 80, protocol: 6, nodePort: 0 } }),
    });
    turn('a node port, allocated', { type: 'NodePort', ports });
    turn('dual stack', { type: 'NodePort', ports, clusterIPs: List(['172.16.0.10', 'fd02::10']) });
    turn('headless', { addressing: 'headless', clusterIPs: List() });
    turn('by external IP only', {
      addressing: 'unassigned',
      clusterIPs: List(),
      externalIPs: ImmutableSet(['1.2.3.4']),
    });
    turn('with no address at all', { addressing: 'unassigned', clusterIPs: List() });
    await expectGolden(story, 'kinds');
  });
});
