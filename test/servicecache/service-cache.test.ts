import { Map as ImmutableMap, Set as ImmutableSet, List } from 'immutable';
import { describe, expect, it } from 'vitest';
import { changedBackends } from '../../src/servicecache/events.ts';
import type { Service, ServicePort } from '../../src/servicecache/service.ts';
import { parseServiceIDFrom } from '../../src/servicecache/service-id.ts';
import { cacheOf, offer, SHOP, service, slice, transcript } from './support/scene.ts';

/** Service `x/<name>` with a label. */
const labelled = (name: string, v: string): Service =>
  service({ id: { namespace: 'x', name }, labels: ImmutableMap({ v }) });

describe('a service is announced', () => {
  it('with its first endpoints, and then for every change', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    cache.updateService(service());
    expect(told).toEqual([]);
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.updateEndpoints(slice('a-2', ['10.0.0.2']));
    cache.deleteEndpoints(SHOP, 'a-1');
    expect(told).toEqual([
      'update shop/checkout 10.0.0.1:8080',
      'update shop/checkout 10.0.0.1:8080 10.0.0.2:8080',
      'update shop/checkout 10.0.0.2:8080',
    ]);
  });

  it('if its endpoints are written first', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.updateService(service());
    expect(told).toEqual(['update shop/checkout 10.0.0.1:8080']);
  });

  it('with an empty endpoints object', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    cache.updateService(service());
    cache.updateEndpoints(slice('checkout', []));
    expect(told).toEqual(['update shop/checkout']);
  });

  it('without any endpoints once the inputs are complete', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    cache.updateService(service());
    cache.markSynced();
    cache.markSynced();
    expect(told).toEqual(['update shop/checkout']);
  });

  it('once the inputs are complete, without a write of the announced services (regression: all in one turn)', () => {
    const cache = cacheOf();
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.updateService(service());
    const waiting = service({ id: { namespace: 'shop', name: 'waiting' } });
    cache.updateService(waiting);
    const written: string[] = [];
    cache.observeStates((key) => written.push(key));
    cache.markSynced();
    expect(written).toEqual(['shop/waiting']);
    expect(cache.get(waiting.id)?.service).toBe(waiting);
  });

  it('until it is deleted; its endpoints are kept for its return', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.updateService(service());
    expect(cache.deleteService(SHOP)).toBe('applied');
    expect(cache.deleteService(SHOP)).toBe('not-found');
    cache.updateService(service());
    expect(told).toEqual([
      'update shop/checkout 10.0.0.1:8080',
      'delete shop/checkout 10.0.0.1:8080',
      'update shop/checkout 10.0.0.1:8080',
    ]);
  });

  it('until it becomes a type that is not served', () => {
    for (const gone of [
      service({ type: 'ExternalName' }),
      service({ type: 'unknown' }),
      service({ addressing: 'unassigned' }),
    ]) {
      const cache = cacheOf();
      cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
      cache.updateService(service());
      const told = transcript(cache);
      expect(cache.updateService(gone)).toBe('unsupported');
      expect(told).toEqual(['update shop/checkout 10.0.0.1:8080', 'delete shop/checkout 10.0.0.1:8080']);
      expect(cache.services().size).toBe(0);
    }
  });

  it('never, if it was deleted before it was ready: its delete is silent', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    cache.updateService(service());
    cache.deleteService(SHOP);
    expect(told).toEqual([]);
  });
});

describe('the loss of the last backend', () => {
  it('is an update without backends, whoever had it: traffic is refused, and does not fall through', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    cache.updateService(service({ global: true }));
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    cache.mergeExternalServiceDelete({ cluster: 'east', ...SHOP });
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.deleteEndpoints(SHOP, 'a-1');
    expect(told).toEqual([
      'update shop/checkout east/10.9.0.1:8080',
      'update shop/checkout',
      'update shop/checkout 10.0.0.1:8080',
      'update shop/checkout',
    ]);
  });
});

describe('remote clusters', () => {
  it('contribute backends while the service is global', () => {
    const cache = cacheOf();
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    cache.updateService(service({ global: true }));
    const told = transcript(cache);
    cache.updateService(service({ global: false }));
    cache.updateService(service({ global: true }));
    expect(told).toEqual([
      'update shop/checkout east/10.9.0.1:8080',
      'update shop/checkout',
      'update shop/checkout east/10.9.0.1:8080',
    ]);
  });

  it('are not trusted about this cluster', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    expect(cache.mergeExternalServiceUpdate(offer('own', ['10.9.0.1']))).toBe('invalid');
    expect(cache.mergeExternalServiceDelete({ cluster: 'own', ...SHOP })).toBe('invalid');
    expect(cache.mergeExternalServiceDelete({ cluster: '', ...SHOP })).toBe('invalid');
    const { byReason, recent } = cache.status().rejections;
    expect(byReason).toEqual({ 'local-cluster': 2, missing: 1 });
    expect(recent.map(({ message }) => message)).toEqual([
      'shop/checkout: cluster "own": must not be the local cluster',
      'shop/checkout: cluster "own": must not be the local cluster',
      'shop/checkout: cluster "": must be set for a remote service',
    ]);
    expect(cache.explain(SHOP)?.backends).toEqual([]);
  });

  it('withdraw an offer if the service is not shared any more', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    expect(cache.mergeExternalServiceUpdate({ ...offer('east', ['10.9.0.1']), shared: false })).toBe(
      'applied',
    );
    expect(cache.get(SHOP)?.endpoints.backends.size).toBe(0);
  });

  it('are withdrawn as a whole', () => {
    const cache = cacheOf();
    const calls: number[] = [];
    for (const name of ['a', 'b']) {
      cache.updateService(service({ id: { namespace: 'shop', name }, global: true }));
      cache.mergeExternalServiceUpdate({ ...offer('east', ['10.9.0.1']), name });
    }
    cache.subscribe({ onEvents: (events) => calls.push(events.length) });
    expect(cache.withdrawCluster('east')).toBe('applied');
    expect(cache.withdrawCluster('east')).toBe('not-found');
    expect(calls).toEqual([2, 2]);
  });
});

describe('frontends that do not apply here are omitted', () => {
  const nodePort = { enabled: true, ipv4: ['0.0.0.0', '192.168.0.1'], ipv6: ['::'] };
  const rich = service({
    type: 'NodePort',
    ports: ImmutableMap<string, ServicePort>({ http: { port: 80, protocol: 6, nodePort: 31080 } }),
    externalIPs: ImmutableSet(['1.2.3.4']),
  });

  it('node ports, external IPs and ingress IPs, with node ports off', () => {
    const cache = cacheOf();
    cache.updateService(rich);
    expect(cache.updateService({ ...rich, externalIPs: ImmutableSet(['1.2.3.5']) })).toBe('unchanged');
    expect([...cache.uniqueServiceFrontends()]).toEqual(['172.16.0.10:80/TCP']);
  });

  it('nothing with node ports on', () => {
    const cache = cacheOf({ nodePort });
    cache.updateService(rich);
    expect([...cache.uniqueServiceFrontends()].sort()).toEqual([
      '0.0.0.0:31080/TCP',
      '172.16.0.10:80/TCP',
      '192.168.0.1:31080/TCP',
    ]);
    expect(cache.updateService({ ...rich, externalIPs: ImmutableSet(['1.2.3.5']) })).toBe('applied');
  });

  it('the family that is disabled, and the one in which the service has no address', () => {
    const dual = service({ ...rich, clusterIPs: List(['172.16.0.10', 'fd02::1']) });
    const cache = cacheOf({ nodePort, enableIPv4: false });
    cache.updateService(dual);
    expect([...cache.uniqueServiceFrontends()].filter((each) => each.includes('31080'))).toEqual([
      '[::]:31080/TCP',
    ]);
    const other = cacheOf({ nodePort, enableIPv6: false });
    other.updateService(dual);
    expect([...other.uniqueServiceFrontends()].filter((each) => each.includes('31080'))).toEqual([
      '0.0.0.0:31080/TCP',
      '192.168.0.1:31080/TCP',
    ]);
  });
});

describe('lookups', () => {
  it('return the address of a service by its first port', () => {
    const cache = cacheOf();
    expect(cache.getServiceIP(SHOP)).toBeUndefined();
    cache.updateService(service());
    expect(cache.getServiceIP(SHOP)).toEqual({
      kind: 'cluster-ip',
      ip: '172.16.0.10',
      port: 80,
      protocol: 6,
      portName: 'http',
    });
    cache.updateService(service({ addressing: 'headless', clusterIPs: List() }));
    expect(cache.getServiceIP(SHOP)).toBeUndefined();
    const reachable = cacheOf({ nodePort: { enabled: true } });
    reachable.updateService(service({ clusterIPs: List(), externalIPs: ImmutableSet(['1.2.3.4']) }));
    expect(reachable.getServiceIP(SHOP)).toBeUndefined();
  });

  it('find the service of a DNS name', () => {
    expect(parseServiceIDFrom('checkout.shop.svc.cluster.local')).toEqual(SHOP);
    expect(parseServiceIDFrom('checkout.shop')).toEqual(SHOP);
    expect(parseServiceIDFrom('checkout')).toBeUndefined();
    expect(parseServiceIDFrom('')).toBeUndefined();
  });

  it('trap: explain every claim, its source, and if it is used', () => {
    const cache = cacheOf();
    cache.updateEndpoints(slice('a-1', { '10.0.0.1': {}, '10.0.0.2': { state: 'not-ready' } }));
    cache.mergeExternalServiceUpdate(offer('west', ['10.0.0.1', '10.9.0.1']));
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    const verdicts = (): readonly string[] =>
      (cache.explain(SHOP)?.backends ?? []).map(
        ({ address, source, cluster, slice: name, verdict }) =>
          `${address} ${source} ${cluster}${name} ${verdict}`,
      );
    expect(verdicts()).toEqual([
      '10.0.0.1 k8s a-1 effective',
      '10.0.0.1 clustermesh west not-global',
      '10.0.0.2 k8s a-1 not-ready',
      '10.9.0.1 clustermesh east not-global',
      '10.9.0.1 clustermesh west not-global',
    ]);
    cache.updateService(service({ global: true, affinity: 'local', publishNotReady: true }));
    expect(verdicts()).toEqual([
      '10.0.0.1 k8s a-1 effective',
      '10.0.0.1 clustermesh west overruled',
      '10.0.0.2 k8s a-1 effective',
      '10.9.0.1 clustermesh east affinity',
      '10.9.0.1 clustermesh west overruled',
    ]);
    expect(cache.status()).toMatchObject({ contested: 2, slices: 1, remoteServices: 2, backends: 2 });
  });

  it('are entries while they are announced, also during changes', () => {
    const cache = cacheOf();
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    expect([...cache.entries()]).toEqual([]);
    cache.updateService(service());
    for (const [key, { endpoints }] of cache.entries()) {
      expect(key).toBe('shop/checkout');
      expect(endpoints.backends.size).toBe(1);
      cache.deleteService(SHOP);
    }
    expect([...cache.entries()]).toEqual([]);
  });

  it('return immutable snapshots, and the same one while nothing changes', () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    const before = cache.snapshot();
    expect(cache.snapshot()).toBe(before);
    cache.deleteEndpoints(SHOP, 'a-1');
    expect(before.get('shop/checkout')?.endpoints.backends.size).toBe(1);
    expect(cache.snapshot().get('shop/checkout')?.endpoints.backends.size).toBe(0);
    cache.deleteService(SHOP);
    expect(cache.snapshot().size).toBe(0);
  });
});

it('I3 keep the object of listeners if a batch changes it and changes it back', () => {
  const cache = cacheOf();
  const told: Service[] = [];
  cache.subscribe({
    onEvents: (events) => {
      for (const { service: now, oldService } of events) {
        expect(oldService).toBe(told.at(-1));
        told.push(now);
      }
    },
  });
  const labels = (v: string): Service => service({ labels: ImmutableMap({ v }) });
  cache.updateService(labels('1'));
  cache.markSynced();
  cache.batch(() => {
    for (const v of ['2', '1']) cache.updateService(labels(v));
  });
  expect(cache.get(SHOP)?.service).toBe(told[0]);
  cache.updateService(labels('2'));
  expect(told.map((each) => each.labels.get('v'))).toEqual(['1', '2']);
});

describe('listeners', () => {
  it('receive the added, removed and changed backends of an event, without a pass over the others', () => {
    const many = Array.from({ length: 1_000 }, (_, i) => [`10.0.${i >> 8}.${i & 255}`, {}] as const);
    const cache = cacheOf();
    const received: string[][] = [];
    cache.subscribe({
      onEvents: (events) => {
        for (const event of events) {
          const changes = changedBackends(event);
          received.push(
            changes.length === many.length
              ? [`all ${changes.every(({ before }) => before === undefined) ? 'added' : 'removed'}`]
              : changes.map(({ before, after }) => `${before?.address} ${before?.weight} ${after?.weight}`),
          );
        }
      },
    });
    cache.updateEndpoints(slice('s', Object.fromEntries(many)));
    cache.updateService(service());
    const changed = { ...Object.fromEntries(many.slice(1)), '10.0.0.7': { weight: 5 } };
    cache.updateEndpoints(slice('s', changed));
    cache.updateService(service({ sessionAffinitySeconds: 7 }));
    cache.updateEndpoints(slice('s', Object.fromEntries(many)));
    cache.deleteService(SHOP);
    expect(received.map((changes) => changes.sort())).toEqual([
      ['all added'],
      ['10.0.0.0 100 undefined', '10.0.0.7 100 5'],
      [],
      ['10.0.0.7 5 100', 'undefined undefined 100'],
      ['all removed'],
    ]);
  });

  it('may write during a notification: it is reported after the current one, in order, to all listeners', () => {
    const cache = cacheOf();
    cache.subscribe({
      onEvents: (events) => {
        if (events.some((event) => event.endpoints.backends.size === 1)) {
          cache.updateEndpoints(slice('a-2', ['10.0.0.2']));
        }
      },
    });
    const told = transcript(cache);
    cache.updateService(service());
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    expect(told).toEqual([
      'update shop/checkout 10.0.0.1:8080',
      'update shop/checkout 10.0.0.1:8080 10.0.0.2:8080',
    ]);
  });

  it('may subscribe another one, which receives the current state and nothing twice', () => {
    const cache = cacheOf();
    let late: string[] = [];
    cache.subscribe({
      onEvents: () => {
        if (late.length === 0) late = transcript(cache);
      },
    });
    cache.updateService(service());
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    expect(late).toEqual(['update shop/checkout 10.0.0.1:8080']);
  });

  it('receive nothing after they have unsubscribed, not even the current notification', () => {
    const cache = cacheOf();
    const told: string[] = [];
    let end: (() => void) | undefined;
    cache.subscribe({ onEvents: () => end?.() });
    end = cache.subscribe({ onEvents: () => told.push('told') });
    cache.updateService(service());
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    expect(told).toEqual([]);
  });

  it('servicecache-write-in-replay: writes of a listener during its replay are reported after the replay', () => {
    const cache = cacheOf();
    for (const name of ['a', 'b']) cache.updateService(labelled(name, '1'));
    cache.markSynced();
    const heard: string[] = [];
    cache.subscribe({
      onEvents: (events) => {
        for (const { id, service: now } of events) {
          if (heard.length === 0) cache.updateService(labelled('b', '2'));
          heard.push(`${id.name}=${now.labels.get('v')}`);
        }
      },
      onSynced: () => heard.push('synced'),
      onInputsComplete: () => heard.push('complete'),
    });
    expect(heard).toEqual(['a=1', 'b=1', 'synced', 'complete', 'b=2']);
  });

  it('are notified once that the inputs are complete, even if they subscribe during that notification (regression: twice)', () => {
    const cache = cacheOf();
    cache.updateService(service());
    const heard: string[] = [];
    cache.subscribe({
      onEvents: () =>
        cache.subscribe({
          onEvents: () => heard.push('events'),
          onInputsComplete: () => heard.push('complete'),
        }),
    });
    cache.markSynced();
    expect(heard).toEqual(['events', 'complete']);
  });

  it('lose their subscription with a fault in their replay, and are notified (regression: missed the rest)', () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.markSynced();
    const heard: string[] = [];
    cache.subscribe({
      onEvents: () => {
        throw new Error('once');
      },
      onSynced: () => heard.push('synced'),
      onEnded: () => heard.push('ended'),
    });
    cache.deleteService(SHOP);
    expect(heard).toEqual(['ended']);
    expect(cache.status()).toMatchObject({ listeners: 0, listenerFaults: 1 });
  });

  it('lose it silently if they have no callback for it', () => {
    const cache = cacheOf();
    cache.markSynced();
    cache.subscribe({
      onEvents: () => {},
      onSynced: () => {
        throw new Error('once');
      },
    });
    expect(cache.status()).toMatchObject({ listeners: 0, listenerFaults: 1 });
  });

  it('receive only that the inputs are complete if there are no events', () => {
    const cache = cacheOf();
    const heard: string[] = [];
    cache.subscribe({
      onEvents: () => heard.push('events'),
      onInputsComplete: () => heard.push('complete'),
    });
    cache.markSynced();
    expect(heard).toEqual(['complete']);
  });

  it('async-and-throwing-listeners: a rejection is a fault of the listener, and does not end the process', async () => {
    const faults: unknown[] = [];
    const cache = cacheOf({ onListenerFault: (error) => faults.push(error) });
    const error = new Error('async listener');
    cache.subscribe({
      // @ts-expect-error: a promise is no result of a listener, and untyped callers may return one nevertheless
      async onEvents() {
        await Promise.resolve();
        throw error;
      },
    });
    cache.updateService(service());
    cache.markSynced();
    await new Promise((resolve) => setImmediate(resolve));
    expect(faults).toEqual([error]);
    expect(cache.status()).toMatchObject({ listeners: 1, listenerFaults: 1 });
  });

  it('throwing-on-reject: a callback that throws on a rejection is counted, and has no other effect', () => {
    const cache = cacheOf({
      onReject: () => {
        throw new Error('my logger failed');
      },
    });
    expect(cache.mergeExternalServiceUpdate(offer('own', ['10.0.0.1']))).toBe('invalid');
    expect(cache.status()).toMatchObject({ rejections: { total: 1 }, listenerFaults: 1 });
  });

  it('cannot subscribe in a batch, which may be rolled back', () => {
    const cache = cacheOf();
    expect(() => cache.batch(() => cache.subscribe({ onEvents: () => {} }))).toThrow('batch');
  });
});
