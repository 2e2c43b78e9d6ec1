import { it } from 'vitest';
import { fuzzServer } from '../api/support/fuzzed-requests.ts';

it('answers a hundred thousand requests of all kinds, and still works', () => fuzzServer(100_000));
