import { readFileSync } from 'node:fs';
import { build } from 'esbuild';

const SOURCE = new URL('../../../src/sharedlookup/', import.meta.url).pathname;

/** A text in a file of `src/sharedlookup`, and what replaces it. */
export interface Patch {
  readonly file: string;
  readonly text: string;
  readonly by: string;
}

/**
 * Bundles a module for Node, with a patch of `src/sharedlookup`. Throws an error if the text of the patch occurs not
 * exactly once.
 */
export async function bundlePatched(contents: string, patch?: Patch): Promise<string> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: SOURCE, loader: 'ts' },
    // The package is marked as free of side effects; a program is one.
    ignoreAnnotations: true,
    bundle: true,
    write: false,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    plugins: [
      {
        name: 'patch',
        setup: ({ onLoad }) => {
          onLoad({ filter: /sharedlookup\/[a-z-]+\.ts$/ }, ({ path }) => {
            const text = readFileSync(path, 'utf8');
            if (patch === undefined || !path.endsWith(`/${patch.file}`))
              return { contents: text, loader: 'ts' };
            const parts = text.split(patch.text);
            if (parts.length !== 2)
              throw new Error(`${patch.file}: ${parts.length - 1} times: ${patch.text}`);
            return { contents: parts.join(patch.by), loader: 'ts' };
          });
        },
      },
    ],
  });
  return outputFiles[0]?.text ?? '';
}

/** Returns the exports of a bundled module. */
export async function importBundle<T>(code: string): Promise<T> {
  return (await import(`data:text/javascript,${encodeURIComponent(code)}`)) as T;
}
