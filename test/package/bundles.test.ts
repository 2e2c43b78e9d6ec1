import { fileURLToPath } from 'node:url';
import { createContext, runInContext } from 'node:vm';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { describe, expect, it } from 'vitest';

/** Bundles an entry for a browser: one script, which leaves its exports in `entry`. */
async function bundle(
  name: string,
): Promise<{ readonly script: string; readonly inputs: readonly string[] }> {
  const result = await build({
    entryPoints: [fileURLToPath(new URL(`../../src/${name}.ts`, import.meta.url))],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    platform: 'browser',
    format: 'iife',
    globalName: 'entry',
    target: 'es2022',
    logLevel: 'silent',
  });
  return { script: result.outputFiles[0]?.text ?? '', inputs: Object.keys(result.metafile.inputs) };
}

/**
 * Returns the value of `program` in a context that has only the language: no `process`, no timers, no DOM.
 */
function inBareContext(script: string, program: string): unknown {
  const context = createContext({});
  return JSON.parse(String(runInContext(`${script}; JSON.stringify((() => { ${program} })())`, context)));
}

describe('a separate engine', () => {
  it('ipcache loads no module of Node and runs in a bare context', async () => {
    const { script } = await bundle('ipcache');
    const program = `
      const cache = new entry.IPCache();
      const changes = [];
      cache.subscribe({ onChanges: (told) => changes.push(...told.map(({ kind, prefix }) => kind + ' ' + prefix)) });
      cache.upsert('10.1.0.0/16', { identity: 900, source: 'generated' });
      cache.upsert('fd00::1', { identity: 300, source: 'k8s', hostIP: '192.0.2.1' });
      const before = cache.snapshot();
      cache.delete('fd00::1', { source: 'k8s' });
      return [changes, cache.lookup('10.1.2.3').identity, entry.IPCacheSnapshot.diff(before, cache.snapshot()).length];
    `;
    expect(inBareContext(script, program)).toEqual([
      ['upsert 10.1.0.0/16', 'upsert fd00::1/128', 'delete fd00::1/128'],
      900,
      1,
    ]);
  });

  it('servicecache loads no module of Node and runs in a bare context', async () => {
    const { script } = await bundle('servicecache');
    const program = `
      const id = { namespace: 'shop', name: 'checkout' };
      const services = new entry.ServiceCache({ clusterName: 'a' });
      const ports = new Map([['http', { port: 8080, protocol: 6 }]]);
      services.updateService(entry.createService({ id, addressing: 'assigned', clusterIPs: ['172.16.0.1'] }));
      services.updateEndpoints(
        entry.createEndpointSlice({ service: id, backends: [entry.createBackend({ address: '10.0.0.1', ports })] }),
      );
      return [...services.get(id).endpoints.backends.keys()];
    `;
    expect(inBareContext(script, program)).toEqual(['10.0.0.1']);
  });

  it('nodemanager loads no module of Node and runs in a bare context', async () => {
    const { script } = await bundle('nodemanager');
    const program = `
      const clock = { now: () => 0, wallTime: () => 0, after: () => ({ cancel() {} }) };
      const ipcache = new entry.IPCache();
      const nodes = new entry.NodeManager({ ipcache, clock, clusterName: 'a', nodeName: 'here' });
      const addresses = [{ type: 'InternalIP', ip: '192.0.2.1' }];
      nodes.nodeUpdated({ cluster: 'a', name: 'n', source: 'kvstore', addresses });
      return [[...nodes.nodes()].map((node) => node.fullName), ipcache.get('192.0.2.1').owner];
    `;
    expect(inBareContext(script, program)).toEqual([['a/n'], 'a/n']);
  });

  it('ipcache requires no other package, and fewer than 26 kB gzipped', async () => {
    const { script, inputs } = await bundle('ipcache');
    expect(inputs.filter((path) => path.includes('node_modules'))).toEqual([]);
    expect(gzipSync(script).length).toBeLessThan(26_000);
  });
});
