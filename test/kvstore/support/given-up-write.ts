import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type { Transport, WriteOperation } from '../../../src/kvstore/session/transport.ts';

/** Applies the aborted write, if the server still accepts it. */
export type Land = () => Promise<unknown>;

function giveUp(link: Pick<Transport, 'txn'>, isMeant: (write: WriteOperation) => boolean): Land {
  const txn = link.txn.bind(link);
  let land: Land | undefined;
  const givingUp: typeof link.txn = (request, options) => {
    const isFirst = land === undefined;
    if (!isFirst || ![...request.writes, ...(request.otherwise ?? [])].some(isMeant))
      return txn(request, options);
    land = () => txn(request);
    if (link.txn === givingUp) link.txn = txn;
    return Promise.reject(new KvstoreError('deadline', 'no answer in time'));
  };
  link.txn = givingUp;
  return () => land?.() ?? Promise.reject(new Error('nothing was written'));
}

/**
 * The next put of this key exceeds its deadline, and arrives at the server when the returned function is
 * called.
 */
export function giveUpPut(link: Pick<Transport, 'txn'>, key: string): Land {
  return giveUp(link, (write) => write.op === 'put' && write.key === key);
}

/** {@link giveUpPut} for the next delete of this key. */
export function giveUpDelete(link: Pick<Transport, 'txn'>, key: string): Land {
  return giveUp(link, (write) => write.op === 'delete' && write.range.start === key);
}
