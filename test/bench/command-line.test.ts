import { describe, expect, it } from 'vitest';
import { BENCHES } from '../../bench/catalog.ts';
import { parseCommandLine, usage } from '../../bench/command-line.ts';

describe('the command line of the benches', () => {
  it('runs the named benches in order, with their options', () => {
    expect(parseCommandLine(['ipcache', 'nodes', '--n', '300000', '--json'])).toEqual({
      kind: 'run',
      names: ['ipcache', 'nodes'],
      options: { n: 300_000, json: true, peers: false },
    });
  });

  it('compares with the figures of another program in a file', () => {
    expect(parseCommandLine(['ipcache', '--peer', 'go.json'])).toEqual({
      kind: 'run',
      names: ['ipcache'],
      options: { json: false, peers: false, peer: 'go.json' },
    });
  });

  it('uses the size of the bench if none is given', () => {
    expect(parseCommandLine(['--peers', 'ipcache'])).toEqual({
      kind: 'run',
      names: ['ipcache'],
      options: { json: false, peers: true },
    });
  });

  it('rejects an unknown name, including names that every object has', () => {
    expect(parseCommandLine(['ipcache', 'nope'])).toEqual({ kind: 'wrong', reason: "unknown bench 'nope'" });
    expect(parseCommandLine(['toString']).kind).toBe('wrong');
  });

  it.each([[[]], [['ipcache', '--n', 'many']], [['ipcache', '--n', '0']], [['ipcache', '--fast']]])(
    'refuses %j',
    (words) => {
      expect(parseCommandLine(words).kind).toBe('wrong');
    },
  );

  it('prints the help, whatever else is given', () => {
    expect(parseCommandLine(['nope', '--help'])).toEqual({ kind: 'help' });
    for (const name of Object.keys(BENCHES)) expect(usage()).toContain(`  ${name} `);
  });
});
