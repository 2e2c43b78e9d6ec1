import { afterAll, vi } from 'vitest';

// Vitest keeps every mock until its process ends. Without this, it also keeps the calls and the implementation of each,
// and what they refer to, so that each collection of garbage in the following files takes longer.
afterAll(() => {
  vi.resetAllMocks();
});
