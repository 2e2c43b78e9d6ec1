import { it } from 'vitest';
import { fuzzServer } from './support/fuzzed-requests.ts';

it('answers a thousand requests of all kinds, and still works', () => fuzzServer(1_000));
