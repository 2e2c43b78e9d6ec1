import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { PROGRAM } from './cli/support/program.ts';
import { requireEtcd } from './kvstore/etcd/support/etcd-process.ts';

it('npm run demo:diagnose finds a stale identity and a forbidden kind, with the reasons, by command and on the pages', async () => {
  requireEtcd();
  const words = ['--import', 'tsx', 'scripts/demo-diagnose.ts', '--program', PROGRAM, '--end'];
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const [status] = await once(child, 'close');
  const told = output
    .split('\n')
    .filter((line) => !line.includes('│')) // lines of the agents and etcds
    .join('\n')
    .replaceAll(/(\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d\.\d{3}Z?/g, 'TIME')
    .replaceAll(/ {2,}/g, '  ');
  const diff = told.split('$ dpcache ').find((part) => part.startsWith('diff')) ?? '';
  expect(diff.trimEnd().split('\n').slice(1), output).toEqual([
    'clustermesh baltic: 1 of 114 claims differs',
    'custom-resource: 1 of 1 claims differs (1 only at b)',
    '  10.20.0.12  a: 132090 shop/checkout-00001 at 192.168.20.1 key 3  b: 132072 shop/checkout-00001 at 192.168.20.1 key 3  b: cluster baltic is unreachable since TIME',
    '  10.90.0.9  a: none  b: 590001 batch/report-0 at 192.168.90.9  a: kind ciliumendpoints is forbidden, incomplete',
    'Reasons: source incomplete, unreachable or not followed 2',
    'Expected differences: 4 (local nodes and their addresses: 4, other claims of one node or cluster: 0)',
  ]);
  const [, ofA = '', ofB = ''] = told.split(/The page of agent [ab] lists under "health":\n/);
  expect(ofA).toContain('Kubernetes ciliumendpoints: forbidden');
  expect(ofA).not.toContain('baltic');
  expect(ofB).toContain('cluster baltic: Kvstore unreachable');
  expect(ofB).not.toContain('forbidden');
  expect(told.trimEnd().endsWith('Done.')).toBe(true);
  expect(status).toBe(0);
});
