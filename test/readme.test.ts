import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from './agent/support/temporary-folder.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

const GUIDE = readFileSync(join(ROOT, 'docs/GUIDE.md'), 'utf8');

/** All blocks of a language, joined. */
function blocks(document: string, language: string): string {
  const found = document.matchAll(new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``, 'g'));
  return Array.from(found, ([, text = '']) => text).join('');
}

/** What a program prints that imports the package. */
function run(program: string): { readonly stdout: string; readonly stderr: string } {
  const imported = program.replaceAll(/'datapath-cache(\/\w+)?'/g, (_, entry = '/index') =>
    JSON.stringify(join(ROOT, `src${entry}.ts`)),
  );
  const file = join(temporaryFolder({ 'program.mts': imported }), 'program.mts');
  const { stdout, stderr } = spawnSync(process.execPath, ['--import', 'tsx', file], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { stdout, stderr };
}

describe('the guide', () => {
  it('is a program that prints what it says', () => {
    expect(run(blocks(GUIDE, 'ts'))).toEqual({ stdout: blocks(GUIDE, 'text'), stderr: '' });
  });
});

describe('the README', () => {
  it('shows a program that prints what it says', () => {
    expect(run(blocks(README, 'ts'))).toEqual({ stdout: blocks(README, 'text'), stderr: '' });
  });

  it('links to files that are there', () => {
    const links = [...README.matchAll(/\]\(([^)]+)\)/g)]
      .map(([, link = '']) =>
        link.replace(/^https:\/\/github\.com\/datapath-cache\/datapath-cache\/\w+\/main\//, ''),
      )
      .filter((path) => !path.startsWith('https:'));
    expect(links.length).toBeGreaterThan(10);
    expect(links.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('opens with commands that the package has', () => {
    const { scripts, bin } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const named = [...README.matchAll(/npm (?:run (?:-s )?)?(start|test|check|conformance)\b/g)].map(
      ([, name = '']) => name,
    );
    expect(named.filter((name) => !(name in scripts))).toEqual([]);
    expect(bin).toEqual({ dpcache: './dist/cli/main.js' });
  });
});
