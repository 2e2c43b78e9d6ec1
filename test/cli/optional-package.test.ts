import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { PROGRAM } from './support/program.ts';
import { ATLANTIC } from './support/run.ts';

const { optionalDependencies } = JSON.parse(
  readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
);

/** Runs `dpcache` in a process where requiring koffi throws this error. */
function withKoffi(error: string, ...words: readonly string[]): { status: number | null; stderr: string } {
  const folder = temporaryFolder({
    'hide.cjs': `
      const Module = require('node:module');
      const { _load } = Module;
      Module._load = function (name, ...rest) {
        if (name === 'koffi') throw ${error};
        return _load.call(this, name, ...rest);
      };`,
  });
  return spawnSync(process.execPath, ['--require', join(folder, 'hide.cjs'), PROGRAM, ...words], {
    encoding: 'utf8',
    env: { ...process.env, XDG_RUNTIME_DIR: folder },
  });
}

const NOT_FOUND = "Object.assign(new Error('Cannot find module'), { code: 'MODULE_NOT_FOUND' })";

describe.runIf(process.platform === 'linux')('without the optional package koffi', () => {
  const major = optionalDependencies.koffi.split('.')[0];

  it('--datapath linux ends with status 2 and names the command that installs it', () => {
    const { status, stderr } = withKoffi(NOT_FOUND, 'agent', ...ATLANTIC, '--datapath', 'linux');
    expect(stderr).toContain(
      `--datapath linux: the optional package koffi is not installed: npm install koffi@${major}\n`,
    );
    expect(stderr).not.toContain(' at '); // no stack
    expect(status).toBe(2);
  });

  it('--datapath linux names the defect of a package of another system', () => {
    const { status, stderr } = withKoffi(
      "new Error('invalid ELF header')",
      'agent',
      '--datapath',
      'linux',
      ...ATLANTIC,
    );
    expect(stderr).toContain(
      `the package koffi does not load: invalid ELF header. Install it on this system: npm install koffi@${major}\n`,
    );
    expect(status).toBe(2);
  });

  it('an agent without a datapath does not require it', () => {
    const { status, stderr } = withKoffi(NOT_FOUND, 'agent', ...ATLANTIC, '--once');
    expect(stderr).toBe('');
    expect(status).toBe(0);
  });
});
