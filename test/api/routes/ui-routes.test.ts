import { expect, it } from 'vitest';
import { TestModel } from '../support/model.ts';
import { testApp } from '../support/test-app.ts';

const PAGE = [
  { name: 'index.html', type: 'text/html', text: '<p>' },
  { name: 'page.js', type: 'text/javascript', text: 'run()' },
];

it('a file of the page is sent again only if it has changed (regression: 300 kB with each reload)', async () => {
  const request = async (text: string, headers = {}, method = 'GET'): Promise<Response> => {
    const page = PAGE.map((file) => (file.name === 'page.js' ? { ...file, text } : file));
    return testApp(new TestModel().fill(), page).app.request('/page.js', { method, headers });
  };
  const first = await request('run()');
  const etag = first.headers.get('etag') ?? '';
  expect([first.status, await first.text(), etag]).toEqual([
    200,
    'run()',
    expect.stringMatching(/^".{20,}"$/),
  ]);
  const known = await request('run()', { 'if-none-match': etag });
  expect([known.status, await known.text(), known.headers.get('etag')]).toEqual([304, '', etag]);
  expect(known.headers.get('content-security-policy')).toContain("default-src 'none'");
  const changed = await request('run(1)', { 'if-none-match': etag });
  expect([changed.status, await changed.text()]).toEqual([200, 'run(1)']);
  // The page compares the tag of its script after each reconnect.
  expect((await request('run()', {}, 'HEAD')).headers.get('etag')).toBe(etag);
});
