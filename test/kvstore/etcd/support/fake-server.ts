import {
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type StatusObject,
} from '@grpc/grpc-js';
import { bytesField, message, numberField } from '../../../../src/kvstore/codec/proto-writer.ts';

const asIs = (bytes: Buffer): Buffer => bytes;
const bytes = {
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
};

/** The answer to a read of a missing key. */
export const NO_KEYS: Buffer = message(bytesField(1, message(numberField(3, 1))));

/** The answers of a {@link FakeServer}. Requests without one are not answered. */
export interface FakeAnswers {
  readonly keepAlive?: (call: ServerDuplexStream<Buffer, Buffer>) => void;
  readonly watch?: (call: ServerDuplexStream<Buffer, Buffer>) => void;
  /** Returns undefined to give no answer, and a status to fail. */
  readonly range?: (request: Buffer) => Buffer | Partial<StatusObject> | undefined;
  readonly txn?: (request: Buffer) => Buffer;
}

/** A gRPC server with four methods of etcd, whose answers the test defines. */
export class FakeServer {
  readonly #server = new Server();

  constructor({ keepAlive = () => {}, watch = () => {}, range, txn }: FakeAnswers) {
    const stream = { requestStream: true, responseStream: true };
    const unary = { requestStream: false, responseStream: false };
    this.#server.addService(
      {
        keepAlive: { path: '/etcdserverpb.Lease/LeaseKeepAlive', ...stream, ...bytes },
        watch: { path: '/etcdserverpb.Watch/Watch', ...stream, ...bytes },
        range: { path: '/etcdserverpb.KV/Range', ...unary, ...bytes },
        txn: { path: '/etcdserverpb.KV/Txn', ...unary, ...bytes },
      },
      {
        keepAlive,
        watch,
        range: (
          call: ServerUnaryCall<Buffer, Buffer>,
          answer: (error: Partial<StatusObject> | null, bytes?: Buffer) => void,
        ) => {
          const bytes = range?.(call.request);
          if (Buffer.isBuffer(bytes)) answer(null, bytes);
          else if (bytes !== undefined) answer(bytes);
        },
        txn: (call: ServerUnaryCall<Buffer, Buffer>, answer: (error: null, bytes: Buffer) => void) => {
          const bytes = txn?.(call.request);
          if (bytes !== undefined) answer(null, bytes);
        },
      },
    );
  }

  /** Starts the server. Returns its address. */
  start(): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) =>
        error === null ? resolve(`http://127.0.0.1:${port}`) : reject(error),
      );
    });
  }

  stop(): void {
    this.#server.forceShutdown();
  }
}
