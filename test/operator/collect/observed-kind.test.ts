import { describe, expect, it } from 'vitest';
import type {
  KubernetesObject,
  ResourceEvent,
  ResourceSink,
  ResourceSource,
  ResourceStatus,
} from '../../../src/k8s/resource.ts';
import { field, isBeingDeleted, items, timeAt } from '../../../src/operator/collect/field.ts';
import { ObservedKind, objectKey, optionalKind } from '../../../src/operator/collect/observed-kind.ts';
import { notServedText } from '../../../src/operator/duty-report.ts';

const PODS = { group: '', version: 'v1', plural: 'pods' };

function object(name: string, more: object = {}, namespace: string | undefined = 'shop'): KubernetesObject {
  const metadata = { name, uid: `u-${name}`, resourceVersion: '1' };
  return { metadata: namespace === undefined ? metadata : { ...metadata, namespace }, ...more };
}

/** A source whose events the test sends. */
class Source {
  status: Partial<ResourceStatus> = { state: 'listing', listed: false };
  readonly sinks: ResourceSink[] = [];
  readonly signals: (AbortSignal | undefined)[] = [];
  fields: readonly string[] | undefined;

  readonly source: Pick<ResourceSource, 'follow'> = {
    follow: (_kind, sink, options) => {
      this.sinks.push(sink);
      this.signals.push(options?.signal);
      this.fields = options?.fields;
      return {
        status: () => this.status as ResourceStatus, // the part of it that is read
        waitForListed: () => Promise.resolve(),
        stopped: Promise.resolve(),
      };
    },
  };

  observed(
    trim: (one: KubernetesObject) => KubernetesObject = (one) => one,
    fields?: readonly string[],
  ): ObservedKind {
    return new ObservedKind(this.source as ResourceSource, PODS, trim, fields);
  }

  tell(...events: readonly ResourceEvent[]): void {
    this.sinks.at(-1)?.apply(events);
  }
}

describe('a kind that collectors observe', () => {
  it('is followed once for all users, and until the last of them has ended', () => {
    const source = new Source();
    const kind = source.observed();
    expect(kind.notReadyReason()).toBe('pods/v1 is not watched');
    const [one, two] = [new AbortController(), new AbortController()];
    kind.follow(AbortSignal.abort());
    expect(source.sinks).toHaveLength(0);
    kind.follow(one.signal);
    kind.follow(two.signal);
    expect(source.sinks).toHaveLength(1);
    source.tell({ type: 'put', object: object('a') });
    one.abort();
    expect([source.signals[0]?.aborted, kind.objects.size]).toEqual([false, 1]);
    two.abort();
    expect([source.signals[0]?.aborted, kind.objects.size]).toEqual([true, 0]);
    expect([kind.notReadyReason(), kind.isMissing]).toEqual(['pods/v1 is not watched', false]);
    kind.follow(new AbortController().signal);
    expect(source.sinks).toHaveLength(2);
  });

  it('contains existing objects, trimmed, and delivers events as they arrive', () => {
    const source = new Source();
    const kind = source.observed((one) => ({ metadata: one.metadata }));
    const [ended, left] = [new AbortController(), new AbortController()];
    kind.follow(ended.signal);
    const told: unknown[] = [];
    kind.listen(
      (events) => told.push(...events.map(({ type, object: { metadata } }) => `${type} ${metadata.name}`)),
      left.signal,
    );
    source.tell(
      { type: 'put', object: object('a', { spec: 1 }) },
      { type: 'put', object: object('n', {}, '') },
    );
    source.tell({ type: 'put', object: object('b') }, { type: 'delete', object: object('a') });
    expect([...kind.objects]).toEqual([
      ['/n', { metadata: object('n', {}, '').metadata }],
      ['shop/b', { metadata: object('b').metadata }],
    ]);
    expect(told).toEqual(['put a', 'put n', 'put b', 'delete a']);
    left.abort();
    source.tell({ type: 'delete', object: object('b') });
    expect([told.length, kind.objects.size]).toEqual([4, 1]);
    expect(objectKey({ metadata: { name: 'x', uid: 'u', resourceVersion: '1' } })).toBe('/x');
  });

  it('is decoded with all fields, or only with the given ones and its times', () => {
    const source = new Source();
    source.observed().follow(new AbortController().signal);
    expect(source.fields).toBeUndefined();
    source.observed(undefined, ['spec']).follow(new AbortController().signal);
    expect(source.fields).toEqual(['metadata.creationTimestamp', 'metadata.deletionTimestamp', 'spec']);
  });

  it('has no listener whose signal has already fired (regression: it received the events of later runs)', () => {
    const source = new Source();
    const kind = source.observed();
    kind.follow(new AbortController().signal);
    let calls = 0;
    kind.listen(() => calls++, AbortSignal.abort());
    source.tell({ type: 'put', object: object('a') });
    expect(calls).toBe(0);
  });

  it.each([
    ['pods/v1', 'it is too old'],
    ['endpointslices.discovery.k8s.io/v1', 'it is too old'],
    ['ciliumnodes.cilium.io/v2', 'its CRD is not installed'],
    ['serviceexports.multicluster.x-k8s.io/v1alpha1', 'its CRD is not installed'],
  ])(
    'names the CRD of a kind only if it has one (regression: a CRD of EndpointSlices): %s',
    (kind, reason) => {
      expect(notServedText(kind)).toBe(`the server does not serve ${kind}: ${reason}`);
    },
  );

  const why = { code: 'forbidden', message: 'no right', at: 0 };
  it.each<readonly [Partial<ResourceStatus>, string | undefined, string | undefined]>([
    [{ state: 'missing', listed: true }, 'the server does not serve pods/v1: it is too old', undefined],
    [{ state: 'forbidden', listed: true, lastFailure: why }, 'pods/v1: no right', 'pods/v1: no right'],
    [
      { state: 'listing', listed: false },
      'the list of pods/v1 is not complete',
      'the list of pods/v1 is not complete',
    ],
    [
      { state: 'waiting', listed: false, lastFailure: why },
      ...([
        'the list of pods/v1 is not complete: no right',
        'the list of pods/v1 is not complete: no right',
      ] as const),
    ],
    [
      { state: 'listing', listed: true },
      ...([
        'pods/v1 is not watched: the watch is being restarted',
        'pods/v1 is not watched: the watch is being restarted',
      ] as const),
    ],
    [
      { state: 'waiting', listed: true, lastFailure: why },
      ...(['pods/v1 is not watched: no right', 'pods/v1 is not watched: no right'] as const),
    ],
    [{ state: 'watching', listed: true, lastFailure: why }, undefined, undefined],
  ])('returns the reason why its objects may be incomplete: %j', (status, needed, optionally) => {
    const source = new Source();
    const kind = source.observed();
    const signal = new AbortController().signal;
    optionalKind(kind).follow(signal);
    source.status = status;
    expect([kind.notReadyReason(), optionalKind(kind).notReadyReason()]).toEqual([needed, optionally]);
    expect(kind.isMissing).toBe(status.state === 'missing');
    expect(source.sinks).toHaveLength(1);
  });
});

describe('the kept part of an object', () => {
  it('is found by a path of own names, as a list, or as a time', () => {
    const value = {
      a: { b: [{ c: 1 }], time: '1970-01-01T00:00:01Z', none: null, bad: '1970-02-30T00:00:00Z', n: 7 },
    };
    expect([field(value, 'a', 'b'), field(value, 'a', 'x', 'y'), field(value, 'a', 'none')]).toEqual([
      ...[value.a.b, undefined, undefined],
    ]);
    expect([field(value, 'toString'), field(undefined, 'a'), field(value)]).toEqual([
      undefined,
      undefined,
      value,
    ]);
    expect([items(value, 'a', 'b'), items(value, 'a'), items(null, 'a')]).toEqual([[{ c: 1 }], [], []]);
    expect(['time', 'bad', 'n', 'x'].map((name) => timeAt(value, 'a', name))).toEqual([
      ...[1000, undefined, undefined, undefined],
    ]);
    expect([
      isBeingDeleted({ metadata: { deletionTimestamp: 'now' } }),
      isBeingDeleted({ metadata: {} }),
      isBeingDeleted(null),
    ]).toEqual([...[true, false, false]]);
  });
});
