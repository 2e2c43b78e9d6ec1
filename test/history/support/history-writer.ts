import { writeSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import { StateFiles } from '../../../src/agent/state-files.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { History } from '../../../src/history/history.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';

// Changes one of KEYS prefixes after the other, and stores the history, until it is killed. Prints each change with the
// wall time before and after it and the step of the wall clock since the start, and the wall time until the last stored
// record.
const [path = '', keys = '1'] = process.argv.slice(2);
const KEYS = Number(keys);
const FLUSH_EVERY = 10;
const disk = { folder: new StateFiles(path), maxBytes: 1 << 20, checksum: crc32 };
const ipcache = new IPCache();
for (let i = 0; i < KEYS; i++) ipcache.upsert(`10.0.0.${i}`, { identity: 1, source: 'kvstore' });
const history = new History({ ipcache, clock: systemClock, memory: 256 << 10, disk });
await history.open();
const offset = Date.now() - performance.now();
const before = Date.now();
history.start();
writeSync(1, `start ${before} ${Date.now()}\n`);
for (let i = 0; ; i++) {
  const key = i % KEYS;
  const begun = Date.now();
  // A pod with a long name, so that segments are full soon.
  const k8s = { namespace: 'shop', podName: `checkout-${'x'.repeat(60)}${i}-${i}` };
  const identity = i % 7 === 3 ? 0 : 100 + i;
  if (identity === 0) ipcache.delete(`10.0.0.${key}`, { source: 'kvstore' });
  else ipcache.upsert(`10.0.0.${key}`, { identity, source: 'kvstore', k8s });
  const ended = Date.now();
  writeSync(1, `${key} ${identity} ${begun} ${ended} ${Math.round(ended - performance.now() - offset)}\n`);
  if (i % FLUSH_EVERY === 0) {
    const flushed = Date.now();
    await history.flush();
    writeSync(1, `flushed ${flushed}\n`);
  }
  await new Promise((resolve) => setTimeout(resolve, 1));
}
