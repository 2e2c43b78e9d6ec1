import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { until } from '../base/support/until.ts';

it.skipIf(process.platform === 'win32')(
  'npm run test:image removes its folder at Ctrl-C (regression: sh left 2 GB)',
  async () => {
    const [work, ready] = [temporaryFolder({}), '#!/bin/sh\n'];
    const programs = {
      buildah: ready,
      npm: ready,
      id: `${ready}echo 0\n`,
      mmdebstrap: `${ready}exec sleep 60\n`,
    };
    const bin = temporaryFolder(programs);
    for (const name of Object.keys(programs)) chmodSync(join(bin, name), 0o755);
    const child = spawn('sh', [new URL('../../scripts/test-image.sh', import.meta.url).pathname], {
      env: { ...process.env, PATH: `${bin}:${process.env['PATH']}`, TMPDIR: work },
      stdio: ['ignore', 'pipe', 'inherit'],
      detached: true, // a process group, to which a terminal sends its signals
    });
    await until('the script has a folder', () => readdirSync(work).length > 0);
    await once(child.stdout, 'data');
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGINT');
    expect(await once(child, 'exit')).toEqual([130, null]);
    expect(readdirSync(work)).toEqual([]);
  },
);
