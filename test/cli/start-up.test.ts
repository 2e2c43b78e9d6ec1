import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const KINDS = ['prefix', 'service', 'node', 'identity'];

const IMPORT = /^(?:import|export) (?!type )(?:[^;]*? from )?'([^']+)'/gm;

/** Returns the packages, those of Node included, that a module and its static imports load. */
function packagesOf(module: URL, seen: Set<string> = new Set()): Set<string> {
  const packages = new Set<string>();
  if (seen.has(module.href)) return packages;
  seen.add(module.href);
  for (const [, name = ''] of readFileSync(module, 'utf8').matchAll(IMPORT)) {
    if (!name.startsWith('.')) packages.add(name);
    else for (const found of packagesOf(new URL(name, module), seen)) packages.add(found);
  }
  return packages;
}

function loadedBy(path: string): readonly string[] {
  return [...packagesOf(new URL(`../../src/${path}`, import.meta.url))].sort();
}

it('a command line is parsed without loading the agent, so that help and questions are fast', () => {
  expect(loadedBy('cli/main.ts').filter((name) => !name.startsWith('node:'))).toEqual(['commander']);
  for (const asked of [
    'client/ask-agent.ts',
    ...KINDS.map((kind) => `client/${kind}-answers.ts`),
    'client/summary.ts',
    'client/monitor.ts',
  ])
    expect(loadedBy(asked).filter((name) => !name.startsWith('node:'))).toEqual([]);
});

it('a command line is parsed without loading the collectors of the operator (regression: 36 more modules)', () => {
  const modules = new Set<string>();
  packagesOf(new URL('../../src/cli/main.ts', import.meta.url), modules);
  expect([...modules].filter((href) => /\/(k8s|operator)\//.test(href))).toEqual([]);
});

it('the agent is the part that is not loaded', () => {
  expect(loadedBy('agent/run-agent.ts')).toEqual(
    expect.arrayContaining(['@grpc/grpc-js', '@hono/node-server', 'prom-client']),
  );
});
