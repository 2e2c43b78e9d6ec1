import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { dpcache } from './support/run.ts';

const {
  bash = '',
  zsh = '',
  fish = '',
} = Object.fromEntries(
  await Promise.all(
    ['bash', 'zsh', 'fish'].map(
      async (shell) => [shell, (await dpcache('completion', shell)).stdout] as const,
    ),
  ),
);

/** What bash offers after these words, the last of which is being typed. */
function offered(...words: readonly string[]): readonly string[] {
  const program = `${bash}
COMP_WORDS=(dpcache "$@"); COMP_CWORD=$#
_dpcache
printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync('bash', ['-c', program, 'bash', ...words], { encoding: 'utf8' });
  expect(stderr).toBe('');
  return stdout.split('\n').filter(Boolean);
}

it('bash completes commands, options, and values of both', () => {
  expect(offered('ip')).toEqual(['ipcache']);
  expect(offered('ipcache', '')).toEqual(['list', 'get', 'explain', 'lookup']);
  expect(offered('ipcache', 'list', '--wi')).toEqual(['--within']);
  expect(offered('ipcache', 'list', '-o', '')).toEqual(['text', 'wide', 'json', 'yaml', 'name']);
  expect(offered('agent', '--log-level', 'd')).toEqual(['debug']);
  expect(offered('agent', '--load', 'd')).toEqual([]); // files, by readline
  expect(offered('completion', '')).toEqual(['bash', 'zsh', 'fish']);
  expect(offered('nonsense', 'x')).toEqual([]);
});

it('zsh uses the same, and fish is told every command', () => {
  expect(zsh).toContain(bash);
  expect(zsh.startsWith('#compdef dpcache\n')).toBe(true);
  expect(fish).toContain("-n '__dpcache_at ipcache' -f -a list -d 'every visible prefix'");
  expect(fish).toMatch(/-n '__dpcache_at ipcache list' -l output -x -a 'text wide json yaml name'/);
});
