import { it } from 'vitest';
import { fuzzServer } from '../api/support/fuzzed-requests.ts';

it('answers a hundred thousand requests of all kinds, and goes on', () => fuzzServer(100_000));
