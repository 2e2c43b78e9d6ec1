import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const VALUES: readonly string[] = ['base', 'columns', 'net', 'lpm', 'model'];
const CACHES: readonly string[] = [...VALUES, 'ipcache', 'servicecache', 'nodemanager'];
const BELOW_PROCESSES: readonly string[] = [
  ...[...CACHES, 'metadata', 'sharedlookup', 'restore', 'history', 'whatif', 'compare', 'datapath'],
  ...['kvstore', 'clustermesh', 'k8s', 'operator', 'api'],
];
const BELOW_AGENT: readonly string[] = [...BELOW_PROCESSES, 'process', 'recording', 'tape', 'client'];

/** The table "Folders of the source": what each folder may import of our other folders. */
const FOLDERS: Readonly<Record<string, readonly string[]>> = {
  base: [],
  columns: ['base'],
  net: ['base'],
  lpm: ['base', 'columns', 'net'],
  model: ['base', 'net'],
  ipcache: VALUES,
  servicecache: VALUES,
  nodemanager: [...VALUES, 'ipcache'],
  metadata: [...VALUES, 'ipcache'],
  sharedlookup: [...VALUES, 'ipcache'],
  restore: [...CACHES, 'metadata'],
  history: CACHES,
  whatif: CACHES,
  compare: CACHES,
  ciliumdump: ['base', 'net', 'model'],
  datapath: CACHES,
  kvstore: VALUES,
  clustermesh: [...CACHES, 'kvstore'],
  k8s: [...CACHES, 'metadata'],
  operator: [...CACHES, 'metadata', 'kvstore', 'clustermesh', 'k8s'],
  api: [...CACHES, 'history', 'whatif', 'compare', 'kvstore'],
  process: BELOW_PROCESSES,
  recording: [...BELOW_PROCESSES, 'process'],
  tape: [...BELOW_PROCESSES, 'process', 'recording'],
  client: [...BELOW_PROCESSES, 'process'],
  sysdump: [
    ...BELOW_PROCESSES.filter((folder) => folder !== 'sharedlookup'),
    'process',
    'recording',
    'ciliumdump',
  ],
  agent: BELOW_AGENT,
  cli: [...BELOW_AGENT, 'ciliumdump', 'sysdump', 'agent'],
};

/** What each folder of `src/kvstore` may import of the others. */
const KVSTORE_FOLDERS: Readonly<Record<string, readonly string[]>> = {
  codec: [],
  session: ['codec'],
  watch: ['codec', 'session'],
  stores: ['codec', 'session', 'watch'],
  allocator: ['codec', 'session', 'watch', 'stores'],
  gc: ['codec', 'session'],
  etcd: ['codec', 'session', 'watch'],
  memory: ['codec', 'session', 'watch'],
};
const ENGINES = [
  ...VALUES,
  'ipcache',
  'servicecache',
  'nodemanager',
  'metadata',
  'history',
  'whatif',
  'compare',
  'sharedlookup',
  'ciliumdump',
].filter((folder) => folder !== 'base');
const NAMES = Object.keys(FOLDERS);
const REPO = new URL('../..', import.meta.url).pathname;
const BIOME = join(REPO, 'node_modules/.bin/biome');

/** Sources by path, and the rule each of them breaks (`undefined`: none). */
const SOURCES: Record<string, { text: string; breaks: string | undefined }> = {};

function source(path: string, text: string, breaks: string | undefined): void {
  SOURCES[path] = { text, breaks };
}

for (const folder of NAMES) {
  source(`src/${folder}/leaf.ts`, 'export const leaf: number = 1;\n', undefined);
  for (const target of NAMES.filter((name) => name !== folder)) {
    const text = `import { leaf } from '../${target}/leaf.ts';\n\nexport const here: number = leaf;\n`;
    const legal = FOLDERS[folder]?.includes(target);
    source(`src/${folder}/imports-${target}.ts`, text, legal ? undefined : 'noRestrictedImports');
  }
}
for (const [folder, may] of Object.entries(KVSTORE_FOLDERS)) {
  source(`src/kvstore/${folder}/leaf.ts`, 'export const leaf: number = 1;\n', undefined);
  for (const target of Object.keys(KVSTORE_FOLDERS).filter((name) => name !== folder)) {
    const text = `import { leaf } from '../${target}/leaf.ts';\n\nexport const here: number = leaf;\n`;
    const rule = may.includes(target) ? undefined : 'noRestrictedImports';
    source(`src/kvstore/${folder}/imports-${target}.ts`, text, rule);
  }
  const up = "import { leaf } from '../../clustermesh/leaf.ts';\n\nexport const here: number = leaf;\n";
  source(`src/kvstore/${folder}/imports-up.ts`, up, 'noRestrictedImports');
}
source('src/net/exports-up.ts', "export { leaf } from '../agent/leaf.ts';\n", 'noRestrictedImports');
source('src/net/type-up.ts', "export type { leaf } from '../ipcache/leaf.ts';\n", 'noRestrictedImports');
source(
  'src/net/dynamic-up.ts',
  "export const later: Promise<unknown> = import('../ipcache/leaf.ts');\n",
  'noRestrictedImports',
);
for (const folder of ENGINES) {
  const node = "import { readFileSync } from 'node:fs';\n\nexport const read: unknown = readFileSync;\n";
  source(`src/${folder}/uses-node.ts`, node, 'noNodejsModules');
  for (const name of ['setTimeout', 'setInterval', 'Date', 'process', 'console', 'performance', 'Buffer']) {
    const text = `export const impure: unknown = ${name};\n`;
    source(`src/${folder}/uses-${name.toLowerCase()}.ts`, text, 'noRestrictedGlobals');
  }
}
source(
  'src/kvstore/uses-node.ts',
  "import { readFileSync } from 'node:fs';\n\nexport const read: unknown = readFileSync;\n",
  undefined,
);
source(
  'src/datapath/linux/uses-node.ts',
  "import { readFileSync } from 'node:fs';\n\nexport const read: unknown = readFileSync;\n",
  undefined,
);
source(
  'src/datapath/uses-node.ts',
  "import { readFileSync } from 'node:fs';\n\nexport const read: unknown = readFileSync;\n",
  'noNodejsModules',
);
const FLOATING =
  'async function work(): Promise<void> {\n  await Promise.resolve();\n}\n\nexport function run(): void {\n  work();\n}\n';
source('src/kvstore/floating.ts', FLOATING, 'noFloatingPromises');
source('src/kvstore/awaited.ts', FLOATING.replace('  work();\n', '  void work();\n'), undefined);
source(
  'src/k8s/cycle-a.ts',
  "import { b } from './cycle-b.ts';\n\nexport const a = (): number => b();\n",
  'noImportCycles',
);
source(
  'src/k8s/cycle-b.ts',
  "import { a } from './cycle-a.ts';\n\nexport const b = (): number => a();\n",
  'noImportCycles',
);
source('src/agent/barrel.ts', "export * from './leaf.ts';\n", 'noBarrelFile');
source('src/agent/any.ts', 'export const loose: any = 1;\n', 'noExplicitAny');

interface Diagnostic {
  readonly category: string;
  readonly location: { readonly path: string };
}

let folder = '';
let rulesByPath: ReadonlyMap<string, readonly string[]> = new Map();

function lint(cwd: string): ReadonlyMap<string, readonly string[]> {
  const run = spawnSync(
    BIOME,
    ['lint', '--vcs-enabled=false', '--max-diagnostics=none', '--reporter=json', 'src'],
    {
      cwd,
      encoding: 'utf8',
      maxBuffer: 64 << 20,
    },
  );
  const found = new Map<string, string[]>();
  const { diagnostics } = JSON.parse(run.stdout) as { diagnostics: readonly Diagnostic[] };
  for (const { category, location } of diagnostics) {
    const rules = found.get(location.path) ?? [];
    rules.push(category.split('/').at(-1) ?? category);
    found.set(location.path, rules);
  }
  return found;
}

describe('the linter, with the configuration of this repository', () => {
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'dpcache-lint-'));
    for (const file of ['biome.json', 'tsconfig.json']) cpSync(join(REPO, file), join(folder, file));
    for (const [path, { text }] of Object.entries(SOURCES)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
    }
    rulesByPath = lint(folder);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each(Object.entries(SOURCES).filter(([, { breaks }]) => breaks !== undefined))(
    'refuses %s',
    (path, { breaks }) => {
      expect(rulesByPath.get(path) ?? []).toContain(breaks);
    },
  );

  it('accepts every legal import', () => {
    const legal = Object.keys(SOURCES).filter((path) => SOURCES[path]?.breaks === undefined);
    expect(legal.length).toBeGreaterThan(NAMES.length);
    expect(legal.filter((path) => rulesByPath.has(path))).toEqual([]);
  });
});
