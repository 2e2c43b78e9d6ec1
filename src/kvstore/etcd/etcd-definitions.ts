import { Etcd3 } from 'etcd3';
import { KvstoreError } from '../session/errors.ts';
import type { UnaryCall } from './etcd-connection.ts';

/** Maximum size of an answer, which is decoded in one turn: a status or a token. */
const MAX_ANSWER_BYTES = 1 << 20;

/** The etcd services in use. */
export type EtcdService = 'KV' | 'Watch' | 'Lease' | 'Maintenance' | 'Auth';

/** A method of the service clients of etcd3: its path and codecs. */
interface MethodDefinition {
  readonly path: string;
  readonly requestSerialize: (payload: object) => Buffer;
  readonly responseDeserialize: (answer: Buffer) => unknown;
}

/** A call in the encoding of etcd3. */
export interface EncodedCall<T> extends UnaryCall {
  readonly decode: (answer: Buffer) => T;
}

/** The service definitions of etcd3. Its clients are never called, so they open no connection. */
class EtcdDefinitions extends Etcd3 {
  /** Returns a call in the encoding of etcd3, for rare calls. Longs are decimal text. */
  async call<T>(service: EtcdService, method: string, payload: object): Promise<EncodedCall<T>> {
    const definition = await this.pool.withConnection('KV', ({ resource }) => {
      const client: object = resource.getServiceClient(service);
      // grpc-js adds these properties to the method.
      return (client as Readonly<Record<string, MethodDefinition>>)[method];
    });
    if (definition === undefined) throw new KvstoreError('internal', `unknown method ${service}.${method}`);
    const { path, requestSerialize, responseDeserialize } = definition;
    const decode = (answer: Buffer): T => {
      if (answer.length > MAX_ANSWER_BYTES)
        throw new KvstoreError('internal', `an answer to ${method} of ${answer.length} bytes`);
      return responseDeserialize(answer) as T; // as its definition declares
    };
    return { path, request: requestSerialize(payload), decode };
  }
}

export const definitions: EtcdDefinitions = new EtcdDefinitions();
