import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ATLANTIC, example } from './support/run.ts';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));

interface Process {
  readonly child: ChildProcess;
  /** Resolves once what the process has printed contains `text`. */
  readonly shows: (text: string) => Promise<void>;
  readonly output: () => { stdout: string; stderr: string };
}

function start(...words: readonly string[]): Process {
  const child = spawn(process.execPath, ['--import', 'tsx', MAIN, ...words], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const output = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output.stderr += text;
  });
  const shows = async (text: string): Promise<void> => {
    while (!output.stdout.includes(text)) await once(child.stdout, 'data');
  };
  return { child, shows, output: () => output };
}

const LIVE = ['agent', ...ATLANTIC, '--manifests', example('services.yaml')];

describe('a running agent', () => {
  it.each(['SIGINT', 'SIGTERM'] as const)(
    'stops cleanly on %s, in the middle of a script too',
    async (signal) => {
      const { child, shows, output } = start(...LIVE, '--play', example('changes.yaml'));
      await shows('Every change is shown from here on');
      child.kill(signal);
      const [status, killedBy] = await once(child, 'exit');
      expect({ status, killedBy }).toEqual({ status: 0, killedBy: null });
      expect(output().stderr).toBe('');
    },
  );

  it('writes no colours where nobody looks', async () => {
    const { child, shows, output } = start(...LIVE);
    await shows('Every change is shown from here on');
    child.kill('SIGINT');
    await once(child, 'exit');
    expect(output().stdout).not.toContain('\u001B');
    expect(output().stdout).toContain('339 prefixes, 12 nodes, 5 services with 156 backends');
  });
});

describe('a reader that has seen enough', () => {
  it('ends a command quietly when it closes the pipe', async () => {
    const { child, output } = start('ipcache', 'list', ...ATLANTIC, '-o', 'json');
    child.stdout?.destroy();
    const [status] = await once(child, 'exit');
    expect({ status, stderr: output().stderr }).toEqual({ status: 0, stderr: '' });
  });
});
