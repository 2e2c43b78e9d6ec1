import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  assignSlots,
  changedSlots,
  endpointText,
  parseEndpoint,
  serviceCapacity,
  serviceMapShapes,
  without,
} from '../../../../src/datapath/linux/services/service-layout.ts';

describe('the maps of services', () => {
  it('have room for 10,000 services of 10 distinct backends each by default (regression: 65,536 backends)', () => {
    const { backends, slots } = serviceCapacity();
    expect(backends).toBeGreaterThanOrEqual(100_000);
    // Cluster IP, any other port of it, and four node addresses.
    expect(slots).toBeGreaterThanOrEqual(10_000 * (5 * 11 + 1));
  });

  it('have the shapes that the programs expect', () => {
    const shapesOf = (family: 4 | 6) =>
      Object.entries(serviceMapShapes(family, serviceCapacity(7))).map(
        ([name, { type, keySize, valueSize, maxEntries }]) => [name, type, keySize, valueSize, maxEntries],
      );
    expect(shapesOf(4)).toEqual([
      ['services', 'hash', 12, 12, 35],
      ['backends', 'hash', 4, 12, 7],
      ['members', 'hash', 12, 4, 35],
      ['clients', 'lruHash', 24, 16, 4],
      ['peers', 'lruHash', 24, 8, 4],
      ['datagrams', 'lruHash', 24, 8, 4],
    ]);
    expect(shapesOf(6)).toEqual([
      ['services', 'hash', 24, 12, 35],
      ['backends', 'hash', 4, 24, 7],
      ['members', 'hash', 24, 4, 35],
      ['clients', 'lruHash', 32, 16, 4],
      ['peers', 'lruHash', 32, 20, 4],
      ['datagrams', 'lruHash', 32, 20, 4],
    ]);
  });
});

describe('an endpoint', () => {
  it.each([
    ['10.0.0.1:80/TCP', { ip: '10.0.0.1', port: 80, protocol: 6 }],
    ['[fd00::1]:53/UDP', { ip: 'fd00::1', port: 53, protocol: 17 }],
    ['10.0.0.1:80/99', { ip: '10.0.0.1', port: 80, protocol: 99 }],
  ])('%s is parsed', (text, endpoint) => {
    expect(parseEndpoint(text)).toEqual(endpoint);
  });

  it.each(['10.0.0.1', 'fd00::1:80/TCP/', '[fd00::1:80/TCP', ''])('"%s" is rejected', (text) => {
    expect(() => parseEndpoint(text)).toThrow(`${text} is not a frontend`);
  });

  it('is printed from the address and the port after it, in network byte order', () => {
    const view = new DataView(new ArrayBuffer(19));
    view.setUint8(1, 10);
    view.setUint8(4, 1);
    view.setUint16(5, 80);
    expect(endpointText(view, 1, 4, 6)).toBe('10.0.0.1:80/TCP');
    view.setUint8(1, 0xfd);
    view.setUint8(5, 0);
    view.setUint8(6, 0);
    view.setUint8(4, 0);
    view.setUint8(16, 1);
    view.setUint16(17, 53);
    expect(endpointText(view, 1, 6, 17)).toBe('[fd00::1]:53/UDP');
  });
});

const backends = fc.uniqueArray(fc.constantFrom(...'abcdefgh'), { maxLength: 8 }).map((list) => list.sort());
/** The slots of a frontend. Those read from a kernel may be without a known backend. */
const slots = fc.array(fc.option(fc.constantFrom(...'abcdefgh'), { nil: undefined }), { maxLength: 10 });

/** Returns the slots after the changes, as many as there are backends. */
function applied(
  previous: readonly (string | undefined)[],
  changes: readonly (readonly [index: number, backend: string])[],
  count: number,
): readonly (string | undefined)[] {
  const result = previous.slice(0, count);
  for (const [index, backend] of changes) result[index] = backend;
  return result;
}

describe('the slots of a frontend', () => {
  it('have each backend once, and those which remain within the count stay in their slots', () =>
    fc.assert(
      fc.property(slots, backends, (previous, desired) => {
        const assigned = assignSlots(previous, desired);
        expect(assigned.toSorted()).toEqual(desired);
        const seen = new Set<string>();
        for (const [index, text] of previous.slice(0, desired.length).entries()) {
          if (text === undefined || seen.has(text) || !desired.includes(text)) continue;
          seen.add(text);
          expect(assigned[index]).toBe(text);
        }
        const changes = changedSlots(previous, desired);
        expect(applied(previous, changes, desired.length)).toEqual(assigned);
        for (const [index, text] of changes) expect(previous[index]).not.toBe(text);
      }),
    ));

  it('change alike if the former backends are known', () =>
    fc.assert(
      fc.property(backends, backends, fc.integer({ min: 0 }), (former, desired, seed) => {
        const from = former.length === 0 ? 0 : seed % former.length;
        const previous = [...former.slice(from), ...former.slice(0, from)];
        const changes = changedSlots(previous, desired, former);
        expect(applied(previous, changes, desired.length).toSorted()).toEqual(desired);
        expect(changes).toHaveLength(changedSlots(previous, desired).length);
      }),
    ));

  it('differ by the texts of a sorted list which another one lacks', () =>
    fc.assert(
      fc.property(backends, backends, (list, others) => {
        expect(without(list, others)).toEqual(list.filter((text) => !others.includes(text)));
      }),
    ));
});
