import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runCommand } from '../../src/cli/program.ts';
import { freePort } from '../base/support/free-port.ts';
import { example, nothing } from '../cli/support/run.ts';
import { SCREENSHOTS, usePages, violations } from './support/open-page.ts';

const { newPage } = usePages();

/** Starts an operator with its page and a kvstore in memory. Returns its URL, and stops it after the test. */
async function operate(): Promise<{ readonly url: string; readonly stop: () => Promise<number> }> {
  const port = String(await freePort());
  const ended = new AbortController();
  const output = { write: () => {} };
  const running = runCommand(
    [
      ...['operator', '--cluster', 'atlantic', '--cluster-id', '1', '--no-socket', '--log-level', 'silent'],
      ...['--k8s-load', example('kubernetes/cluster.yaml'), '--listen', port, '--ui'],
    ],
    { stdout: output, stderr: output, stdin: nothing(), env: {}, signal: ended.signal },
  );
  const stop = (): Promise<number> => {
    ended.abort();
    return running;
  };
  onTestFinished(async () => void (await stop()));
  return { url: `http://127.0.0.1:${port}`, stop };
}

describe('the page of an operator', () => {
  it('shows its duties in one view, requests only routes that exist, and marks the end of the operator', async () => {
    const { url, stop } = await operate();
    const page = await newPage();
    const faults: string[] = [];
    const paths = new Set<string>();
    page.on('pageerror', ({ message }) => faults.push(message));
    page.on('response', (answer) => {
      paths.add(new URL(answer.url()).pathname);
      if (answer.status() === 404) faults.push(answer.url());
    });
    await expect
      .poll(
        () =>
          fetch(`${url}/healthz`).then(
            ({ ok }) => ok,
            () => false,
          ),
        { timeout: 20_000 },
      )
      .toBe(true);
    await page.goto(url);
    await page.waitForSelector('output.live');
    const health = page.getByRole('region', { name: 'Health' });
    await health.getByText('No problems').waitFor();
    expect(await health.innerText()).toContain('The process is ready. 3 items were rejected: see below.');
    expect(await page.getByRole('navigation', { name: 'Views' }).getByRole('link').allInnerTexts()).toEqual([
      'Overview',
    ]);
    expect(await page.title()).toBe('Overview · operator · atlantic · dpcache');
    const nodes = await page.getByRole('row', { name: /^node sync/ }).innerText();
    expect(nodes.split(/\s*\t\s*/).slice(0, 4)).toEqual(['node sync', 'running', '3', '0']);
    await page.screenshot({ path: join(SCREENSHOTS, 'operator.png'), fullPage: true });
    expect(await violations(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: 'dark' });
    expect(await violations(page)).toEqual([]);

    await page.goto(`${url}/#prefixes`);
    await page.getByRole('row', { name: /^node sync/ }).waitFor();

    await stop();
    await page.waitForSelector('output.disconnected');
    await health.getByText(/^The operator is unreachable\. The page shows the state of/).waitFor();
    expect(await health.innerText()).not.toContain('No problems');
    expect([...paths].sort()).toEqual(['/', '/page.css', '/page.js', '/readyz', '/v1/status']);
    expect(faults).toEqual([]);
    await page.close();
  });
});
