/**
 * The state that decides if the nodes, endpoints or identities of the local cluster are read from Kubernetes or from a
 * kvstore (KUBERNETES 52). Both may write at the same time, because their claims are independent; the claims of the
 * kvstore are stronger.
 *
 *                         complete                    withdrawn
 *     ┌──► following ──────────────────► withdrawing ───────────► resting
 *     │                                       │                      │
 *     └───────────────────────────────────────┴──────────────────────┘
 *                                  lost
 *
 * - `following`: the feed runs. The kvstore may be listing or lost; its claims stay.
 * - `withdrawing`: the kvstore is complete. The feed has ended, and its claims are being withdrawn, also those of
 *   objects that are not in the kvstore.
 * - `resting`: all claims of the feed are withdrawn.
 *
 * Every address has a claim during a handover, because the feed ends only when the kvstore is complete, and because the
 * claims of a lost kvstore stay.
 */
export type HandoverState = 'following' | 'withdrawing' | 'resting';

/** Events of a handover; the kvstore causes `complete` and `lost`. */
export type HandoverEvent = 'complete' | 'lost' | 'withdrawn';

/**
 * Returns the next state and the action: start to follow, or end and withdraw. If the event does not apply to the
 * state, returns the same state and no action.
 */
export function nextHandover(
  state: HandoverState,
  event: HandoverEvent,
): { readonly state: HandoverState; readonly action: 'follow' | 'withdraw' | undefined } {
  if (event === 'complete' && state === 'following') return { state: 'withdrawing', action: 'withdraw' };
  if (event === 'lost' && state !== 'following') return { state: 'following', action: 'follow' };
  if (event === 'withdrawn' && state === 'withdrawing') return { state: 'resting', action: undefined };
  return { state, action: undefined };
}
