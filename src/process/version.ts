import { readFileSync } from 'node:fs';

/** Returns the version in the `package.json` of the package, two folders above both the source and the built file. */
export function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version }: { version: string } = JSON.parse(text);
  return version;
}
