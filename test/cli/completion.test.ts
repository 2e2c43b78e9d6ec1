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

/** A running agent: prints the requested command, and names that must not reach a command line. */
const AGENT = `dpcache() { local IFS=_; printf '%s\\n' "asked/$*\${DPCACHE_SOCKET:+-at-}$DPCACHE_SOCKET" 'bank/$(touch_x)' 'bank/a;b' 'bank/ledger'; }`;

/** Returns the completions of bash for these words. The last word is being typed. */
function offered(...words: readonly string[]): readonly string[] {
  const program = `${AGENT}
${bash}
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

it('bash completes names of the running agent, and sources', () => {
  expect(offered('service', 'get', '')).toEqual(['asked/service_list_-o_name_--limit_1000', 'bank/ledger']);
  expect(offered('ipcache', 'get', '')).toEqual([]);
  expect(offered('identity', 'get', 'bank/l')).toEqual(['bank/ledger']);
  expect(offered('node', 'list', '--of-cluster', 'asked')).toEqual(['asked/clustermesh_status_-o_name']);
  expect(offered('service', 'get', '--ou')).toEqual(['--output']);
  expect(offered('ipcache', 'list', '--source', 'k')).toEqual(['kube-apiserver', 'kvstore', 'k8s']);
  expect(fish).toContain("-l of-cluster -x -a '(__dpcache_ask clustermesh status -o name)'");
});

it('bash asks the agent of --socket (regression: the names of the default agent)', () => {
  const asked = 'asked/service_list_-o_name_--limit_1000-at-/run/b.sock';
  expect(offered('service', 'get', '--socket', '/run/b.sock', 'asked')).toEqual([asked]);
  expect(offered('service', 'get', '--socket', '=', '/run/b.sock', 'asked')).toEqual([asked]);
});

it('zsh uses the same script, and fish gets every command', () => {
  expect(zsh).toContain(bash);
  expect(zsh.startsWith('#compdef dpcache\n')).toBe(true);
  expect(fish).toContain("-n '__dpcache_at ipcache' -f -a list -d 'list all prefixes'");
  expect(fish).toMatch(/-n '__dpcache_at ipcache list' -l output -x -a 'text wide json yaml name'/);
});

it('fish asks the agent of --socket (regression: the names of the default agent)', () => {
  expect(fish).toContain(
    "-n '__dpcache_at service get' -f -a '(__dpcache_ask service list -o name --limit 1000)'",
  );
  expect(fish).toMatch(/"\$before" = --socket; and set DPCACHE_SOCKET \$word/);
  expect(fish).not.toContain("'(dpcache "); // every question uses the socket
});
