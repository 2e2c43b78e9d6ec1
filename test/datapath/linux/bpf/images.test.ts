import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const REPO = fileURLToPath(new URL('../../../..', import.meta.url));
const OTHER_COMPILER = 3;

const { status, stderr } = spawnSync('npx', ['tsx', 'scripts/build-bpf.ts', '--check'], {
  cwd: REPO,
  encoding: 'utf8',
});
const reason = stderr.split('\n').findLast((line) => /clang|was compiled/.test(line)) ?? '';
// Continuous integration installs the compiler. There, a comparison that cannot run is a failure.
const isSkipped = status === OTHER_COMPILER && process.env['REQUIRE_DATAPATH'] !== '1';

it.skipIf(isSkipped)(
  `programs are what their C compiles to${isSkipped ? `: not compared, ${reason}` : ''}`,
  () => {
    expect(stderr).not.toContain('has changed');
    expect([status, reason]).toEqual([0, '']);
  },
);
