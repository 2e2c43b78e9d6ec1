import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { runCommand } from '../../src/cli/program.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { ATLANTIC, dpcache, example, nothing } from './support/run.ts';

const MESH = [...ATLANTIC, '--manifests', example('services.yaml')];

/** Every list and get, with the first key that it has. */
const KEYED: readonly (readonly [readonly string[], string])[] = [
  [['ipcache', 'list'], '10.10.0.1/32'],
  [['ipcache', 'get', '172.20.7.7'], '172.20.0.0/16'],
  [['service', 'list'], 'bank/ledger'],
  [['service', 'get', 'shop/checkout'], 'shop/checkout'],
  [['node', 'list'], 'atlantic/atlantic-node-1'],
  [['node', 'get', 'baltic/baltic-node-1'], 'baltic/baltic-node-1'],
  [['identity', 'list'], '66536'],
  [['identity', 'get', '66536'], '66536'],
];

describe.each(KEYED)('%j', (words, first) => {
  it('-o name: keys only', async () => {
    const { status, stdout } = await dpcache(...words, ...MESH, '-o', 'name');
    expect({ status, first: stdout.split('\n')[0] }).toEqual({ status: 0, first });
    const rows = (await dpcache(...words, ...MESH, '-o', 'json')).stdout;
    const all: unknown = JSON.parse(rows);
    expect(stdout.trimEnd().split('\n')).toHaveLength(Array.isArray(all) ? all.length : 1);
  });

  it('-o yaml: the same data as -o json', async () => {
    const [yaml, json] = [
      await dpcache(...words, ...MESH, '-o', 'yaml'),
      await dpcache(...words, ...MESH, '-o', 'json'),
    ];
    expect(parse(yaml.stdout)).toEqual(JSON.parse(json.stdout));
  });

  it('-q: only the exit status', async () => {
    expect(await dpcache(...words, ...MESH, '-q')).toEqual({ status: 0, stdout: '', stderr: '' });
  });
});

it.each([[[]], [['-o', 'json']]])(
  'prints nothing with -q and %j if the object does not exist (regression: printed the text on stderr)',
  async (format) => {
    const words = ['service', 'get', 'no/such', ...format, ...MESH, '-q'];
    expect(await dpcache(...words)).toEqual({ status: 1, stdout: '', stderr: '' });
  },
);

it('-o wide: more columns, each at its full width', async () => {
  const header = async (what: string, format: string): Promise<readonly string[]> =>
    (await dpcache(what, 'list', ...MESH, '-o', format)).stdout.split('\n')[0]?.split(/ {2,}/) ?? [];
  for (const [what, more] of [
    ['ipcache', ['SERVICE ACCOUNT', 'PORTS', 'LABELS']],
    ['service', ['AFFINITY', 'NODES', 'ADDRESSES']],
    ['node', ['HEALTH', 'INGRESS', 'WIREGUARD KEY', 'BOOT ID', 'LABELS']],
  ] as const) {
    const narrow = await header(what, 'text');
    expect((await header(what, 'wide')).filter((column) => !narrow.includes(column))).toEqual(more);
  }
});

it.each(['name', 'json', 'yaml', 'text'])(
  '-o %s steers no terminal, whatever a name is (regression: -o name did)',
  async (format) => {
    const name = 'n\u001b[2J\u009b1m\u202e';
    const address = { Type: 'InternalIP', IP: '10.0.0.1' };
    const value = { Name: name, Cluster: 'baltic', IPAddresses: [address], Source: 'custom-resource' };
    const key = `cilium/state/nodes/v1/baltic/${name}`;
    const keys = { store: 'baltic', key, value: JSON.stringify(value) };
    const load = join(temporaryFolder({ 'a.jsonl': `${JSON.stringify(keys)}\n` }), 'a.jsonl');
    const shown = async (isTTY: boolean): Promise<string> => {
      let text = '';
      const stdout = { write: (part: string) => (text += part), isTTY };
      const stderr = { write: () => true };
      const io = { stdout, stderr, stdin: nothing(), env: {}, signal: new AbortController().signal };
      await runCommand(['node', 'list', '--cluster', 'atlantic', '--load', load, '-o', format], io);
      return text;
    };
    expect(await shown(true)).toContain('\\u009b1m\\u202e');
    expect(await shown(true)).not.toMatch(/[^\P{Cc}\n]|\u202e/u);
    if (format === 'json') expect(JSON.parse(await shown(true))).toEqual(JSON.parse(await shown(false)));
    if (format === 'name') expect(await shown(false)).toBe(`baltic/${name}\n`);
  },
);

it('a table is cut to the width of a terminal, unless it is wide or the output is not a terminal', async () => {
  const widest = async (columns: number | undefined, format: string): Promise<number> => {
    let text = '';
    const stdout = { write: (part: string) => (text += part), isTTY: columns !== undefined, columns };
    const io = { stdout, stderr: stdout, stdin: nothing(), env: {}, signal: new AbortController().signal };
    await runCommand(['node', 'list', ...MESH, '-o', format], io);
    return Math.max(...text.split('\n').map((line) => line.length));
  };
  const full = await widest(undefined, 'text');
  expect(full).toBeGreaterThan(60);
  expect(await widest(60, 'text')).toBe(60);
  expect(await widest(60, 'wide')).toBeGreaterThan(full);
});

it('output without keys rejects -o name, and a command that reads a mesh itself rejects --watch', async () => {
  expect(await dpcache('status', ...MESH, '-o', 'name')).toMatchObject({ status: 2 });
  const { status, stderr } = await dpcache('node', 'list', '--watch', ...MESH);
  expect({ status, why: stderr.split('\n')[0] }).toEqual({
    status: 2,
    why: 'dpcache: --watch requires a running agent: remove the options that name a source',
  });
});
