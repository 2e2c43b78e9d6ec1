import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { constants, Script } from 'node:vm';
import { build, type Plugin } from 'esbuild';

/** Loads test files by name; their imports are evaluated once. */
export interface LoadedBundle {
  readonly load: (file: string) => void;
}

/** Variables that a bundle receives, by their name in it. */
export type Surroundings = Readonly<Record<string, unknown>>;

/** `import.meta.url`, which a script does not have, is written into each file. */
const FILE_URLS: Plugin = {
  name: 'file-urls',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const url = JSON.stringify(pathToFileURL(path).href);
      return { contents: readFileSync(path, 'utf8').replaceAll('import.meta.url', url), loader: 'ts' };
    });
  },
};

/**
 * Test files and all their imports as one script, compiled once and evaluated for each run, so that runs
 * share no state. Packages are not included: they are loaded once for all.
 */
export class TestBundle {
  readonly files: readonly string[];
  readonly #script: Script;
  readonly #names: readonly string[];

  private constructor(files: readonly string[], code: string, names: readonly string[]) {
    this.files = files;
    this.#names = names;
    this.#script = new Script(`(function (${names.join(', ')}) { ${code}\n})`, {
      filename: 'tests.cjs',
      importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    });
  }

  /**
   * Bundles from the current directory. `setup` is loaded before each file; `names` are the received
   * variables.
   */
  static async of(files: readonly string[], setup: string, names: readonly string[]): Promise<TestBundle> {
    const entries = files.map(
      (file) => `${JSON.stringify(file)}: () => require(${JSON.stringify(resolve(file))})`,
    );
    const { outputFiles } = await build({
      stdin: {
        contents: `require(${JSON.stringify(resolve(setup))}); module.exports = { ${entries.join(', ')} };`,
        resolveDir: process.cwd(),
      },
      bundle: true,
      platform: 'node',
      format: 'cjs',
      target: 'node20',
      packages: 'external',
      write: false,
      logLevel: 'silent',
      plugins: [FILE_URLS],
    });
    return new TestBundle(files, outputFiles[0]?.text ?? '', ['require', 'module', 'exports', ...names]);
  }

  /** Evaluates the bundle again. `vitest` replaces the package of that name. */
  evaluate(surroundings: Surroundings, vitest: object): LoadedBundle {
    const fromHere = createRequire(join(process.cwd(), 'package.json'));
    const module: { exports: Record<string, (() => void) | undefined> } = { exports: {} };
    const given: Surroundings = {
      ...surroundings,
      require: (name: string): unknown => (name === 'vitest' ? vitest : fromHere(name)),
      module,
      exports: module.exports,
    };
    this.#script.runInThisContext()(...this.#names.map((name) => given[name]));
    return { load: (file) => module.exports[file]?.() };
  }
}
