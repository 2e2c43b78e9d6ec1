import { createInterface } from 'node:readline';
import { systemClock } from '../../src/base/system-clock.ts';
import { ApiHttpServer } from '../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import { ApiUser } from '../../test/k8s/support/api-user.ts';
import { type ClusterSize, NAMESPACE, NODES, SERVICES, SLICES } from './kinds.ts';

// node api-server.js SIZE: an API server with the objects of a cluster. Prints its address; ends with its standard
// input.

const PARALLEL = 64;

function backend(i: number): string {
  return `10.${1 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`;
}

function slice(i: number, backends: number): object {
  const addresses = Array.from({ length: backends }, (_, k) => backend(i * backends + k));
  return {
    addressType: 'IPv4',
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
  };
}

/** Creates the objects of a cluster, some at a time. */
async function fill(
  transport: MemoryApiTransport,
  { services, nodes, backends }: ClusterSize,
): Promise<void> {
  const [service, slices, node] = [
    new ApiUser(transport, SERVICES, NAMESPACE),
    new ApiUser(transport, SLICES, NAMESPACE),
    new ApiUser(transport, NODES),
  ];
  const annotations = { 'service.cilium.io/global': 'true' };
  const make = async (i: number): Promise<void> => {
    if (i < nodes)
      await node.create(`node-${i}`, {
        spec: {
          addresses: [{ type: 'InternalIP', ip: `172.${16 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}` }],
        },
      });
    if (i >= services) return;
    const spec = {
      type: 'ClusterIP',
      clusterIP: backend(i),
      ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
    };
    await service.create(`svc-${i}`, { spec }, { annotations });
    await slices.create(`svc-${i}-a`, slice(i, backends), {
      labels: { 'kubernetes.io/service-name': `svc-${i}` },
    });
  };
  const all = Math.max(services, nodes);
  for (let from = 0; from < all; from += PARALLEL)
    await Promise.all(Array.from({ length: Math.min(PARALLEL, all - from) }, (_, k) => make(from + k)));
}

const size: ClusterSize = JSON.parse(process.argv[2] ?? '');
const api = new MemoryApiServer({ clock: systemClock });
await fill(new MemoryApiTransport(api), size);
const http = new ApiHttpServer(api);
process.stdout.write(`${await http.listen()}\n`);
createInterface(process.stdin).on('close', () => void http.close());
