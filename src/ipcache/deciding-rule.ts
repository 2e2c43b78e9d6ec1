import { compareSources } from '../model/source.ts';
import type { DecidingRule, ExplainedClaim } from './types.ts';

/** Returns the rule that ranks the first claim before the second (I4). */
export function decidingRule(
  claims: readonly Pick<ExplainedClaim, 'key' | 'source'>[],
): DecidingRule | undefined {
  const [first, second] = claims;
  if (first === undefined) return undefined;
  if (second === undefined) return 'only-claim';
  if (first.key !== second.key) return 'endpoint-over-cidr';
  return compareSources(first.source, second.source) === 0 ? 'owner-name' : 'source-precedence';
}
