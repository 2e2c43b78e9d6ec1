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

type FakeAnswer = Buffer | Partial<StatusObject> | undefined;

/** The answers of a {@link FakeServer}. Requests without one are not answered. */
export interface FakeAnswers {
  readonly keepAlive?: (call: ServerDuplexStream<Buffer, Buffer>) => void;
  readonly watch?: (call: ServerDuplexStream<Buffer, Buffer>) => void;
  /** Returns undefined to give no answer, and a status to fail. */
  readonly range?: (request: Buffer) => FakeAnswer | Promise<FakeAnswer>;
  readonly txn?: (request: Buffer) => Buffer;
  readonly grant?: (request: Buffer) => Buffer;
  readonly authenticate?: (request: Buffer) => Buffer;
  readonly status?: (request: Buffer) => Buffer;
}

/** Returns a handler that gives the answer of `answerTo`; without `answerTo`, none. */
const answerWith =
  (answerTo: ((request: Buffer) => Buffer) | undefined) =>
  (call: ServerUnaryCall<Buffer, Buffer>, answer: (error: null, bytes: Buffer) => void): void => {
    const bytes = answerTo?.(call.request);
    if (bytes !== undefined) answer(null, bytes);
  };

/** A gRPC server with some methods of etcd, whose answers the test defines. */
export class FakeServer {
  readonly #server = new Server();

  constructor({
    keepAlive = () => {},
    watch = () => {},
    range,
    txn,
    grant,
    authenticate,
    status,
  }: FakeAnswers) {
    const stream = { requestStream: true, responseStream: true };
    const unary = { requestStream: false, responseStream: false };
    this.#server.addService(
      {
        keepAlive: { path: '/etcdserverpb.Lease/LeaseKeepAlive', ...stream, ...bytes },
        watch: { path: '/etcdserverpb.Watch/Watch', ...stream, ...bytes },
        range: { path: '/etcdserverpb.KV/Range', ...unary, ...bytes },
        txn: { path: '/etcdserverpb.KV/Txn', ...unary, ...bytes },
        grant: { path: '/etcdserverpb.Lease/LeaseGrant', ...unary, ...bytes },
        authenticate: { path: '/etcdserverpb.Auth/Authenticate', ...unary, ...bytes },
        status: { path: '/etcdserverpb.Maintenance/Status', ...unary, ...bytes },
      },
      {
        keepAlive,
        watch,
        range: async (
          call: ServerUnaryCall<Buffer, Buffer>,
          answer: (error: Partial<StatusObject> | null, bytes?: Buffer) => void,
        ) => {
          const bytes = await range?.(call.request);
          if (Buffer.isBuffer(bytes)) answer(null, bytes);
          else if (bytes !== undefined) answer(bytes);
        },
        txn: answerWith(txn),
        grant: answerWith(grant),
        authenticate: answerWith(authenticate),
        status: answerWith(status),
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
