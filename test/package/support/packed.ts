import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packEngines } from '../../../scripts/pack-engines.ts';
import { runFolder } from '../../base/support/run-folder.ts';

/** The folder of this repository. */
export const ROOT: string = fileURLToPath(new URL('../../..', import.meta.url));

/** The part of a manifest that tests read. */
export interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly files: readonly string[];
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly dependencies: Readonly<Record<string, string>>;
}

/** The manifest of this package. */
export const MANIFEST: Manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

/** Returns the names that a program may import: `datapath-cache`, `datapath-cache/ipcache`, … */
function entriesOf({ name, exports }: Manifest): readonly string[] {
  return Object.entries(exports)
    .filter(([, target]) => typeof target === 'object')
    .map(([path]) => `${name}${path.slice(1)}`);
}

/** What a program may import of this package. */
export const ENTRIES: readonly string[] = entriesOf(MANIFEST);

/** A separate project with a package that is installed as if published. */
export interface ScratchProject {
  readonly folder: string;
  /** The folder of the installed package. */
  readonly installed: string;
  readonly manifest: Manifest;
  /** The entries of the package. */
  readonly entries: readonly string[];
  write(name: string, text: string): void;
  remove(): void;
}

/**
 * Copies an earlier build, so that only changes are compiled. Omits outputs without a source.
 *
 * The compiler reuses its results for a file of `node_modules` only if the path relative to `dist` is the same. The
 * copy has a symbolic link to `node_modules`, so the paths are the same only with `preserveSymlinks`.
 */
function copyBuild(source: string): void {
  const built = join(ROOT, 'dist');
  if (!existsSync(join(built, '.tsbuildinfo'))) return;
  const configuration = join(source, 'tsconfig.build.json');
  const { compilerOptions, ...others } = JSON.parse(readFileSync(configuration, 'utf8'));
  const options = { ...compilerOptions, preserveSymlinks: true };
  writeFileSync(configuration, JSON.stringify({ ...others, compilerOptions: options }));
  const hasSource = (path: string): boolean => {
    const [, name] = /^(.*?)(?:\.d\.ts|\.js)$/.exec(relative(built, path)) ?? [];
    return (
      name === undefined || ['.ts', '.tsx'].some((type) => existsSync(join(ROOT, 'src', `${name}${type}`)))
    );
  };
  cpSync(built, join(source, 'dist'), { recursive: true, filter: hasSource });
}

/** The tarballs of both packages, from one build of a copy of this repository. */
export interface Tarballs {
  readonly main: string;
  readonly engines: string;
  remove(): void;
}

/** Packs the package, which builds it, and then the engines of this build. */
export function packAll(): Tarballs {
  const root = runFolder('dpcache-packed-');
  const source = join(root, 'source');
  const inputs = ['src', 'ui', 'scripts', 'package.json', 'tsconfig.json', 'tsconfig.build.json'];
  for (const name of [...inputs, ...MANIFEST.files]) {
    if (name !== 'dist' && !name.startsWith('!'))
      cpSync(join(ROOT, name), join(source, name), { recursive: true });
  }
  copyBuild(source);
  symlinkSync(join(ROOT, 'node_modules'), join(source, 'node_modules'));
  execFileSync('npm', ['pack', '--pack-destination', root], { cwd: source, stdio: 'pipe' });
  return {
    main: join(root, `${MANIFEST.name}-${MANIFEST.version}.tgz`),
    engines: packEngines(source, root),
    remove: () => rmSync(root, { recursive: true, force: true }),
  };
}

/** Installs a tarball in an empty project, with the dependencies of its manifest. */
export function scratchProject(name: string, tarball: string): ScratchProject {
  const folder = runFolder('dpcache-project-');
  const installed = join(folder, 'node_modules', name);
  mkdirSync(installed, { recursive: true });
  execFileSync('tar', ['xzf', tarball, '-C', installed, '--strip-components=1']);
  const manifest: Manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
  for (const dependency of Object.keys(manifest.dependencies)) {
    const link = join(folder, 'node_modules', dependency);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', dependency), link);
  }
  const write = (file: string, text: string): void => writeFileSync(join(folder, file), text);
  write('package.json', '{ "type": "module" }');
  return {
    folder,
    installed,
    manifest,
    entries: entriesOf(manifest),
    write,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
