import { expect, it } from 'vitest';
import { TestTree, TookTooLong } from './test-tree.ts';

/** Runs the only test that a function declares. Each step may take `stepMs`. */
async function run(body: () => unknown, stepMs: number): Promise<void> {
  const tree = new TestTree();
  tree.collect('file.test.ts', () => {
    const { it } = tree.declarations as { it: (title: string, body: () => unknown) => void };
    it('a test', body);
  });
  const [test] = tree.tests;
  await tree.run(test ?? expect.fail('a test'), stepMs);
}

it('a test passes within any time, whole milliseconds or not (regression: fractions failed every test)', async () => {
  await expect(run(() => {}, 4000.64)).resolves.toBeUndefined();
  await expect(run(async () => {}, 4000.64)).resolves.toBeUndefined();
});

it('a failed test rejects with the thrown value', async () => {
  const error = new Error('as it is');
  await expect(
    run(() => {
      throw error;
    }, 1000),
  ).rejects.toBe(error);
});

it('a test that never yields took too long', async () => {
  await expect(
    run(() => {
      for (;;);
    }, 50),
  ).rejects.toBeInstanceOf(TookTooLong);
});
