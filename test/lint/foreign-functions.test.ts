import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const REPO = fileURLToPath(new URL('../..', import.meta.url));

describe('foreign functions', () => {
  it('are called in one file', () => {
    const files = readdirSync(`${REPO}src`, { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts'))
      .filter((path) => /['"]koffi['"]/.test(readFileSync(`${REPO}src/${path}`, 'utf8')));
    expect(files).toEqual(['datapath/linux/syscall/native.ts']);
  });

  it.runIf(process.platform === 'linux')(
    'are not loaded by an import of the package, nor by one of the Linux datapath, but by its first call',
    () => {
      const program = `
      const loaded = () => process.report.getReport().sharedObjects.some((path) => path.includes('koffi'));
      const seen = [];
      await import('./src/index.ts');
      const { Native } = await import('./src/datapath/linux/syscall/native.ts');
      seen.push(loaded());
      new Native();
      seen.push(loaded());
      console.log(JSON.stringify(seen));
    `;
      const run = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
        cwd: REPO,
        encoding: 'utf8',
      });
      expect(run.stderr).toBe('');
      expect(JSON.parse(run.stdout)).toEqual([false, true]);
    },
  );
});
