import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { bundle } from '../base/support/bundle.ts';

const RUNNER = new URL('../../bench/bench-process.ts', import.meta.url).pathname;

it('npm run bench leaves no files at Ctrl-C (regression: folders and a mount stayed)', async () => {
  const bench = `
    const { mkdtempSync } = require('node:fs');
    console.log(mkdtempSync(require('node:os').tmpdir() + '/bench-'));
    setInterval(() => {}, 1000);`;
  const program = `import { runNode } from ${JSON.stringify(RUNNER)};
    await runNode(['-e', ${JSON.stringify(bench)}], 'inherit');`;
  const folder = temporaryFolder({ 'program.mts': program });
  await bundle([`${folder}/program.mts`], folder);
  const TMPDIR = temporaryFolder({});
  const child = spawn(process.execPath, [`${folder}/program.js`], {
    env: { ...process.env, TMPDIR },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true, // a process group, to which a terminal sends its signals
  });
  const [path] = await once(child.stdout, 'data');
  expect(String(path)).toContain(`${TMPDIR}/dpcache-bench-`);
  if (child.pid !== undefined) process.kill(-child.pid, 'SIGINT');
  expect(await once(child, 'exit')).toEqual([null, 'SIGINT']);
  expect(readdirSync(TMPDIR)).toEqual([]);
});
