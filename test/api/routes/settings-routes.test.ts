import { expect, it } from 'vitest';
import { testApp } from '../support/test-app.ts';

it('GET /v1/settings of a process that shows a recorded state is 404 with the reason', async () => {
  const { app } = testApp(undefined, undefined, undefined, false);
  const answer = await app.request('/v1/settings');
  expect(answer.status).toBe(404);
  expect(await answer.json()).toMatchObject({
    detail: 'This process has no settings: it shows a recorded state.',
  });
});
