import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';

/** Runs the script with fake releases of Node.js, and a fake npm, which cannot install any. */
function testNodes(
  releases: Readonly<Record<string, string>>,
  lines: string,
): { status: number | null; text: string } {
  const cache = temporaryFolder({});
  const program = (path: string, script: string): void => {
    writeFileSync(path, `#!/bin/sh\n${script}\n`);
    chmodSync(path, 0o755);
  };
  mkdirSync(join(cache, 'bin'));
  program(join(cache, 'bin/npm'), 'exit 1');
  for (const [line, script] of Object.entries(releases)) {
    const bin = join(cache, line, 'node_modules/.bin');
    mkdirSync(bin, { recursive: true });
    program(join(bin, 'node'), `[ "$1" = --version ] && { echo v${line}.9.9; exit; }\n${script}`);
  }
  const { status, stdout } = spawnSync('sh', ['scripts/test-nodes.sh', 'test/api', '--bail=1'], {
    encoding: 'utf8',
    env: {
      ...process.env,
      PATH: `${join(cache, 'bin')}:${process.env['PATH']}`,
      NODES_CACHE: cache,
      NODES: lines,
    },
  });
  return { status, text: stdout };
}

it('runs Vitest with its arguments on each line of Node.js, even after one has failed', () => {
  const echo = 'echo "$@ on $(node --version)"';
  const { status, text } = testNodes({ 20: echo, 24: `${echo}; exit 1`, 26: echo }, '20 24 26');
  const ran = (version: string): string =>
    `node_modules/vitest/vitest.mjs run test/api --bail=1 on ${version}`;
  expect(text.split('\n').filter((row) => row !== '')).toEqual([
    ...[ran('v20.9.9'), ran('v24.9.9'), ran('v26.9.9')],
    ...['Node.js v20.9.9: passed', 'Node.js v24.9.9: failed', 'Node.js v26.9.9: passed'],
  ]);
  expect(status).toBe(1);
});

it('succeeds if all lines pass', () => {
  expect(testNodes({ 20: 'exit 0' }, '20')).toMatchObject({ status: 0 });
});

it('fails for a line of Node.js that cannot be installed, and names the package', () => {
  const { status, text } = testNodes({ 26: 'exit 0' }, '24 26');
  const name = `node-${process.platform}-${process.arch}@24`;
  expect(text).toContain(
    `Node.js 24: not run, because npm could not install ${name}\nNode.js v26.9.9: passed`,
  );
  expect(status).toBe(1);
});
