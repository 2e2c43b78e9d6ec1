import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isKubernetesObject, KnownObjects, type LastPut } from '../../../src/k8s/reflector/known-objects.ts';
import { type KubernetesObject, objectVersion, type ResourceEvent } from '../../../src/k8s/resource.ts';
import { RecordingSink } from '../support/recording-sink.ts';

type Kept = KubernetesObject & { readonly kept?: boolean };

type Happening =
  | { readonly do: 'list'; readonly objects: readonly Kept[]; readonly end: string | undefined }
  | { readonly do: 'put' | 'delete'; readonly object: Kept }
  | { readonly do: 'bookmark'; readonly version: string }
  | { readonly do: 'back' };

const version = fc.constantFrom('1', '2', '3', '4');
const name = fc.constantFrom('a', 'b', 'c');
const uid = fc.constantFrom('first', 'second');
const object: fc.Arbitrary<Kept> = fc.oneof(
  fc.record({ metadata: fc.record({ name, uid, resourceVersion: version }) }),
  fc.record({ metadata: fc.record({ name, namespace: fc.constant('n'), uid, resourceVersion: version }) }),
);
const pathOf = ({ metadata: { namespace = '', name: own } }: KubernetesObject): string =>
  `${namespace}/${own}`;

const happening: fc.Arbitrary<Happening> = fc.oneof(
  fc.record({
    do: fc.constant('list' as const),
    objects: fc.uniqueArray(object, { selector: pathOf, maxLength: 5 }),
    end: fc.option(version, { nil: undefined }),
  }),
  fc.record({ do: fc.constantFrom('put' as const, 'delete' as const), object }),
  fc.record({ do: fc.constantFrom('put' as const, 'delete' as const), object }),
  fc.record({ do: fc.constant('bookmark' as const), version }),
  fc.constant<Happening>({ do: 'back' }),
);

/** A naive model: the objects known after each event. */
class NaiveKnown {
  objects: ReadonlyMap<string, KubernetesObject> = new Map();
  version = '';
  last: KubernetesObject | undefined;

  happen(what: Happening): void {
    if (what.do === 'bookmark') this.version = what.version;
    else if (what.do === 'back') this.version = this.last?.metadata.resourceVersion ?? this.version;
    else if (what.do === 'list') this.#list(what.objects, what.end);
    else this.#event(what.do, what.object);
  }

  #list(objects: readonly KubernetesObject[], end: string | undefined): void {
    const listed = objects.map((one) => [pathOf(one), one] as const);
    this.objects = new Map(end === undefined ? [...this.objects, ...listed] : listed);
    if (end === undefined) return;
    this.version = end;
    this.last = undefined;
  }

  #event(type: 'put' | 'delete', about: KubernetesObject): void {
    const { uid: life, resourceVersion } = about.metadata;
    this.version = resourceVersion;
    this.last = type === 'put' ? about : undefined;
    const path = pathOf(about);
    if (type === 'delete' && this.objects.get(path)?.metadata.uid !== life) return;
    const others = [...this.objects].filter(([other]) => other !== path);
    this.objects = new Map(type === 'put' ? [...others, [path, about]] : others);
  }
}

/** Returns the resulting events: those of one call are a batch. */
function* batchesOf(known: KnownObjects, what: Happening): Generator<readonly ResourceEvent[], void, void> {
  if (what.do === 'put') yield known.put(what.object);
  else if (what.do === 'delete') yield known.delete(what.object);
  else if (what.do === 'bookmark') known.advanceTo(what.version);
  else if (what.do === 'back') known.backToLastPut();
  else if (what.do === 'list') {
    known.beginList();
    for (const one of what.objects) yield known.putListed(one);
    if (what.end !== undefined) for (const event of known.endList(what.end)) yield [event];
  }
}

/** Returns the last put after the put of this object. */
function lastPutOf({ metadata }: KubernetesObject): LastPut {
  const { name: own, namespace, uid: life, resourceVersion } = metadata;
  return { name: own, namespace, uid: life, version: resourceVersion };
}

describe('the known objects of a reflector', () => {
  it('return the difference and the position: lists delete at their end only, deletes only their own uid (K 6, K 10)', () => {
    fc.assert(
      fc.property(fc.array(happening, { maxLength: 12 }), (happenings) => {
        const known = new KnownObjects((one) => ({ ...one, kept: true }));
        const naive = new NaiveKnown();
        const sink = new RecordingSink();
        for (const what of happenings) {
          for (const events of batchesOf(known, what)) {
            if (events.length > 0) sink.apply(events);
            for (const { type, object: told } of events) expect('kept' in told).toBe(type === 'delete');
          }
          naive.happen(what);
          expect(sink.breaches).toEqual([]);
          const versions = [...naive.objects].map(([path, { metadata }]) => [path, metadata.resourceVersion]);
          expect([...sink.versions].sort()).toEqual(versions.sort());
          const { size, version: at, lastPut } = known;
          expect({ size, at, lastPut }).toEqual({
            size: naive.objects.size,
            at: naive.version,
            lastPut: naive.last && lastPutOf(naive.last),
          });
        }
      }),
    );
  });

  it('keep the whole object unless a trim function is given', () => {
    const known = new KnownObjects();
    const told = { metadata: { name: 'a', uid: 'u', resourceVersion: '1' }, spec: { size: 7 } };
    known.put(told);
    expect(known.delete({ ...told, spec: {} })).toEqual([{ type: 'delete', object: told }]);
  });
});

describe('an object of which only the uid is kept', () => {
  it.each([undefined, 'n'])(
    'is handed out by name when it is gone, by a watch or a list; namespace %s',
    (namespace) => {
      const place = namespace === undefined ? {} : { namespace };
      const life = (uid: string): KubernetesObject => ({
        metadata: { name: 'a', ...place, uid, resourceVersion: uid },
      });
      const told = { ...life('1'), spec: { size: 7 } };
      const known = new KnownObjects(objectVersion);
      expect(known.put(told)).toEqual([{ type: 'put', object: told }]);
      expect(known.put(told)).toEqual([]);
      expect(known.put(life('2'))[0]).toEqual({ type: 'delete', object: life('1') });
      expect(known.delete({ ...life('2'), spec: {} })).toEqual([{ type: 'delete', object: life('2') }]);
      known.put(told);
      known.beginList();
      expect([...known.endList('9')]).toEqual([{ type: 'delete', object: life('1') }]);
    },
  );
});

describe('an object that can be followed', () => {
  const metadata = { name: 'a', namespace: 'n', uid: 'u', resourceVersion: '1' };

  it('has a name, a uid and a version, and may be in a namespace', () => {
    expect(isKubernetesObject({ metadata })).toBe(true);
    expect(isKubernetesObject({ metadata: { ...metadata, namespace: undefined } })).toBe(true);
  });

  it.each(['name', 'namespace', 'uid', 'resourceVersion'])('has a text as %s that is not empty', (field) => {
    for (const value of ['', 7, null, {}])
      expect(isKubernetesObject({ metadata: { ...metadata, [field]: value } })).toBe(false);
  });

  it('has a version other than 0', () => {
    expect(isKubernetesObject({ metadata: { ...metadata, resourceVersion: '0' } })).toBe(false);
  });

  it.each([undefined, null, 7, 'metadata'])('is not %s, nor has that as its metadata', (value) => {
    expect(isKubernetesObject(value)).toBe(false);
    expect(isKubernetesObject({ metadata: value })).toBe(false);
  });
});
