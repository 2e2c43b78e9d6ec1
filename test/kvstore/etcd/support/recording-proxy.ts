import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import { ProtoReader } from '../../../../src/kvstore/codec/proto-reader.ts';

const TXN = '/etcdserverpb.KV/Txn';
/** The prefix of a gRPC message: a compression flag and its length. */
const PREFIX_BYTES = 5;

/**
 * A link to an etcd that forwards everything, and reports each transaction directly before it is forwarded.
 */
export class RecordingProxy {
  readonly #target: string;
  readonly #onDelete: (key: string) => void;
  readonly #server: Http2Server = createServer();

  /** @param onDelete receives the first key of each requested delete, whatever its result */
  constructor(target: string, onDelete: (key: string) => void) {
    this.#target = target;
    this.#onDelete = onDelete;
    this.#server.on('session', (session) => {
      const upstream = connect(this.#target);
      upstream.on('error', () => session.destroy());
      upstream.on('close', () => session.destroy());
      session.on('error', () => {});
      session.on('close', () => upstream.destroy());
      session.on('stream', (stream, headers) => this.#carry(stream, headers, upstream));
    });
  }

  /** Returns the port. */
  async start(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    return address.port;
  }

  /** Stops listening. Sessions end with their clients. */
  close(): void {
    this.#server.close();
  }

  #carry(down: ServerHttp2Stream, headers: IncomingHttpHeaders, upstream: ClientHttp2Session): void {
    if (upstream.destroyed) {
      down.close(constants.NGHTTP2_REFUSED_STREAM);
      return;
    }
    const up = upstream.request(headers);
    let trailers: IncomingHttpHeaders = {};
    up.on('response', (answer, flags) => {
      const endStream = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
      if (!down.destroyed) down.respond(answer, endStream ? { endStream } : { waitForTrailers: true });
    });
    up.on('trailers', (received) => {
      trailers = received;
    });
    up.on('data', (chunk: Buffer) => down.write(chunk));
    up.on('close', () => down.end());
    up.on('error', () => down.close(constants.NGHTTP2_INTERNAL_ERROR));
    down.on('wantTrailers', () => down.sendTrailers(trailers));
    down.on('error', () => {});
    down.on('close', () => up.close(constants.NGHTTP2_CANCEL));
    if (headers[':path'] === TXN) this.#carryTxn(down, up);
    else down.pipe(up);
  }

  #carryTxn(down: ServerHttp2Stream, up: ClientHttp2Stream): void {
    const parts: Buffer[] = [];
    down.on('data', (chunk: Buffer) => parts.push(chunk));
    down.on('end', () => {
      const request = Buffer.concat(parts);
      for (const key of deletedBy(request.subarray(PREFIX_BYTES))) this.#onDelete(key);
      up.end(request);
    });
  }
}

/** Returns the keys of the deletes in both branches of a `TxnRequest`. */
function deletedBy(request: Buffer): readonly string[] {
  const keys: string[] = [];
  const branches = fields(request, 2).concat(fields(request, 3));
  for (const operation of branches)
    for (const range of fields(operation, 3)) keys.push(...fields(range, 1).map(String));
  return keys;
}

/** Returns the length-delimited fields of this number. */
function fields(message: Buffer, number: number): readonly Buffer[] {
  const reader = new ProtoReader(message);
  const found: Buffer[] = [];
  while (reader.next(message.length)) {
    if (reader.field === number) found.push(Buffer.from(reader.bytes()));
    else reader.skip();
  }
  return found;
}
