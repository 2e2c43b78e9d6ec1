import { describe, expect, it } from 'vitest';
import type { ServiceSink } from '../../src/clustermesh/engines.ts';
import {
  identityObserver,
  ipObserver,
  nodeObserver,
  serviceObserver,
  sliceObserver,
} from '../../src/clustermesh/observers.ts';
import type { ClusterEndpointSlice } from '../../src/model/cluster-endpoint-slice.ts';
import type { ClusterNode } from '../../src/model/cluster-node.ts';
import type { ClusterService } from '../../src/model/cluster-service.ts';
import { IdentityCache } from '../../src/model/identity-cache.ts';
import { parseLabels } from '../../src/model/labels.ts';
import type { NumericIdentity } from '../../src/model/numeric-identity.ts';

/** Records every call in order. */
class Calls {
  readonly made: unknown[] = [];

  to(name: string): (...given: readonly unknown[]) => void {
    return (...given) => void this.made.push([name, ...given]);
  }
}

describe('the IPs of a cluster', () => {
  const calls = new Calls();
  const batch = <T>(write: () => T): T => {
    calls.made.push('(');
    const result = write();
    calls.made.push(')');
    return result;
  };
  const sink = {
    upsert: calls.to('upsert'),
    delete: calls.to('delete'),
    withdraw: calls.to('withdraw'),
    batch,
  };
  const writer = { source: 'clustermesh', owner: 'a' } as const;
  const observer = ipObserver(sink, writer, 6 as NumericIdentity);

  it('are claims of the cluster, batch by batch; the host of another node is a remote node', () => {
    const pair = { hostIP: '192.0.2.1', encryptKey: 3 };
    observer.batch?.(() => {
      observer.onUpdate('10.0.0.1', { key: '10.0.0.1', identity: 300, ...pair });
      observer.onUpdate('10.0.0.2', { key: '10.0.0.2', identity: 1, encryptKey: 0 });
      observer.onDelete('10.0.0.3');
    });
    expect(calls.made).toEqual([
      '(',
      ['upsert', '10.0.0.1', { ...writer, identity: 300, ...pair, k8s: undefined }],
      ['upsert', '10.0.0.2', { ...writer, identity: 6, hostIP: undefined, encryptKey: 0, k8s: undefined }],
      ['delete', '10.0.0.3', writer],
      ')',
    ]);
  });
});

it('nodes of a cluster are written with the source of its keys', () => {
  const calls = new Calls();
  const sink = {
    nodeUpdated: calls.to('updated'),
    nodeDeleted: calls.to('deleted'),
    withdraw: calls.to('w'),
  };
  const observer = nodeObserver(sink, 'a', 'clustermesh');
  const node = { cluster: 'a', name: 'n1', addresses: [] } as unknown as ClusterNode;
  observer.onUpdate('n1', node);
  observer.onDelete('n1');
  expect(calls.made).toEqual([
    ['updated', { source: 'clustermesh', ...node }],
    ['deleted', { cluster: 'a', name: 'n1', source: 'clustermesh' }],
  ]);
});

/** Returns a sink that records every call. */
function serviceSink(calls: Calls): ServiceSink {
  return {
    mergeExternalServiceUpdate: calls.to('update'),
    mergeExternalServiceDelete: calls.to('delete'),
    mergeExternalSliceUpdate: calls.to('update slice'),
    mergeExternalSliceDelete: calls.to('delete slice'),
    withdrawCluster: calls.to('withdraw'),
  };
}

describe('the endpoint slices of a cluster', () => {
  const slice = (name: string, service: string): ClusterEndpointSlice =>
    ({
      cluster: 'a',
      namespace: 'ns',
      name,
      labels: new Map([['kubernetes.io/service-name', service]]),
    }) as unknown as ClusterEndpointSlice;

  it('are merged and deleted under their service', () => {
    const calls = new Calls();
    const observer = sliceObserver(serviceSink(calls), 'a');
    observer.onUpdate('ns/s-1', slice('s-1', 'web'));
    observer.onUpdate('ns/s-2', slice('s-2', 'web'));
    observer.onDelete('ns/s-1');
    observer.onDelete('ns/s-2');
    observer.onDelete('ns/s-2');
    expect(calls.made.slice(2)).toEqual([
      ['delete slice', { cluster: 'a', id: { namespace: 'ns', name: 'web' }, name: 's-1' }],
      ['delete slice', { cluster: 'a', id: { namespace: 'ns', name: 'web' }, name: 's-2' }],
    ]);
  });

  it('leave a service when their label names another one', () => {
    const calls = new Calls();
    const observer = sliceObserver(serviceSink(calls), 'a');
    observer.onUpdate('ns/s-1', slice('s-1', 'web'));
    observer.onUpdate('ns/s-1', slice('s-1', 'api'));
    expect(calls.made.at(-1)).toEqual([
      'delete slice',
      { cluster: 'a', id: { namespace: 'ns', name: 'web' }, name: 's-1' },
    ]);
  });
});

describe('the services of a cluster', () => {
  const service = { cluster: 'a', namespace: 'ns', name: 'web', shared: true } as unknown as ClusterService;

  it('are merged and deleted', () => {
    const calls = new Calls();
    const sink = serviceSink(calls);
    const observer = serviceObserver(sink, 'a');
    observer.onUpdate('ns/web', service);
    observer.onUpdate('ns/web', { ...service, shared: false });
    observer.onDelete('ns/web');
    observer.onDelete('no-service');
    expect(calls.made).toEqual([
      ['update', service],
      ['update', { ...service, shared: false }],
      ['delete', { cluster: 'a', namespace: 'ns', name: 'web' }],
    ]);
  });
});

it('identities of a cluster are in its cache until they are deleted', () => {
  const identities = new IdentityCache();
  const observer = identityObserver(identities);
  const labels = parseLabels('k8s:app=web;') ?? [];
  observer.onUpdate('300', { id: 300 as NumericIdentity, labels });
  expect(identities.lookupByID(300)).toEqual(labels);
  observer.onDelete('300');
  expect(identities.lookupByID(300)).toBeUndefined();
});
