import { sameEntry } from '../../ipcache/change.ts';
import { EFFECT } from '../../ipcache/claims/claim-state.ts';
import { decidingRule } from '../../ipcache/deciding-rule.ts';
import type { CompleteClaim } from '../../ipcache/row-reader.ts';
import type { ClaimWriter } from '../../ipcache/types.ts';
import { compareWriters } from '../../model/source.ts';
import { writerText } from '../claim-codec.ts';
import type { PastPrefix, TimelineChange } from '../prefix-timeline.ts';

/** The effective claim of a key, if it is known. `claim` is undefined if the key certainly had none. */
type Known = { readonly claim: CompleteClaim | undefined } | undefined;

/**
 * A writer's claim at the moment, from its newest change before the moment, or else from its oldest change after it.
 */
interface WriterClaim {
  readonly claim: CompleteClaim | undefined;
  readonly since: number | undefined;
  readonly until: number | undefined;
}

/** The changes of one key in an earlier life, read newest first. */
class EarlierLifeKey {
  readonly #claims = new Map<string, WriterClaim & { readonly writer: ClaimWriter }>();
  /** The nearest changes of the effective claim: the last one at or before the moment, and the first one after it. */
  #lastBefore: TimelineChange | undefined;
  #firstAfter: TimelineChange | undefined;

  add(change: TimelineChange, isLater: boolean): void {
    const { writer, before, after, effect, ms } = change;
    const name = writerText(writer);
    const known = this.#claims.get(name);
    if (isLater) {
      this.#claims.set(name, { writer, claim: before, since: undefined, until: ms });
      if (effect !== 0) this.#firstAfter = change;
      return;
    }
    if (known?.since === undefined)
      this.#claims.set(name, { writer, claim: after, since: ms, until: known?.until });
    if (effect !== 0) this.#lastBefore ??= change;
  }

  /** Times at which the effective claim was last set, and next changed. */
  get effectiveTimes(): { readonly since: number | undefined; readonly until: number | undefined } {
    return { since: this.#lastBefore?.ms, until: this.#firstAfter?.ms };
  }

  /** Returns the effective claim, as far as a record proves it. */
  known(ms: number, isLost: (fromMs: number, toMs: number) => boolean): Known {
    const [left, right] = [this.#lastBefore, this.#firstAfter];
    const isLeft = left !== undefined && (left.effect & EFFECT.after) !== 0 && !isLost(left.ms, ms);
    const isRight = right !== undefined && (right.effect & EFFECT.before) !== 0 && !isLost(ms, right.ms);
    if (isLeft && isRight && !sameEntry(left.after, right.before)) return undefined;
    if (isLeft) return { claim: left.after };
    return isRight ? { claim: right.before } : undefined;
  }

  /** Returns the claims with their times: the effective one if it is known, then the others by precedence. */
  sortedClaims(known: Known): readonly (CompleteClaim & Pick<WriterClaim, 'since' | 'until'>)[] {
    if (known !== undefined && known.claim === undefined) return [];
    const claims = [...this.#claims.values()]
      .flatMap(({ claim, since, until }) => (claim === undefined ? [] : [{ ...claim, since, until }]))
      .sort(compareWriters);
    const effective = known?.claim;
    if (effective === undefined) return claims;
    const { since, until } = this.#claims.get(writerText(effective)) ?? {};
    const others = claims.filter((claim) => writerText(claim) !== writerText(effective));
    return [{ ...effective, since, until }, ...others];
  }
}

export interface EarlierLifePrefix extends PastPrefix {
  /** True if a record proves which claim was visible, or that none was. */
  readonly isKnown: boolean;
}

/**
 * The claims on a prefix at a moment of an earlier life. The final claims of such a life are not stored, so only claims
 * in records are known. A writer's claim is `after` of its newest change before the moment, or else `before` of its
 * oldest later change.
 */
export class EarlierLifeState {
  readonly #keys: ReadonlyMap<string, EarlierLifeKey>;
  #changes = 0;

  constructor(keys: readonly string[]) {
    this.#keys = new Map(keys.map((key) => [key, new EarlierLifeKey()]));
  }

  /** False if there is no record of the prefix. */
  get hasRecords(): boolean {
    return this.#changes > 0;
  }

  /** Adds a change that is older than all added before. */
  add(change: TimelineChange, isLater: boolean): void {
    this.#changes++;
    this.#keys.get(change.key)?.add(change, isLater);
  }

  /** Returns the claims at a time. `isLost` returns true if changes between two times may be missing. */
  result(ms: number, isLost: (fromMs: number, toMs: number) => boolean): EarlierLifePrefix {
    const keys = Array.from(this.#keys, ([key, state]) => ({ key, state, known: state.known(ms, isLost) }));
    // The endpoint is first. If it has a claim, or may have one, the CIDR is shadowed (I4).
    const visible = keys.findIndex(({ known }) => known === undefined || known.claim !== undefined);
    const deciding = keys.slice(0, visible < 0 ? keys.length : visible + 1);
    // The visible claim of the CIDR began and ends with a change of either key.
    const times = deciding.map(({ state }) => state.effectiveTimes);
    const claims = keys.flatMap(({ key, state, known }) =>
      state.sortedClaims(known).map((claim, index) => ({ ...claim, key, effective: index === 0 })),
    );
    return {
      claims,
      decidedBy: decidingRule(claims),
      effectiveSince: finite(Math.max(...times.flatMap(({ since }) => since ?? []))),
      effectiveUntil: finite(Math.min(...times.flatMap(({ until }) => until ?? []))),
      isKnown: deciding.every(({ known }) => known !== undefined),
    };
  }
}

function finite(ms: number): number | undefined {
  return Number.isFinite(ms) ? ms : undefined;
}
