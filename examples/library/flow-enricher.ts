// Enriches flows: reads binary records from standard input and prints the names of both ends.
//
// A record has 16 bytes in network byte order: source IPv4, destination IPv4, number of bytes, end of the flow in seconds since
// 1970. Flows arrive late, and their IPs may belong to other pods by then, so names are those of the flow's own time. A chunk of a
// stream may end within a record, so the remainder is put before the next chunk.
import { History, IPCache, reservedIdentityName, systemClock } from 'datapath-cache';

const RECORD_BYTES = 16;

const ipcache = new IPCache();
// In an agent, OwnCluster and ClusterMesh write these claims; see follow-mesh.ts.
ipcache.upsert('0.0.0.0/0', { identity: 2, source: 'local' });
ipcache.upsert('10.1.0.0/16', { identity: 900, source: 'kvstore' });
ipcache.upsert('10.1.2.3', {
  identity: 66_000,
  source: 'kvstore',
  k8s: { namespace: 'shop', podName: 'checkout-0' },
});

// Records every change from now on; 16 MiB hold about 400,000.
const history = new History({ ipcache, clock: systemClock });
history.start();

/** Returns the pod, the name of a reserved identity, or the number, at a time; with `?` if that time is not held. */
function nameOf(ip: string, at: number): string {
  const moment = history.lookup(ip, at);
  const entry = moment?.reason === 'before-held' ? ipcache.lookup(ip) : moment?.effective;
  if (entry === undefined) return 'unknown';
  const { identity, k8s } = entry;
  const name = k8s
    ? `${k8s.namespace}/${k8s.podName}`
    : (reservedIdentityName(identity) ?? `identity ${identity}`);
  return moment?.certain === false ? `${name}?` : name;
}

function enrich(bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let from = 0; from < bytes.length; from += RECORD_BYTES) {
    const source = bytes.subarray(from, from + 4).join('.');
    const destination = bytes.subarray(from + 4, from + 8).join('.');
    const at = Math.min(view.getUint32(from + 12) * 1000, Date.now()); // the clock of the sender may be ahead
    const names = [nameOf(source, at), nameOf(destination, at)];
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
