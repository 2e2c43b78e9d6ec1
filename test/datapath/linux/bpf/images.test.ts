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

it.skipIf(status === OTHER_COMPILER)(
  `programs are what their C compiles to${status === OTHER_COMPILER ? `: not to be told here, ${reason}` : ''}`,
  () => {
    expect(stderr).not.toContain('has changed');
    expect(status).toBe(0);
  },
);
