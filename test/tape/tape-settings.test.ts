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

  it('with a maximum of clusters that no mesh has are an error, instead of a mesh of 255', () => {
    const read = (maxConnectedClusters: number): number =>
      readTapeSettings({ ...SETTINGS, maxConnectedClusters }, 'a:1').maxConnectedClusters;
    expect([read(255), read(511)]).toEqual([255, 511]);
    expect(() => read(300)).toThrow(/^a:1: settings: maxConnectedClusters .*255 or 511/);
  });
});
