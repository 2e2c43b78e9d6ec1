import { sameEntry } from '../../ipcache/change.ts';
import { EFFECT } from '../../ipcache/claims/claim-state.ts';
import { decidingRule } from '../../ipcache/deciding-rule.ts';
import type { CompleteClaim } from '../../ipcache/row-reader.ts';
import type { ClaimWriter, DecidingRule } from '../../ipcache/types.ts';
import { compareWriters } from '../../model/source.ts';
import { writerText } from '../claim-codec.ts';
import type { PastPrefix, TimelineChange } from '../prefix-timeline.ts';

/** The effective claim of a key, proven by a record. `claim` is undefined if the key had none. */
interface ProvenClaim {
  readonly claim: CompleteClaim | undefined;
}

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

  add(change: TimelineChange, isAfterMoment: boolean): void {
    const { writer, before, after, effect, ms } = change;
    const name = writerText(writer);
    const known = this.#claims.get(name);
    if (isAfterMoment) {
      this.#claims.set(name, { writer, claim: before, since: undefined, until: ms });
      if (effect !== 0) this.#firstAfter = change;
      return;
    }
    if (known?.since === undefined)
      this.#claims.set(name, { writer, claim: after, since: ms, until: known?.until });
    if (effect !== 0) this.#lastBefore ??= change;
  }

  /** The time of the last change of the effective claim up to the moment, and of the first one after it. */
  get effectiveTimes(): { readonly since: number | undefined; readonly until: number | undefined } {
    return { since: this.#lastBefore?.ms, until: this.#firstAfter?.ms };
  }

  /** Returns the effective claim; undefined if no record proves it, or if two records contradict each other. */
  provenClaim(ms: number, isLost: (fromMs: number, toMs: number) => boolean): ProvenClaim | undefined {
    const [last, next] = [this.#lastBefore, this.#firstAfter];
    const lastProves = last !== undefined && (last.effect & EFFECT.after) !== 0 && !isLost(last.ms, ms);
    const nextProves = next !== undefined && (next.effect & EFFECT.before) !== 0 && !isLost(ms, next.ms);
    if (lastProves && nextProves && !sameEntry(last.after, next.before)) return undefined;
    if (lastProves) return { claim: last.after };
    return nextProves ? { claim: next.before } : undefined;
  }

  /** Returns the claims with their times: the effective one if it is proven, then the others by precedence. */
  sortedClaims(
    proven: ProvenClaim | undefined,
  ): readonly (CompleteClaim & Pick<WriterClaim, 'since' | 'until'>)[] {
    // A key without an effective claim has no claims.
    if (proven !== undefined && proven.claim === undefined) return [];
    const claims = [...this.#claims.values()]
      .flatMap(({ claim, since, until }) => (claim === undefined ? [] : [{ ...claim, since, until }]))
      .sort(compareWriters);
    const effective = proven?.claim;
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

  /** Adds a change that is older than all added before. `isAfterMoment`: it happened after the moment of the state. */
  add(change: TimelineChange, isAfterMoment: boolean): void {
    this.#changes++;
    this.#keys.get(change.key)?.add(change, isAfterMoment);
  }

  /** Returns the claims at a time. `isLost` returns true if changes between two times may be missing. */
  result(ms: number, isLost: (fromMs: number, toMs: number) => boolean): EarlierLifePrefix {
    const keys = Array.from(this.#keys, ([key, state]) => {
      return { key, state, proven: state.provenClaim(ms, isLost) };
    });
    // The endpoint is first. If it has a claim, or may have one, the CIDR is shadowed (I4).
    const visible = keys.findIndex(({ proven }) => proven === undefined || proven.claim !== undefined);
    const deciding = keys.slice(0, visible < 0 ? keys.length : visible + 1);
    // A change of either key can make the claim of the CIDR visible, or end that.
    const times = deciding.map(({ state }) => state.effectiveTimes);
    const claims = keys.flatMap(({ key, state, proven }) =>
      state.sortedClaims(proven).map((claim, index) => ({ ...claim, key, effective: index === 0 })),
    );
    return {
      claims,
      decidedBy: ruleOfKnown(claims),
      effectiveSince: finite(Math.max(...times.flatMap(({ since }) => since ?? []))),
      effectiveUntil: finite(Math.min(...times.flatMap(({ until }) => until ?? []))),
      isKnown: deciding.every(({ proven }) => proven !== undefined),
    };
  }
}

/** Returns the rule that decided; undefined for a single claim, because it may not have been the only one. */
export function ruleOfKnown(claims: Parameters<typeof decidingRule>[0]): DecidingRule | undefined {
  return claims.length === 1 ? undefined : decidingRule(claims);
}

function finite(ms: number): number | undefined {
  return Number.isFinite(ms) ? ms : undefined;
}
