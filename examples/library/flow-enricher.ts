// Enriches flows: reads binary records from standard input and prints the names of both ends.
//
// A record has 12 bytes in network byte order: source IPv4, destination IPv4, number of bytes. A chunk of a stream may end
// within a record, so the remainder is put before the next chunk. `lookupMany` reads the addresses from the buffer, one every
// 12 bytes, and writes identities into an array that is reused, so nothing is allocated per address.
import { IPCache, reservedIdentityName } from 'datapath-cache/ipcache';

const RECORD_BYTES = 12;

const ipcache = new IPCache();
// In an agent, OwnCluster and ClusterMesh write these claims; see follow-mesh.ts.
ipcache.upsert('0.0.0.0/0', { identity: 2, source: 'local' });
ipcache.upsert('10.1.0.0/16', { identity: 900, source: 'kvstore' });
ipcache.upsert('10.1.2.3', {
  identity: 66_000,
  source: 'kvstore',
  k8s: { namespace: 'shop', podName: 'checkout-0' },
});

/** Returns the pod, the name of a reserved identity, or the number. */
function nameOf(ip: string, identity: number): string {
  const pod = ipcache.lookup(ip)?.k8s;
  if (pod !== undefined) return `${pod.namespace}/${pod.podName}`;
  return reservedIdentityName(identity) ?? `identity ${identity}`;
}

let sources = new Uint32Array(0);
let destinations = new Uint32Array(0);

function enrich(bytes: Uint8Array): void {
  const flows = Math.floor(bytes.length / RECORD_BYTES);
  if (sources.length < flows) {
    sources = new Uint32Array(flows);
    destinations = new Uint32Array(flows);
  }
  const at = { bytes, family: 4, stride: RECORD_BYTES } as const;
  ipcache.lookupMany({ ...at, offset: 0 }, sources);
  ipcache.lookupMany({ ...at, offset: 4 }, destinations);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let flow = 0; flow < flows; flow++) {
    const from = flow * RECORD_BYTES;
    const source = bytes.subarray(from, from + 4).join('.');
    const destination = bytes.subarray(from + 4, from + 8).join('.');
    const names = [nameOf(source, sources[flow] ?? 0), nameOf(destination, destinations[flow] ?? 0)];
    console.log(`${source} (${names[0]}) -> ${destination} (${names[1]}): ${view.getUint32(from + 8)} bytes`);
  }
}

let rest: Uint8Array = new Uint8Array(0);
for await (const chunk of process.stdin) {
  const bytes = Buffer.concat([rest, chunk]);
  const complete = bytes.length - (bytes.length % RECORD_BYTES);
  enrich(bytes.subarray(0, complete));
  rest = bytes.subarray(complete);
}
if (rest.length > 0) console.error(`${rest.length} bytes at the end are no whole record`);
