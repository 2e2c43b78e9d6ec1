import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from './agent/support/temporary-folder.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

function block(language: string): string {
  return new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``).exec(README)?.[1] ?? '';
}

describe('the README', () => {
  it('shows a program that prints what it says', () => {
    const program = block('ts').replace("'datapath-cache'", JSON.stringify(join(ROOT, 'src/index.ts')));
    const file = join(temporaryFolder({}), 'program.mts');
    writeFileSync(file, program);
    const run = spawnSync(process.execPath, ['--import', 'tsx', file], { cwd: ROOT, encoding: 'utf8' });
    expect(run.stderr).toBe('');
    expect(run.stdout).toBe(block('text'));
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
