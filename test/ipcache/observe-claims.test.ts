import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EFFECT } from '../../src/ipcache/claims/claim-state.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { CompleteClaim } from '../../src/ipcache/row-reader.ts';
import { formatKey } from '../../src/net/prefix.ts';
import { attributes, NaiveIPCache, writerName } from './support/naive-ipcache.ts';
import { apply, applyNaively, history, KEYS } from './support/operations.ts';

/** Folds the changes of an observer, and complains of changes that contradict its state. */
function foldingObserver(cache: IPCache): {
  readonly claims: Map<string, Map<string, string>>;
  readonly effective: Map<string, string>;
  readonly complaints: string[];
} {
  const claims = new Map<string, Map<string, string>>();
  const effective = new Map<string, string>();
  const complaints: string[] = [];
  const text = (claim: CompleteClaim | undefined): string | undefined => claim && attributes(claim);
  cache.observeClaims((register, writer, before, after, effect) => {
    const key = formatKey(register);
    const held = claims.get(key) ?? new Map<string, string>();
    const name = writerName(writer);
    if (held.get(name) !== text(before)) complaints.push(`${key} ${name}: before is not what was observed`);
    if ((effect & EFFECT.before) !== 0 && before === undefined && held.size > 0)
      complaints.push(`${key}: had a claim`);
    if (text(before) === text(after)) complaints.push(`${key} ${name}: no change`);
    if (after === undefined) held.delete(name);
    else held.set(name, attributes(after));
    claims.set(key, held);
    const known = effective.get(key);
    if ((effect & EFFECT.before) !== 0 && known !== undefined && known !== text(before))
      complaints.push(`${key}: not the effective claim`);
    // The promoted claim is not part of the change.
    if (effect === EFFECT.before) effective.delete(key);
    if ((effect & EFFECT.after) === 0) return;
    if (after === undefined) {
      if (held.size > 0) complaints.push(`${key}: still has claims`);
      effective.delete(key);
    } else effective.set(key, attributes(after));
  });
  return { claims, effective, complaints };
}

describe.each([true, false])('observed claims, retainOverruled: %s', (retain) => {
  it('fold to the claims of the model, and a batch that throws leaves no trace', () => {
    fc.assert(
      fc.property(history, (operations) => {
        const cache = new IPCache({ retainOverruled: retain });
        const model = new NaiveIPCache(retain);
        const { claims, complaints } = foldingObserver(cache);
        for (const operation of operations) {
          apply(cache, operation);
          applyNaively(model, operation);
          expect(complaints).toEqual([]);
          const expected = KEYS.map((key) =>
            model.on(key).map(({ claim }) => `${writerName(claim)}: ${attributes(claim)}`),
          );
          const observed = KEYS.map((key) =>
            [...(claims.get(key) ?? [])].map(([writer, claim]) => `${writer}: ${claim}`),
          );
          expect(observed.map((of) => of.toSorted())).toEqual(expected.map((of) => of.toSorted()));
          const held = KEYS.map((key) =>
            cache.claimsOf(key).map((claim) => `${writerName(claim)}: ${attributes(claim)}`),
          );
          expect(held).toEqual(expected);
        }
      }),
    );
  });
});

describe('observeClaims', () => {
  const claim = { identity: 7, source: 'k8s' } as const;

  it('calls no observer after its end, and the others still', () => {
    const cache = new IPCache();
    const seen: string[] = [];
    const end = cache.observeClaims(() => seen.push('first'));
    cache.observeClaims(() => seen.push('second'));
    cache.upsert('10.0.0.1', claim);
    end();
    cache.delete('10.0.0.1', claim);
    expect(seen).toEqual(['first', 'second', 'second']);
  });

  it('observes before the listeners of the write, and a batch when it is complete', () => {
    const cache = new IPCache();
    const seen: string[] = [];
    cache.subscribe({ onChanges: () => seen.push('listener') });
    cache.observeClaims((key) => seen.push(formatKey(key)));
    cache.batch(() => {
      cache.upsert('10.0.0.1', claim);
      cache.upsert('10.0.0.2', claim);
      expect(seen).toEqual([]);
    });
    expect(seen).toEqual(['10.0.0.1', '10.0.0.2', 'listener']);
  });
});
