import { KvstoreError } from '../../../src/kvstore/errors.ts';
import type { FaultyLink } from './faulty-link.ts';

/** The next put of this key runs into its deadline, and takes effect when the function given is called. */
export function giveUpPut(link: FaultyLink, key: string): () => Promise<unknown> {
  const txn = link.txn.bind(link);
  let land: () => Promise<unknown> = () => Promise.reject(new Error('nothing was put'));
  link.txn = (request, options) => {
    const writes = [...request.writes, ...(request.otherwise ?? [])];
    if (!writes.some((write) => write.op === 'put' && write.key === key)) return txn(request, options);
    link.txn = txn;
    land = () => txn(request);
    return Promise.reject(new KvstoreError('deadline', 'no answer in time'));
  };
  return () => land();
}
