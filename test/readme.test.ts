import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from './agent/support/temporary-folder.ts';
import { bundle } from './base/support/bundle.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

const GUIDE = readFileSync(join(ROOT, 'docs/GUIDE.md'), 'utf8');

/** Returns all blocks of a language, joined. */
function blocks(document: string, language: string): string {
  const found = document.matchAll(new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``, 'g'));
  return Array.from(found, ([, text = '']) => text).join('');
}

/** Returns the output of a program that imports the package. */
async function run(program: string): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const imported = program.replaceAll(/'datapath-cache(\/\w+)?'/g, (_, entry = '/index') =>
    JSON.stringify(join(ROOT, `src${entry}.ts`)),
  );
  const file = join(temporaryFolder({ 'program.mts': imported }), 'program.mts');
  const bundled = join(ROOT, 'dist-test/readme');
  await bundle([file], bundled);
  const { stdout, stderr } = spawnSync(process.execPath, [join(bundled, 'program.js')], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { stdout, stderr };
}

describe('the guide', () => {
  it('is a program that prints the documented output', async () => {
    expect(await run(blocks(GUIDE, 'ts'))).toEqual({ stdout: blocks(GUIDE, 'text'), stderr: '' });
  });
});

describe('the commands of the package', () => {
  const manifest: {
    readonly bin: Readonly<Record<string, string>>;
    readonly scripts: Readonly<Record<string, string>>;
  } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

  it('include one of its own name for npx (regression: npx dpcache asked the registry for another package)', () => {
    const main = './dist/cli/main.js';
    expect(manifest.bin).toEqual({ dpcache: main, 'datapath-cache': main });
    const documents = ['README.md', ...readdirSync(join(ROOT, 'docs')).map((name) => join('docs', name))];
    const using = documents
      .filter((path) => path.endsWith('.md'))
      .filter((path) => readFileSync(join(ROOT, path), 'utf8').includes('npx dpcache'));
    expect(using).toEqual([]);
  });

  it('start agents with sockets of their own (regression: npm run demo:kubernetes failed beside npm start)', () => {
    const agents = Object.values(manifest.scripts).filter((script) => script.includes('main.js agent'));
    const sockets = agents.map((script) => /--socket (\S+)/.exec(script)?.[1] ?? 'default');
    expect(sockets.length).toBeGreaterThan(1);
    expect(new Set(sockets).size).toBe(sockets.length);
  });

  it('run demonstrations with node (regression: at Ctrl-C, tsx killed one that was removing its namespaces)', () => {
    const scripts = Object.entries(manifest.scripts).filter(([name]) => /^(demo:|screenshots)/.test(name));
    expect(scripts.length).toBe(5);
    expect(scripts.filter(([, script]) => /&& tsx /.test(script))).toEqual([]);
  });
});

describe('the README', () => {
  it('contains a program that prints the documented output', async () => {
    expect(await run(blocks(README, 'ts'))).toEqual({ stdout: blocks(README, 'text'), stderr: '' });
  });

  it('links to existing files', () => {
    const links = [...README.matchAll(/\]\(([^)]+)\)/g)]
      .map(([, link = '']) =>
        link.replace(/^https:\/\/github\.com\/datapath-cache\/datapath-cache\/\w+\/main\//, ''),
      )
      .filter((path) => !path.startsWith('https:'));
    expect(links.length).toBeGreaterThan(10);
    expect(links.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('contains the measured bytes of an entry, and has at most 900 words', () => {
    const results = readFileSync(join(ROOT, 'bench/RESULTS.md'), 'utf8');
    const measured = /Bytes per entry beyond the metadata handed in: ([\d.]+)/.exec(results)?.[1];
    const shown = /With a million prefixes, each prefix takes (\d+) bytes/.exec(README)?.[1];
    expect(shown).toBe(Number(measured).toFixed(0));
    expect(README.split(/\s+/).length).toBeLessThanOrEqual(900);
  });

  it('starts with commands that the package has', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const named = [...README.matchAll(/npm (?:run (?:-s )?)?(start|test|check|conformance)\b/g)].map(
      ([, name = '']) => name,
    );
    expect(named.filter((name) => !(name in scripts))).toEqual([]);
  });
});
