/**
 * Who says what the nodes, endpoints or identities of the own cluster are: Kubernetes, or a kvstore that has them as well
 * (K 52). What each says are claims of its own, so both may speak at once, and the stronger is believed: the kvstore.
 *
 *                     kvstore-complete                withdrawn
 *     ┌──► following ──────────────────► withdrawing ───────────► resting
 *     │                                       │                      │
 *     └───────────────────────────────────────┴──────────────────────┘
 *                              kvstore-lost
 *
 * - `following`: the feed runs. The kvstore may be listing meanwhile, or be lost: what it has claimed stays where it is.
 * - `withdrawing`: the kvstore has said all it has to say. The feed is ended, and what it claimed is taken back: what only
 *   the feed knew is not there any more.
 * - `resting`: nothing of the feed is left.
 *
 * So no address is free in between: the feed goes when the kvstore is complete and not when it is connected, and the
 * kvstore's claims are not taken away when it is lost.
 */
export type HandoverState = 'following' | 'withdrawing' | 'resting';

/** What happens: `complete` and `lost` are the kvstore's. */
export type HandoverEvent = 'complete' | 'lost' | 'withdrawn';

/** What is to be done: begin to follow, or end that and withdraw. */
export type HandoverAction = 'follow' | 'withdraw' | undefined;

/** The next state and what is to be done on the way; an event that does not concern the state changes nothing. */
export function handover(
  state: HandoverState,
  event: HandoverEvent,
): { readonly state: HandoverState; readonly action: HandoverAction } {
  if (event === 'complete' && state === 'following') return { state: 'withdrawing', action: 'withdraw' };
  if (event === 'lost' && state !== 'following') return { state: 'following', action: 'follow' };
  if (event === 'withdrawn' && state === 'withdrawing') return { state: 'resting', action: undefined };
  return { state, action: undefined };
}
