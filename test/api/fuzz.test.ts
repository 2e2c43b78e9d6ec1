import { it } from 'vitest';
import { fuzzServer } from './support/fuzzed-requests.ts';

it('answers a thousand requests of all kinds, and goes on', () => fuzzServer(1_000));
