import { describe, expect, it } from 'vitest';
import { readTapeSettings } from '../../src/tape/tape-settings.ts';
import { SETTINGS } from './support/taped-mesh.ts';

describe('the settings of a tape', () => {
  it('with an unknown word in watch are an error that names the word', () => {
    const read = (...watch: readonly unknown[]): readonly string[] | undefined =>
      readTapeSettings({ ...SETTINGS, kubernetes: { watch } }, 'a:1').kubernetes?.watch;
    expect(read('services', 'policies')).toEqual(['services', 'policies']);
    expect(() => read('services', 'pods')).toThrow(/^a:1: settings: kubernetes\.watch\[1\] "pods".*services/);
  });
});
