import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { addMeshOptions, agentOptions } from '../../../src/cli/mesh-options.ts';

/** Returns the options of an agent for these words. */
function optionsOf(...words: readonly string[]): ReturnType<typeof agentOptions> {
  const command = addMeshOptions(new Command().exitOverride());
  return agentOptions(command.parse(words, { from: 'user' }).opts());
}

describe('--clustermesh-cache-ttl', () => {
  it.each([
    ['90s', 90_000],
    ['10m', 600_000],
    ['1h30m', 5_400_000],
    ['1h0m5s', 3_605_000],
  ])('%s is %i ms', (text, ms) => {
    expect(optionsOf('--clustermesh-cache-ttl', text).serviceTTLMs).toBe(ms);
  });

  it('never expires by default, and with zero', () => {
    expect(optionsOf().serviceTTLMs).toBeUndefined();
    for (const zero of ['0', '0s', '0h0m'])
      expect(optionsOf('--clustermesh-cache-ttl', zero).serviceTTLMs).toBeUndefined();
  });
});

it('fails static unless --no-fail-static is given', () => {
  expect(optionsOf().failStatic).toBe(true);
  expect(optionsOf('--no-fail-static').failStatic).toBe(false);
});

describe('--kvstore-opt', () => {
  it('takes one or several options, and the last of each', () => {
    const given = [
      '--kvstore-opt',
      'etcd.qps=20,etcd.maxInflight=5',
      '--kvstore-opt',
      'etcd.bootstrapQps=10000',
    ];
    const all = { qps: 20, maxInflight: 5, bootstrapQps: 10_000 };
    expect(optionsOf(...given).rateLimit).toEqual(all);
    expect(optionsOf(...given, '--kvstore-opt', 'etcd.qps=7').rateLimit).toEqual({ ...all, qps: 7 });
  });

  it('has no limit by default', () => {
    expect(optionsOf().rateLimit).toBeUndefined();
  });
});
