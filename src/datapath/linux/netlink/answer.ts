import { SyscallError } from '../syscall/syscall-error.ts';
import { Attributes, align, NetlinkFormatError, type NetlinkMessage, viewOf } from './message-reader.ts';
import { HEADER_BYTES, NLM_F } from './message-writer.ts';

/** Types of messages that end an answer. */
const NLMSG = { error: 2, done: 3 } as const;

const NLMSGERR_ATTR_MSG = 1;

/** Returns true if the message ends an answer: an acknowledgement, an error, or the end of a dump. */
export function endsAnswer({ type }: NetlinkMessage): boolean {
  return type === NLMSG.error || type === NLMSG.done;
}

/** Returns the error in an ending message, with the kernel's text, if any. Throws `NetlinkFormatError`. */
export function errorIn(message: NetlinkMessage, call: string): SyscallError | undefined {
  const { body, flags, type } = message;
  // Old kernels end a dump without an error number.
  if (type === NLMSG.done && body.length === 0) return undefined;
  if (body.length < 4) throw new NetlinkFormatError(`invalid acknowledgement: ${body.length} bytes`);
  const errno = -viewOf(body).getInt32(0, true);
  if (errno <= 0) return undefined;
  return new SyscallError(call, errno, (flags & NLM_F.ackAttributes) === 0 ? '' : textOf(message));
}

function textOf({ body, flags, type }: NetlinkMessage): string {
  const offset = type === NLMSG.done ? 4 : attributesOffset(body, flags);
  return new Attributes(body, offset).text(NLMSGERR_ATTR_MSG) ?? '';
}

/**
 * Returns the offset of the attributes in an error message. They follow the error number and the repeated request, of
 * which a capped message has only the header.
 */
function attributesOffset(body: Uint8Array, flags: number): number {
  if (body.length < 4 + HEADER_BYTES)
    throw new NetlinkFormatError(`invalid error message: ${body.length} bytes`);
  if ((flags & NLM_F.capped) !== 0) return 4 + HEADER_BYTES;
  return 4 + align(viewOf(body).getUint32(4, true));
}
