import type { Writer } from '../../../src/ipcache/types.ts';
import {
  attributes,
  longestMatch,
  type NaiveIPCache,
  writerName,
} from '../../ipcache/support/naive-ipcache.ts';
import { KEYS } from '../../ipcache/support/operations.ts';

/** A full copy of all claims by key: `writer attributes`, strongest first. */
export type Copy = ReadonlyMap<string, readonly string[]>;

/** Keeps a full copy of the state after each write: the history that is obviously right. */
export class NaiveHistory {
  readonly #copies: { readonly at: number; readonly copy: Copy }[] = [];

  /** Stores the state of the model at a time. */
  note(at: number, model: NaiveIPCache): void {
    this.#copies.push({ at, copy: copyOf(model) });
  }

  /** The times at which something was stored. */
  get times(): readonly number[] {
    return this.#copies.map(({ at }) => at);
  }

  /** The claims on the keys of a prefix, endpoint first. */
  claims(at: number, key: string): readonly string[] {
    const copy = this.#copies.findLast((one) => one.at <= at)?.copy;
    return pair(key).flatMap((one) => copy?.get(one) ?? []);
  }

  /** The key with the longest prefix that contained an address. */
  lookup(at: number, address: string): string | undefined {
    const copy = this.#copies.findLast((one) => one.at <= at)?.copy ?? new Map();
    return longestMatch(copy.keys(), address);
  }
}

function copyOf(model: NaiveIPCache): Copy {
  return new Map(
    KEYS.flatMap((key) => {
      const claims = model.on(key).map(({ claim }) => `${key} ${writerName(claim)} ${attributes(claim)}`);
      return claims.length === 0 ? [] : [[key, claims] as const];
    }),
  );
}

/** A full-length prefix has two keys: the endpoint IP and the CIDR. */
function pair(key: string): readonly string[] {
  const [prefix = '', ...space] = key.split('@');
  const [address = '', length] = prefix.split('/');
  const bits = key.includes(':') ? '128' : '32';
  const pair = length === undefined || length === bits ? [address, `${address}/${bits}`] : [prefix];
  return pair.map((text) => [text, ...space].join('@'));
}

/** A past claim as text, as a {@link Copy} has it. */
export function claimText(
  claim: Writer & { readonly key: string } & Parameters<typeof attributes>[0],
): string {
  return `${claim.key} ${writerName(claim)} ${attributes(claim)}`;
}
