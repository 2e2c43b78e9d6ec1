import { MessageWriter } from '../netlink/message-writer.ts';
import type { NetlinkRequest, NetlinkSocket } from '../netlink/netlink-socket.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import { type NftSteps, nftBatch } from './nft-message.ts';

/** Maximum size of a transaction, which must fit into one send with its begin and end messages. */
export const TRANSACTION_BYTES = 60_000;

/**
 * Sends steps as one transaction, or as several if they exceed {@link TRANSACTION_BYTES}. Returns the first error; the
 * transactions before it were applied.
 */
export function sendSteps(socket: NetlinkSocket, steps: NftSteps): SyscallError | undefined {
  for (let next = 0; next < steps.length; ) {
    const part: NetlinkRequest[] = [];
    for (let bytes = 0; next < steps.length; next++) {
      const step = steps[next] ?? [];
      bytes += sizeOf(step);
      if (bytes > TRANSACTION_BYTES && part.length > 0) break;
      part.push(...step);
    }
    const error = transact(socket, part);
    if (error !== undefined) return error;
  }
  return undefined;
}

function transact(socket: NetlinkSocket, requests: readonly NetlinkRequest[]): SyscallError | undefined {
  try {
    return socket.transact(nftBatch(requests)).find((one) => one !== undefined);
  } catch (error) {
    if (error instanceof SyscallError) return error;
    throw error;
  }
}

/** The writer that {@link sizeOf} uses to measure requests. */
const measured = new MessageWriter();

/** Returns the encoded size of requests. */
export function sizeOf(requests: readonly NetlinkRequest[]): number {
  measured.clear();
  for (const request of requests) {
    measured.begin(request.type, 0, 0);
    request.write(measured);
    measured.end();
  }
  return measured.length;
}
