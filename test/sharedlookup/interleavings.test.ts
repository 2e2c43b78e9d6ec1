import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Prefix, parsePrefix, prefixRegister } from '../../src/net/prefix.ts';
import { SharedReader } from '../../src/sharedlookup/shared-reader.ts';
import { SharedTable } from '../../src/sharedlookup/shared-table.ts';
import { bundlePatched, importBundle, type Patch } from './support/patched.ts';

/** The classes of a table and its readers, or of a mutant. */
interface Classes {
  readonly SharedTable: typeof SharedTable;
  readonly SharedReader: typeof SharedReader;
}

const PREFIXES = [
  ...['0.0.0.0/0', '10.0.0.0/8', '10.1.0.0/16', '10.1.2.0/24', '10.1.2.3/32', '10.1.2.4/32', '10.9.0.0/28'],
  ...['::/0', 'fd00::/16', 'fd00::/64', 'fd00::1/128', 'fd00::2/128', 'fd00:0:0:0:1::/80'],
  // With these, IPv4 has leaves of depth 2 and more.
  ...Array.from({ length: 80 }, (_, i) => `10.1.3.${i}/32`),
].map((text) => Prefix.parse(text) ?? expect.fail(text));
const REGISTERS = PREFIXES.map((prefix) => {
  const register = prefixRegister();
  parsePrefix(String(prefix), register);
  return register;
});
const ADDRESSES = [
  ...['10.1.3.1', '10.1.3.2', '10.1.3.30', '10.1.3.40', '10.1.3.70'],
  '10.1.2.3',
  '10.1.2.4',
  '10.1.2.9',
  '10.7.7.7',
  '10.9.0.1',
  'fd00::1',
  'fd00::2',
  'fd00::1:0:0:9',
];

/** A published state: identities by index of their prefixes. */
type State = ReadonlyMap<number, number>;

/** For each address the indexes of the prefixes that contain it, longest first. */
const CONTAINING: ReadonlyMap<string, readonly number[]> = new Map(
  ADDRESSES.map((ip) => {
    const address = Prefix.parse(ip) ?? expect.fail(ip);
    const containing = [...PREFIXES.entries()].filter(([, prefix]) => prefix.contains(address));
    return [ip, containing.sort(([, a], [, b]) => b.length - a.length).map(([at]) => at)];
  }),
);

/** Returns the longest match, by a scan of a list. */
function naiveLookup(state: State, ip: string): number | undefined {
  const longest = CONTAINING.get(ip)?.find((at) => state.has(at));
  return longest === undefined ? undefined : state.get(longest);
}

/** Writes one prefix after another, and records each published state. */
class Writer {
  readonly table: SharedTable;
  readonly published: State[] = [new Map()];
  #next = new Map<number, number>();
  #identity = 0;

  constructor(table: SharedTable) {
    this.table = table;
  }

  step(step: WriterStep): void {
    this.table.begin();
    if (step === 'publish') {
      this.published.push(new Map(this.#next));
      this.table.publish(this.published.length - 1);
    } else if (step === 'fill') for (const at of PREFIXES.keys()) this.#set(at);
    else if (step === 'empty') for (const at of PREFIXES.keys()) this.#remove(at);
    else if (step < PREFIXES.length) this.#set(step);
    else this.#remove(step - PREFIXES.length);
  }

  #set(at: number): void {
    const identity = ++this.#identity;
    const register = REGISTERS[at] ?? expect.fail();
    const hostIP = identity % 3 === 0 ? undefined : `192.0.2.${identity % 7}`;
    // Most changes keep the host.
    if (identity % 4 === 0 || !this.table.setIdentity(register, identity))
      this.table.set(register, { identity, hostIP, encryptKey: 0 });
    this.#next.set(at, identity);
  }

  #remove(at: number): void {
    if (this.table.remove(REGISTERS[at] ?? expect.fail()) !== this.#next.delete(at))
      expect.fail(`remove ${at}`);
  }
}

/** `fill` splits leaves, `empty` merges them. */
type WriterStep = 'publish' | 'fill' | 'empty' | number;
const writerStep: fc.Arbitrary<WriterStep> = fc.oneof(
  { weight: 2, arbitrary: fc.constant('publish' as const) },
  { weight: 3, arbitrary: fc.nat(PREFIXES.length - 1) },
  { weight: 1, arbitrary: fc.constantFrom('fill' as const, 'empty' as const) },
  { weight: 1, arbitrary: fc.integer({ min: PREFIXES.length, max: 2 * PREFIXES.length - 1 }) },
);

/** More than all lookups of a run read together. */
const MANY_READS = 100_000;

/** Steps of the writer before the next read of a word. */
const turns = fc.array(fc.array(writerStep, { maxLength: 8 }), { minLength: 1, maxLength: 40, size: 'max' });
const asked = fc.array(fc.nat(ADDRESSES.length - 1), { minLength: 1, maxLength: 12 });

/**
 * A reader and a writer that take turns: before each word that the reader reads, the writer takes some steps. Every
 * result must be that of one published state, published at the start of the call or later, and never older than the
 * result before.
 */
function neverTorn({ SharedTable, SharedReader }: Classes): fc.IProperty<unknown> {
  return fc.property(turns, asked, fc.boolean(), (steps, addresses, many) => {
    const writer = new Writer(new SharedTable(1 << 20, 7));
    for (let at = 0; at < PREFIXES.length; at += 2) writer.step(at);
    writer.step('publish');
    const queue = steps.values();
    let reads = 0;
    const map = (buffer: SharedArrayBuffer, words: number): Int32Array =>
      new Proxy(new Int32Array(buffer, 0, words), {
        get: (target, index) => {
          if (++reads > MANY_READS) expect.fail('no lookup ends');
          for (const step of queue.next().value ?? []) writer.step(step);
          return Reflect.get(target, index);
        },
      });
    const reader = new SharedReader(writer.table.buffer, map);
    let oldest = 0;
    const check = (ip: string, result: number | undefined): void => {
      const { published } = writer;
      const found = published.findIndex((state, at) => at >= oldest && naiveLookup(state, ip) === result);
      if (found < 0) {
        const identities = published.map((state) => naiveLookup(state, ip));
        expect.fail(`${ip}: ${result} is none of ${JSON.stringify(identities)} since ${oldest}`);
      }
      oldest = found;
    };
    for (const index of addresses) {
      const ip = ADDRESSES[index] ?? expect.fail();
      const start = writer.published.length - 1;
      oldest = Math.max(oldest, start);
      if (many) {
        const identities = new Uint32Array(addresses.length);
        reader.lookupMany(
          addresses.map((each) => ADDRESSES[each] ?? ''),
          identities,
        );
        identities.forEach((identity, at) => {
          check(ADDRESSES[addresses[at] ?? 0] ?? '', identity === 0 ? undefined : identity);
        });
      } else check(ip, reader.lookupIdentity(ip));
    }
  });
}

/** Finds each mutant early. If other cases are needed, there are many more. */
const MUTANT_RUNS: fc.Parameters<unknown> = { numRuns: 5_000, seed: 4, endOnFailure: true };

const MUTANTS: readonly (Patch & { readonly name: string })[] = [
  {
    name: 'a reader that does not check the sequence',
    file: 'shared-reader.ts',
    text: 'isRecent(batch, started) && ',
    by: '',
  },
  {
    name: 'a reader that reads leaves of the batch that is written',
    file: 'shared-reader.ts',
    text: 'stamp !== 0 && stamp !== stampOf(batch)',
    by: 'stamp === -7',
  },
  {
    name: 'a reader that accepts one more batch',
    file: 'layout.ts',
    text: '& BATCH_MASK) <= 1',
    by: '& BATCH_MASK) <= 2',
  },
  {
    name: 'a heap that reuses blocks at once',
    file: 'shared-memory.ts',
    text: 'this.#released.push(lines);',
    by: 'this.#released.push(lines); this.begin();',
  },
  {
    name: 'a writer that changes published leaves',
    file: 'prefix-leaves.ts',
    text: 'if (words[leaf + LEAF.stamp] === this.#stamp) return reference;',
    by: 'return reference;',
  },
  {
    name: 'a writer that keeps no reference to the replaced leaf',
    file: 'prefix-leaves.ts',
    text: '(words[from + LEAF.before] ?? 0) : replaced',
    by: '0 : 0',
  },
  {
    name: 'a reader that uses the lower one of two merged leaves',
    file: 'layout.ts',
    text: 'isHigh ? LEAF.beforeHigh : LEAF.before',
    by: 'LEAF.before',
  },
  {
    name: 'a writer that merges merged leaves in the same batch',
    file: 'prefix-leaves.ts',
    text: 'return before === words[leaf + LEAF.beforeHigh] ? before : 0;',
    by: 'return before;',
  },
  {
    name: 'a writer that splits a leaf merged in the same batch without a choice of its origin',
    file: 'prefix-leaves.ts',
    text: 'words[leafOf(high) + LEAF.before] = words[leafOf(high) + LEAF.beforeHigh] ?? 0;',
    by: '',
  },
  {
    name: 'a writer that keeps old stamps',
    file: 'prefix-leaves.ts',
    text: 'words[this.#stamped.at(i) + LEAF.stamp] = 0;',
    by: '',
  },
  {
    name: 'a reader that ignores marks',
    file: 'shared-reader.ts',
    text: 'slot === 0 || !isMarked(words, slot)',
    by: 'slot >= 0',
  },
  {
    name: 'a writer that changes an identity at once',
    file: 'changed-values.ts',
    text: 'words[pair + 1] = identity;',
    by: 'words[pair + 1] = words[slot + SLOT.identity] = identity;',
  },
  {
    name: 'a writer that never writes a changed identity to its slot',
    file: 'changed-values.ts',
    text: 'words[(words[pair] ?? 0) + SLOT.identity] = words[pair + 1] ?? 0;',
    by: 'continue;',
  },
  {
    name: 'a writer that copies leaves without changed identities',
    file: 'changed-values.ts',
    text: 'words[copy + SLOT.identity] = words[pair + 1] ?? 0;',
    by: '',
  },
  {
    name: 'a writer that keeps the pairs of earlier batches',
    file: 'changed-values.ts',
    text: '    words[pair] = 0;',
    by: '',
  },
  {
    name: 'a filter that deletes lengths that readers need',
    file: 'length-filter.ts',
    text: 'if (count === 0) this.#unused.push(key);',
    by: 'if (count === 0) this.#setBit(key, false);',
  },
];

describe('a lookup between the steps of the writer', () => {
  it('returns one published state, whatever the steps are', () => {
    fc.assert(neverTorn({ SharedTable, SharedReader }));
  });

  it.each(MUTANTS)('is torn or stale with $name', async (patch) => {
    const contents =
      "export * from './shared-table.ts';\nexport { SharedReader } from './shared-reader.ts';\n";
    const mutant = await importBundle<Classes>(await bundlePatched(contents, patch));
    expect(fc.check(neverTorn(mutant), MUTANT_RUNS).failed).toBe(true);
  });
});
