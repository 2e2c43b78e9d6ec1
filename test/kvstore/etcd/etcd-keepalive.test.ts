import { Server, ServerCredentials, type ServerDuplexStream } from '@grpc/grpc-js';
import { expect, it } from 'vitest';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';

const asIs = (bytes: Buffer): Buffer => bytes;

/** A server that ends every keepalive without an answer, and in order; gives its port. */
async function endingServer(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = new Server();
  const method = {
    path: '/etcdserverpb.Lease/LeaseKeepAlive',
    ...{ requestStream: true, responseStream: true },
    ...{
      requestSerialize: asIs,
      requestDeserialize: asIs,
      responseSerialize: asIs,
      responseDeserialize: asIs,
    },
  };
  const keepAlive = (call: ServerDuplexStream<Buffer, Buffer>): void => void call.end();
  server.addService({ keepAlive: method }, { keepAlive });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  return { server, port };
}

it('a keepalive that the server ends without an answer fails, and does not wait for ever', async () => {
  const { server, port } = await endingServer();
  const transport = new EtcdTransport({ endpoints: [`http://127.0.0.1:${port}`], deadlineMs: 1000 }, () => 0);
  await expect(transport.keepLeaseAlive('1')).rejects.toMatchObject({ code: 'unavailable' });
  await transport.close();
  server.forceShutdown();
});
