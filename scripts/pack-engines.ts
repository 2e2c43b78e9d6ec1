import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Entries of the engines' package. They use no package except `immutable`; only `formats` uses modules of Node. */
const ENTRIES = ['ipcache', 'servicecache', 'nodemanager', 'shared', 'formats'] as const;

/** Matches the specifier of an import, an export or an import type, also over several lines. */
const SPECIFIER = /\b(?:from\s*|import\s*\(\s*|import\s+)['"]([^'"]+)['"]/g;

/** Adds a built file and all files that it imports to `files`, and the names of imported packages to `packages`. */
function follow(file: string, files: Set<string>, packages: Set<string>): void {
  if (files.has(file)) return;
  files.add(file);
  for (const [, name = ''] of readFileSync(file, 'utf8').matchAll(SPECIFIER)) {
    if (!name.startsWith('.')) packages.add(name);
    else follow(importedFile(file, name), files, packages);
  }
}

/** Returns the file of a relative import. Declarations import declarations, under the name of their module. */
function importedFile(file: string, name: string): string {
  const path = join(dirname(file), name);
  return file.endsWith('.d.ts') ? path.replace(/(?:\.d)?\.[jt]s$/, '.d.ts') : path;
}

function manifest(
  version: string,
  main: Readonly<Record<string, unknown>>,
  dependencies: Readonly<Record<string, string>>,
): object {
  const { immutable, fzstd } = dependencies;
  const { license, repository, homepage, bugs, type, engines } = main;
  const target = (entry: string): object => ({
    types: `./dist/${entry}.d.ts`,
    default: `./dist/${entry}.js`,
  });
  return {
    name: '@datapath-cache/engines',
    version,
    description:
      'The engines and formats of datapath-cache alone: IP, service and node caches for network agents',
    license,
    repository,
    homepage,
    bugs,
    type,
    engines,
    exports: {
      ...Object.fromEntries(ENTRIES.map((entry) => [`./${entry}`, target(entry)])),
      './package.json': './package.json',
    },
    files: ['dist'],
    sideEffects: false,
    dependencies: { immutable },
    // For endpoint slices on Node.js before 22.15, which has no zstd.
    peerDependencies: { fzstd },
    peerDependenciesMeta: { fzstd: { optional: true } },
  };
}

/**
 * Writes the package `@datapath-cache/engines` into an empty folder: the files of `built/dist` that its entries import.
 * Throws if an entry imports a package that is no dependency.
 */
export function assembleEngines(built: string, folder: string): void {
  const { version, dependencies, ...main } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const files = new Set<string>();
  const packages = new Set<string>();
  for (const entry of ENTRIES)
    for (const suffix of ['.js', '.d.ts']) follow(join(built, 'dist', entry + suffix), files, packages);
  const others = [...packages].filter((name) => name !== 'immutable' && !name.startsWith('node:'));
  if (others.length > 0) throw new Error(`the engines import other packages: ${others.join(', ')}`);
  for (const file of files) cpSync(file, join(folder, relative(built, file)));
  const described = manifest(version, main, dependencies);
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(described, undefined, 2)}\n`);
  cpSync(join(ROOT, 'scripts/engines/README.md'), join(folder, 'README.md'));
  cpSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'));
}

/** Packs the engines of a build into a folder and returns the path of the tarball. */
export function packEngines(built: string, to: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'dpcache-engines-'));
  try {
    assembleEngines(built, folder);
    const packed = execFileSync('npm', ['pack', '--silent', '--pack-destination', to], {
      cwd: folder,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return join(to, packed.trim());
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const tarball = packEngines(ROOT, process.argv[2] ?? process.cwd());
  process.stdout.write(`${tarball}\n`);
}
