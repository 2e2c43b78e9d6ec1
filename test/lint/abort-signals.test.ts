import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const SRC = fileURLToPath(new URL('../../src', import.meta.url));

it('no code calls AbortSignal.any, which on Node 20 leaves an entry in a signal for the lifetime of the signal', () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .filter((path) => readFileSync(`${SRC}/${path}`, 'utf8').includes('AbortSignal.any('));
  expect(files, 'use EitherSignal of base/follow-signal.ts').toEqual([]);
});
