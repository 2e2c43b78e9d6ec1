import { StateFiles } from '../../../src/agent/state-files.ts';
import { engines, OWN, save } from './world.ts';

// Writes one checkpoint after the other until it is killed. Odd generations have other identities than even
// ones, so that the two cannot be confused. Prints a line for each written generation.
const [path = '', first = '1', entries = '1'] = process.argv.slice(2);
const folder = new StateFiles(path);
const [even, odd] = [engines(), engines()];
for (const known of [even, odd]) {
  for (let i = 0; i < Number(entries); i++) {
    const identity = known === even ? 2 : 1;
    known.ipcache.upsert(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, { identity, source: 'kvstore' });
  }
}
for (let generation = Number(first); ; generation++) {
  await save(folder, generation % 2 === 0 ? even : odd, [], { cluster: OWN, writtenAt: generation });
  process.stdout.write(`${generation}\n`);
}
