import { readFileSync } from 'node:fs';

/** The version in the package's own `package.json`, two folders up from the source as from the built file. */
export function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version }: { version: string } = JSON.parse(text);
  return version;
}
