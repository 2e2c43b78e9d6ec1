/**
 * The source of the nodes, endpoints or identities of the local cluster: Kubernetes, or a kvstore that has them, too (KUBERNETES 52).
 * Both may write at the same time, because their claims are independent. The stronger claim wins: the one of the kvstore.
 *
 *                         complete                    withdrawn
 *     ┌──► following ──────────────────► withdrawing ───────────► resting
 *     │                                       │                      │
 *     └───────────────────────────────────────┴──────────────────────┘
 *                                  lost
 *
 * - `following`: the feed runs. The kvstore may be listing or lost; its claims stay.
 * - `withdrawing`: the kvstore is complete. The feed has ended, and its claims are being withdrawn. Objects that only the feed
 *   knew are deleted.
 * - `resting`: all claims of the feed are withdrawn.
 *
 * No address is without a claim during a handover, because the feed ends when the kvstore is complete, not when it is connected,
 * and because the claims of a lost kvstore stay.
 */
export type HandoverState = 'following' | 'withdrawing' | 'resting';

/** Events of a handover; the kvstore causes `complete` and `lost`. */
export type HandoverEvent = 'complete' | 'lost' | 'withdrawn';

/** Action of a transition: start to follow, or end and withdraw. */
export type HandoverAction = 'follow' | 'withdraw' | undefined;

/** Returns the next state and the action. If the event does not apply to the state, returns the same state and no action. */
export function handover(
  state: HandoverState,
  event: HandoverEvent,
): { readonly state: HandoverState; readonly action: HandoverAction } {
  if (event === 'complete' && state === 'following') return { state: 'withdrawing', action: 'withdraw' };
  if (event === 'lost' && state !== 'following') return { state: 'following', action: 'follow' };
  if (event === 'withdrawn' && state === 'withdrawing') return { state: 'resting', action: undefined };
  return { state, action: undefined };
}
