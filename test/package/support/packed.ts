import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of this repository. */
export const ROOT: string = fileURLToPath(new URL('../../..', import.meta.url));

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly files: readonly string[];
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly dependencies: Readonly<Record<string, string>>;
}

/** The manifest of this package. */
export const MANIFEST: Manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

/** What a program may import: `datapath-cache`, `datapath-cache/ipcache`, … */
export const ENTRIES: readonly string[] = Object.entries(MANIFEST.exports)
  .filter(([, target]) => typeof target === 'object')
  .map(([name]) => `datapath-cache${name.slice(1)}`);

/** A project of somebody else in which the package has been installed as it would be published. */
export interface ScratchProject {
  readonly folder: string;
  /** Where the package is. */
  readonly installed: string;
  write(name: string, text: string): void;
  remove(): void;
}

/** Copies an earlier build, so that only what has changed since is compiled; leaves out outputs without a source. */
function copyBuild(source: string): void {
  const built = join(ROOT, 'dist');
  if (!existsSync(join(built, '.tsbuildinfo'))) return;
  const hasSource = (path: string): boolean => {
    const [, name] = /^(.*?)(?:\.d\.ts|\.js)$/.exec(relative(built, path)) ?? [];
    return (
      name === undefined || ['.ts', '.tsx'].some((type) => existsSync(join(ROOT, 'src', `${name}${type}`)))
    );
  };
  cpSync(built, join(source, 'dist'), { recursive: true, filter: hasSource });
}

/** Packs the package, which builds it, and installs it in an empty project with the dependencies that it names. */
export function scratchProject(): ScratchProject {
  const root = mkdtempSync(join(tmpdir(), 'dpcache-packed-'));
  const [source, folder] = [join(root, 'source'), join(root, 'project')];
  const installed = join(folder, 'node_modules/datapath-cache');
  const inputs = ['src', 'ui', 'scripts', 'package.json', 'tsconfig.json', 'tsconfig.build.json'];
  for (const name of [...inputs, ...MANIFEST.files]) {
    if (name !== 'dist' && !name.startsWith('!'))
      cpSync(join(ROOT, name), join(source, name), { recursive: true });
  }
  copyBuild(source);
  symlinkSync(join(ROOT, 'node_modules'), join(source, 'node_modules'));
  execFileSync('npm', ['pack', '--pack-destination', root], { cwd: source, stdio: 'pipe' });
  mkdirSync(installed, { recursive: true });
  const tarball = join(root, `${MANIFEST.name}-${MANIFEST.version}.tgz`);
  execFileSync('tar', ['xzf', tarball, '-C', installed, '--strip-components=1']);
  for (const name of Object.keys(MANIFEST.dependencies)) {
    const link = join(folder, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), link);
  }
  const write = (name: string, text: string): void => writeFileSync(join(folder, name), text);
  write('package.json', '{ "type": "module" }');
  return { folder, installed, write, remove: () => rmSync(root, { recursive: true, force: true }) };
}
