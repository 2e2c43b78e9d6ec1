import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { derivedName } from '../src/operator/mcs/names.ts';
import { bundle } from './base/support/bundle.ts';
import { PROGRAM } from './cli/support/program.ts';
import { requireEtcd } from './kvstore/etcd/support/etcd-process.ts';

/** The script with `src`, bundled before the tests, because each start would compile it. */
const BUNDLED = fileURLToPath(new URL('../dist-test/demo-mesh', import.meta.url));
const WORDS = [join(BUNDLED, 'demo-mesh.js'), '--program', PROGRAM];

beforeAll(() => bundle([fileURLToPath(new URL('../scripts/demo-mesh.ts', import.meta.url))], BUNDLED));

async function demonstrate(
  env: NodeJS.ProcessEnv,
): Promise<{ readonly status: unknown; readonly output: string }> {
  const child = spawn(process.execPath, [...WORDS, '--end'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const [status] = await once(child, 'close');
  return { status, output };
}

const STOCK = derivedName('shop', 'stock');

it('npm run demo:mesh shows services that are made global or exported in one cluster appear in the other, and disappear', async () => {
  requireEtcd();
  const { status, output } = await demonstrate(process.env);
  const told = output.split('\n').filter((line) => /^( {2}in|The|In|Done|Baltic|Its)/.test(line));
  expect(told, output).toEqual([
    '  in atlantic shop/checkout is served by 10.1.0.10',
    'The service is made global in both (service.cilium.io/global: "true").',
    '  in atlantic shop/checkout is served by 10.1.0.10, 10.2.0.10',
    '  in baltic shop/checkout is served by 10.1.0.10, 10.2.0.10',
    'In baltic a second pod serves it.',
    '  in atlantic shop/checkout is served by 10.1.0.10, 10.2.0.10, 10.2.0.11',
    'In baltic it becomes local again.',
    '  in atlantic shop/checkout is served by 10.1.0.10',
    `Baltic alone has shop/stock, and exports it by a ServiceExport. Its import is shop/${STOCK} everywhere.`,
    `  in atlantic shop/${STOCK} is served by 10.2.0.20`,
    'In baltic a second pod serves it.',
    `  in atlantic shop/${STOCK} is served by 10.2.0.20, 10.2.0.21`,
    'Its ServiceExport is deleted.',
    `  in atlantic there is no shop/${STOCK}`,
    'Done.',
  ]);
  expect(output).not.toContain('is incomplete'); // regression: agents started before the clusters were published
  expect(status).toBe(0);
});

it('names the package to install if there is no etcd', async () => {
  const { status, output } = await demonstrate({ ...process.env, PATH: '/nowhere' });
  expect(output).toContain('apt-get install etcd-server');
  expect(status).toBe(1);
});

it('removes everything when its reader closes the pipe (regression: the etcds stayed after `| head`)', async () => {
  const TMPDIR = mkdtempSync(join(tmpdir(), 'demo-'));
  const env = { ...process.env, TMPDIR };
  const child = spawn(process.execPath, WORDS, { env, stdio: ['ignore', 'pipe', 'ignore'] });
  child.stdout.once('data', () => child.stdout.destroy());
  await once(child, 'exit');
  expect(readdirSync(TMPDIR).filter((name) => name.startsWith('dpcache-'))).toEqual([]);
  rmSync(TMPDIR, { recursive: true });
});

it('ends at Ctrl-C during the start (regression: it waited for an etcd that a signal had ended)', async () => {
  const TMPDIR = mkdtempSync(join(tmpdir(), 'demo-'));
  // A process group, as a terminal sends the signal to the demonstration and to its processes.
  const child = spawn(process.execPath, WORDS, {
    env: { ...process.env, TMPDIR },
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  });
  const { pid } = child;
  if (pid === undefined) throw new Error('not started');
  onTestFinished(() => {
    if (child.exitCode === null) process.kill(-pid, 'SIGKILL');
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const isStarted = output.includes('operator');
    output += text;
    if (isStarted || !output.includes('operator')) return;
    spawnSync('pkill', ['-KILL', '-g', String(pid), 'etcd']);
    process.kill(-pid, 'SIGINT');
  });
  const [status] = await once(child, 'exit', { signal: AbortSignal.timeout(60_000) });
  expect(status).toBe(0);
  expect(readdirSync(TMPDIR).filter((name) => name.startsWith('dpcache-'))).toEqual([]);
  rmSync(TMPDIR, { recursive: true });
});
