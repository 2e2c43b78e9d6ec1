import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const SRC = fileURLToPath(new URL('../../src', import.meta.url));

/** Returns the files of `src` that contain a text. */
function filesWith(text: string): readonly string[] {
  return readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .filter((path) => readFileSync(`${SRC}/${path}`, 'utf8').includes(text));
}

it('no code calls AbortSignal.any, which on Node 20 leaves an entry in a signal for the lifetime of the signal', () => {
  expect(filesWith('AbortSignal.any('), 'use EitherSignal of base/follow-signal.ts').toEqual([]);
});

it('only onAbort adds a listener to a signal, because Node warns of a leak at more than ten', () => {
  expect(filesWith("addEventListener('abort'"), 'use onAbort').toEqual(['base/follow-signal.ts']);
});
