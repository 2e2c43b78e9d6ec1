import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';

const RENDERER_SOURCE = 'scripts/apiserver/render.go';

/** Runs the script with a cache of both programs and an apt-get that fails. Returns its output or its exit status. */
function build(edit: (renderer: string) => void): unknown {
  const cache = temporaryFolder({});
  const folder = join(cache, 'datapath-cache/kube-apiserver-1.20.2');
  mkdirSync(folder, { recursive: true });
  mkdirSync(join(cache, 'bin'));
  const renderer = join(folder, 'render-manifests');
  for (const program of [join(cache, 'bin/apt-get'), join(folder, 'kube-apiserver'), renderer])
    writeFileSync(program, '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  copyFileSync(RENDERER_SOURCE, `${renderer}.go`);
  utimesSync(renderer, 0, 0); // older than every checkout
  edit(renderer);
  const { status, stdout } = spawnSync('bash', ['scripts/apiserver/build.sh'], {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${join(cache, 'bin')}:${process.env['PATH']}`, XDG_CACHE_HOME: cache },
  });
  return status === 0 ? stdout.replace(cache, 'CACHE') : status;
}

it('is not repeated in a new clone (regression: the renderer was older than its source, so 100 MB were downloaded again)', () => {
  expect(build(() => {})).toBe('CACHE/datapath-cache/kube-apiserver-1.20.2/kube-apiserver\n');
});

it('is repeated if the source of the renderer has changed', () => {
  expect(build((renderer) => writeFileSync(`${renderer}.go`, 'package main\n'))).toBe(1);
});
