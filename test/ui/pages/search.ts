import { describe, expect, it } from 'vitest';
import { until } from '../../base/support/until.ts';
import { settled, usePages, violations } from '../support/open-page.ts';

const { open } = usePages();

describe('the search', () => {
  it('is focused with /, finds by kind, and opens the choice of the arrows with Enter', async () => {
    const { page } = await open();
    await settled(page);
    await page.keyboard.press('/');
    await page.keyboard.type('check');
    const options = page.getByRole('option');
    await until('results are shown', async () => (await options.count()) > 2);
    expect(await page.getByRole('listbox').getByRole('group').first().getAttribute('aria-label')).toBe(
      'Services',
    );
    expect(await options.first().getAttribute('aria-selected')).toBe('true');
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press('ArrowDown');
    expect(await options.nth(1).getAttribute('aria-selected')).toBe('true');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await page.waitForSelector('h1:has-text("shop/checkout")');
    expect(page.url()).toContain('#/service/shop/checkout');
    expect(await options.count()).toBe(0);
  });

  it('opens as a palette with Ctrl-K, and closes with Escape', async () => {
    const { page } = await open('#/nodes');
    await settled(page);
    await page.keyboard.press('Control+k');
    const palette = page.getByRole('dialog', { name: 'Search' });
    await palette.waitFor();
    await page.keyboard.type('10.0.0.1');
    await palette.getByRole('option').first().waitFor();
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press('Escape');
    await until('it is closed', async () => (await palette.count()) === 0);
    await page.keyboard.press('Control+k');
    await page.keyboard.type('1234');
    await palette.getByRole('option').first().waitFor();
    await page.keyboard.press('Enter');
    await page.waitForSelector('h1:has-text("1234")');
    expect(page.url()).toContain('#/identity/1234');
  });

  it('tells what to do if nothing matches', async () => {
    const { page } = await open();
    await page.getByRole('combobox', { name: 'Search' }).fill('no-such-thing');
    await page.getByText('No matches.').waitFor();
  });

  it('asks again if the agent has not answered', async () => {
    const { page } = await open();
    let asked = 0;
    await page.route('**/v1/search?*', (route) => (asked++ === 0 ? route.abort() : route.continue()));
    await page.getByRole('combobox', { name: 'Search' }).fill('checkout');
    await page.getByText('The agent is unreachable.').waitFor();
    await page.getByRole('option').first().waitFor();
  });

  it('leads from the IP of a service to the service', async () => {
    const { page } = await open('#/ip/172.16.0.10');
    await page.getByText('Address of a service').waitFor();
    await page.getByRole('link', { name: 'shop/checkout' }).first().click();
    await page.waitForSelector('h1:has-text("shop/checkout")');
  });

  it('finds a node, and its card', async () => {
    const { page } = await open();
    await page.keyboard.press('/');
    await page.keyboard.type('node-1');
    await page
      .getByRole('option', { name: /node-1/ })
      .first()
      .click();
    await page.waitForSelector('h1:has-text("baltic/node-1")');
  });
});
