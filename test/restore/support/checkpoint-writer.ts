import { StateFiles } from '../../../src/agent/state-files.ts';
import { engines, OWN, save } from './world.ts';

// Writes one checkpoint after the other until it is killed. Each is of one generation, which all of its entries name; a
// line on stdout says that a generation has been written.
const [path = '', first = '1', entries = '1'] = process.argv.slice(2);
const folder = new StateFiles(path);
const known = engines();
for (let generation = Number(first); ; generation++) {
  known.ipcache.batch(() => {
    for (let i = 0; i < Number(entries); i++) {
      known.ipcache.upsert(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, {
        identity: generation,
        source: 'kvstore',
      });
    }
  });
  await save(folder, known, [], { cluster: OWN, writtenAt: generation });
  process.stdout.write(`${generation}\n`);
}
