import type { RateLimitOptions } from '../base/rate-limit.ts';

/** The rates changed by a reload. */
const RATES = ['qps', 'bootstrapQps', 'maxInflight'] as const;

/**
 * The request rates for all etcds of an agent. Clients read `local` and `remote` on each call, so a {@link change}
 * applies from their next call on.
 */
export class KvstoreRates {
  readonly #current: { -readonly [Field in keyof RateLimitOptions]: RateLimitOptions[Field] };
  /**
   * The rates for remote etcds. The bootstrap rate applies to the local etcd only, as in Cilium (pkg/clustermesh,
   * `makeEtcdOpts`).
   */
  readonly remote: RateLimitOptions;

  constructor(rates: RateLimitOptions | undefined) {
    const current = { ...rates };
    this.#current = current;
    this.remote = {
      get qps() {
        return current.qps;
      },
      get maxInflight() {
        return current.maxInflight;
      },
    };
  }

  /** The rates for the local etcd. */
  get local(): RateLimitOptions {
    return this.#current;
  }

  /** Sets all rates. Missing ones get their defaults. Returns the changes: `etcd.qps 20 → 50`. */
  change(rates: RateLimitOptions): readonly string[] {
    const text = (rate: number | undefined): string => String(rate ?? 'default');
    return RATES.flatMap((name) => {
      const before = this.#current[name];
      const after = rates[name];
      this.#current[name] = after;
      return before === after ? [] : [`etcd.${name} ${text(before)} → ${text(after)}`];
    });
  }
}
